"""Between processes: tests/integration/test_trial_life.py kills one that owns a folder."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from autopipe.trial import scratch
from autopipe.trial.scratch import Scratch


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this process."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_goes_with_all_that_is_in_it(temporary: Path) -> None:
    own = Scratch()
    (own.path / "converted").mkdir()
    assert own.path.parent == temporary
    own.close()
    own.close()
    assert list(temporary.iterdir()) == []


def test_what_nobody_owns_is_removed_and_what_somebody_owns_stays(temporary: Path) -> None:
    (temporary / f"{scratch.PREFIX}dead" / "converted").mkdir(parents=True)
    (temporary / "somebody's").mkdir()
    first = Scratch()
    second = Scratch()
    assert sorted(temporary.iterdir()) == sorted([temporary / "somebody's", first.path, second.path])


def test_a_folder_may_be_elsewhere_also_on_a_disk_without_locks(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, "no locks")

    monkeypatch.setattr("fcntl.flock", unsupported)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    own = Scratch(elsewhere)
    assert list(elsewhere.iterdir()) == [own.path]
    own.close()
    assert list(elsewhere.iterdir()) == []


def test_a_link_or_a_file_of_that_name_is_left_alone(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    precious = tmp_path_factory.mktemp("precious")
    (precious / "photo.jpg").touch()
    (temporary / f"{scratch.PREFIX}link").symlink_to(precious)
    (temporary / f"{scratch.PREFIX}file").touch()
    scratch.collect(temporary)
    assert (precious / "photo.jpg").exists()
    assert len(list(temporary.iterdir())) == 2


def test_another_users_folder_is_left_alone(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = temporary / f"{scratch.PREFIX}theirs"
    folder.mkdir()
    monkeypatch.setattr("os.getuid", lambda: folder.stat().st_uid + 1)
    scratch.collect(temporary)
    assert folder.exists()
