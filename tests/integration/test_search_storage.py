"""A search whose storage fails in the middle: it ends with its best, and what was measured is not lost."""

from __future__ import annotations

import contextlib
import random
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import optuna
import pytest

from autopipe.errors import TrialError
from autopipe.search.conclusion import Searched
from autopipe.search.result import Event, StorageLost
from tests.fakes.searches import same, searched


def lost(told: Sequence[Event]) -> list[str]:
    return [event.reason for event in told if isinstance(event, StorageLost)]


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/study.db?timeout=0.1"


def written(folder: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="autopipe", storage=url(folder)).trials


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    ended, told = searched(url(tmp_path_factory.mktemp("unharmed")))
    assert lost(told) == []
    return ended


@pytest.mark.slow
def test_a_storage_that_keeps_all_has_what_the_search_knows(tmp_path: Path) -> None:
    ended, _ = searched(url(tmp_path))
    assert [(each.number, each.state, each.values, each.params, each.user_attrs) for each in ended.study.trials] == [
        (each.number, each.state, each.values, each.params, each.user_attrs) for each in written(tmp_path)
    ]
    assert ended.result.unsaved is None


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optuna tries again after a pause of random length."""
    monkeypatch.setattr(random, "random", lambda: 0.0)


def lock(folder: Path) -> None:
    other = sqlite3.connect(folder / "study.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    LOCKS.append(other)


LOCKS: list[sqlite3.Connection] = []


def remove(folder: Path) -> None:
    (folder / "study.db").unlink()


def limit(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "study.db").stat().st_size, FILES[1]))


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(512))


FILES = resource.getrlimit(resource.RLIMIT_FSIZE)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # the study may still be open


@pytest.mark.parametrize(
    ("disk", "harm", "said"),
    [
        ("tmp_path", remove, "readonly"),
        ("tmp_path", limit, "disk"),
        ("tmp_path", lock, "database is locked"),
        ("small_disk", fill, "disk is full"),
    ],
)
@pytest.mark.slow
def test_a_file_that_can_be_written_no_longer_costs_no_result(
    disk: str, harm: Callable[[Path], None], said: str, unharmed: Searched, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(disk)
    try:
        ended, told = searched(url(folder), lambda: harm(folder))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, FILES)
        while LOCKS:
            LOCKS.pop().close()
    (reason,) = lost(told)
    assert said in reason
    assert ended.result.unsaved == reason
    assert same(ended, unharmed)
    assert harm is not remove or not (folder / "study.db").exists()


def test_a_study_that_cannot_be_opened_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(TrialError, match="cannot be used: file is not a database"):
        searched(url(tmp_path))
