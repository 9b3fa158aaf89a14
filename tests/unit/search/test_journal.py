"""A journal that breaks, or loses its lock, is a storage that fails: what was measured stays, the search goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autopipe.core.space import Space
from autopipe.errors import TrialError
from autopipe.search import storage
from tests.unit.search.test_record import opened, run_one

BROKEN = [b'{"op_code": 5, "wor{"op_code": 5}', b"\xff\xfe", b"17", b'{"note": "by hand"}', b"\0" * 8]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with a study in it."""
    path = tmp_path / "study.log"
    opened(f"journal:///{path}")
    return path


def break_off(journal: Path, line: bytes) -> int:
    """Write a line that is no record behind the others, as a write that was cut off and one after it leave one."""
    before = journal.read_bytes()
    journal.write_bytes(before + line + b"\n" + before.splitlines(keepends=True)[-1])
    return len(before.splitlines()) + 1


@pytest.mark.parametrize("line", BROKEN, ids=repr)
def test_a_journal_that_breaks_in_a_search_leaves_the_study_in_memory(journal: Path, space: Space, line: bytes) -> None:
    record = opened(f"journal:///{journal}")
    number = break_off(journal, line)
    run_one(record, space)
    assert [row.value for row in record.rows()] == [5.0]
    assert record.lost == f"line {number} of the journal `{journal}` is no record of Optuna's"


@pytest.mark.parametrize("line", BROKEN, ids=repr)
def test_a_broken_journal_cannot_be_opened_and_the_line_is_named(journal: Path, line: bytes) -> None:
    number = break_off(journal, line)
    with pytest.raises(TrialError, match=rf"cannot be used: line {number} of the journal `{journal}` is no record"):
        storage.open_storage(f"journal:///{journal}")


def test_a_last_line_that_is_still_being_written_breaks_nothing(journal: Path, space: Space) -> None:
    record = opened(f"journal:///{journal}")
    with journal.open("ab") as file:
        file.write(b'{"op_code": 5, "wor')
    assert record.rows() == []
    assert record.lost is None


def test_a_lock_that_another_takes_away_leaves_the_study_in_memory(
    journal: Path, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = opened(f"journal:///{journal}")
    monkeypatch.setattr(os, "fsync", lambda _: Path(f"{journal}.lock").unlink())
    run_one(record, space)
    assert [row.value for row in record.rows()] == [5.0]
    assert record.lost == f"another process took or removed the lock of the journal `{journal}`"
