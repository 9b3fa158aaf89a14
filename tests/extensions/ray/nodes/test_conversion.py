"""A conversion by a Ray cluster gives the files of a conversion on this machine, and refuses what would not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from autopipe.artifact import converting
from autopipe.errors import StorageError
from autopipe.extensions.ray import writer
from tests.contract.test_loaders import exact_workload
from tests.fakes.commands import autopipe, content, succeeded

TRAIN = """
import autopipe as ap
workload = ap.Workload(data=ap.Table({table!r}), ops=[ap.Decode(), ap.Resize(8, 8)], batch_size=2)
"""
pytestmark = [
    pytest.mark.timeout(200),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:os.fork"),  # Ray does so, where an earlier test has imported JAX
]


@pytest.mark.parametrize("form", ["array", "tfrecord"])
def test_a_cluster_writes_the_same_files(photos: Path, tmp_path: Path, ray_nodes: Any, form: str) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(table=str(photos / "labels.csv")))
    named = f"{tmp_path / 'train.py'}:workload"
    converting.job(named, form, tmp_path / "whole").run(workers=1)
    line = ("convert", named, "--to", form, "--out", "set", "--by", f"ray={ray_nodes.address}", "--verify")
    done = succeeded(autopipe(*line, cwd=tmp_path))
    assert "wrote     23 samples" in done.stderr
    assert "verified" in done.stderr
    assert content(tmp_path / "set") == content(tmp_path / "whole")


def test_what_is_there_already_is_kept(photos: Path, tmp_path: Path, ray_nodes: Any) -> None:
    job = converting.job(exact_workload(photos), "array", tmp_path / "set")
    first = job.run(by=writer(ray_nodes.address), workers=2)
    again = job.run(by=writer(ray_nodes.address), workers=3)
    assert (first.samples, first.kept, again.samples, again.kept) == (23, 0, 0, 23)


def test_a_folder_that_nodes_do_not_share_is_named(photos: Path, tmp_path: Path, ray_nodes: Any) -> None:
    job = converting.job(exact_workload(photos), "array", tmp_path / "set")
    folder = os.open(tmp_path, os.O_RDONLY)
    high = 777  # a number that no worker has open
    os.dup2(folder, high)
    os.close(folder)
    try:
        elsewhere = converting.job(exact_workload(photos), "array", f"/proc/self/fd/{high}/other")
        with pytest.raises(StorageError, match=r"cannot be written to|is not complete"):
            elsewhere.run(by=writer(ray_nodes.address))
    finally:
        os.close(high)
    assert job.run(by=writer(ray_nodes.address)).samples == 23
