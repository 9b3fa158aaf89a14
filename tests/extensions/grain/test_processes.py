"""Grain's worker processes: the loader contract's heart, and what is peculiar to them. They start slowly.

Not tested: a worker that is killed. Grain leaves what it had in shared memory.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import LoaderError, OpError
from autopipe.extensions.grain.loader import Grain
from tests.contract.test_loaders import digest, exact_workload, expected_batches, finished
from tests.fakes.commands import python

PROCESSES = Grain(num_threads=2, workers=2, buffer_size=4)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def opened(photos: Path, *, keep: str = "none", **changes: object) -> ap.Loader:
    return ap.build_loader(exact_workload(photos, **changes), ap.PipelineConfig(loader=PROCESSES, keep=keep))


def test_they_give_the_batches_of_the_other_loaders_and_share_a_cache(photos: Path) -> None:
    workload = exact_workload(photos)
    with opened(photos, keep="memory") as made:
        for epoch in (0, 1):
            assert digest(expected_batches(workload, epoch)) == digest(finished(made, made.batches(epoch)))
        assert digest(expected_batches(workload, 4)[2:]) == digest(finished(made, made.batches(4, 2)))


def boom(image: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> object:
    raise ValueError("no image pleases it")


def test_what_an_op_raises_there_is_told_here(photos: Path) -> None:
    ops = [ap.Decode(), ap.Resize(8, 8), ap.Map(lambda image: image if os.environ.get("HERE") else boom(image))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HERE", "1")  # while the ops are tried out
        made = opened(photos, ops=ops)
        patch.delenv("HERE")
        with made, pytest.raises(OpError, match=r"Map on sample .*no image pleases it"):
            next(made.batches(0))


def test_a_main_script_that_they_cannot_run_is_told_of(photos: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"""
import numpy as np
import autopipe as ap

workload = ap.Workload(data=ap.Arrays(np.zeros((8, 4))), ops=[], batch_size=2)
with ap.build_loader(workload, ap.PipelineConfig(loader=ap.{PROCESSES!r})) as loader:
    list(loader.epoch(0))
""".replace("Grain(kind='grain', ", "Grain(")
    )
    done = python(script, backend="tensorflow")
    assert done.returncode == 1
    assert "Does the main script lack" in done.stderr.splitlines()[-1]


def test_too_little_shared_memory_is_refused(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.statvfs_result((4096, 4096, 10, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(LoaderError, match=r"need .*B in /dev/shm .*but 0 B are free.* --shm-size"):
        opened(photos)
