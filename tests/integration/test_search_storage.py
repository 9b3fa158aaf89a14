"""A search whose storage fails in the middle: it ends with its best, and what was measured is not lost."""

from __future__ import annotations

import contextlib
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from autopipe.errors import TrialError
from autopipe.search import budget
from autopipe.search.conclusion import Searched
from autopipe.search.trials import Event, StorageLost, Waiting
from tests.fakes.searches import HARMED_AT, same, searched


def lost(told: Sequence[Event]) -> list[str]:
    return [event.reason for event in told if isinstance(event, StorageLost)]


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/study.db"


def written(folder: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="autopipe", storage=url(folder)).trials


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    ended, told = searched(url(tmp_path_factory.mktemp("unharmed")))
    assert lost(told) == []
    return ended


def test_a_storage_that_keeps_all_has_what_the_search_knows(tmp_path: Path) -> None:
    ended, _ = searched(url(tmp_path))
    assert [(each.number, each.state, each.values, each.params, each.user_attrs) for each in ended.study.trials] == [
        (each.number, each.state, each.values, each.params, each.user_attrs) for each in written(tmp_path)
    ]
    assert ended.result.unsaved is None


def lock(folder: Path) -> sqlite3.Connection:
    other = sqlite3.connect(folder / "study.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    return other


def test_a_database_that_stays_locked_is_waited_for_and_then_done_without(
    tmp_path: Path, unharmed: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "_MOST_PATIENCE_SECONDS", 0.1)
    holders: list[sqlite3.Connection] = []
    ended, told = searched(url(tmp_path), lambda: holders.append(lock(tmp_path)))
    holders[0].close()
    reason = "another process holds the database locked"
    assert [each for each in told if isinstance(each, Waiting)] == [Waiting(on="storage", why=reason, seconds=0.1)]
    assert lost(told) == [reason]
    assert ended.best_config == unharmed.best_config
    assert ended.result.proved
    assert [each.state for each in written(tmp_path)].count(TrialState.COMPLETE) == HARMED_AT


def test_a_database_that_is_unlocked_again_holds_everything(tmp_path: Path, unharmed: Searched) -> None:
    holders: list[sqlite3.Connection] = []

    def release(event: Event) -> None:
        if isinstance(event, Waiting):
            holders[0].close()

    ended, told = searched(url(tmp_path), lambda: holders.append(lock(tmp_path)), release)
    assert lost(told) == []
    assert ended.result.unsaved is None
    assert [each.values for each in written(tmp_path)] == [each.values for each in unharmed.study.trials]


def remove(folder: Path) -> None:
    (folder / "study.db").unlink()


def limit(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "study.db-wal").stat().st_size, FILES[1]))


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
    [("tmp_path", remove, "is gone"), ("tmp_path", limit, "disk"), ("small_disk", fill, "the disk is full")],
)
def test_a_file_that_can_be_written_no_longer_costs_no_result(
    disk: str, harm: Callable[[Path], None], said: str, unharmed: Searched, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(disk)
    try:
        ended, told = searched(url(folder), lambda: harm(folder))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, FILES)
    (reason,) = lost(told)
    assert said in reason
    assert ended.result.unsaved == reason
    assert same(ended, unharmed)
    assert harm is not remove or not (folder / "study.db").exists()


def test_a_study_that_cannot_be_opened_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(TrialError, match="cannot be used: the file is no SQLite database"):
        searched(url(tmp_path))
