from __future__ import annotations

from pathlib import Path

import pytest
from optuna.study import StudyDirection

from autopipe.errors import TrialError
from autopipe.search import storage


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///study.db", "sqlite:///study.db"),
        ("postgresql+psycopg://me@host/name", "postgresql+psycopg://me@host/name"),
        ("postgresql+psycopg://me:secret@host:5432/name?a=b", "postgresql+psycopg://me@host:5432/name?a=b"),
        ("mysql://:secret@host/name", "mysql://@host/name"),
        *[
            (f"postgresql://me:{word}@host/db", "postgresql://me@host/db")
            for word in ("a#b", "a/b", "a?b", "a@b", "a:b")
        ],
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert storage.without_password(url) == shown


def test_a_storage_that_cannot_be_used_is_named_without_its_password() -> None:
    with pytest.raises(TrialError) as error:
        storage.open_storage("nosuchdatabase://me:secret@host/name")
    assert "nosuchdatabase://me@host/name" in str(error.value)
    assert "secret" not in str(error.value)


def test_a_study_lies_in_its_file_whatever_its_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "was? 50% #1 %20"
    folder.mkdir()
    storage.open_storage(storage.url_of(folder / "study.db")).create_new_study([StudyDirection.MAXIMIZE])
    assert (folder / "study.db").stat().st_size > 0
    assert [each.name for each in tmp_path.iterdir()] == [folder.name]


def test_a_proxy_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_READY_SECONDS", 0.01)
    with pytest.raises(TrialError, match=r"grpc://127\.0\.0\.1:9.* cannot be used"):
        storage.open_storage("grpc://127.0.0.1:9")


def test_the_port_of_a_proxy_is_a_number() -> None:
    with pytest.raises(TrialError, match="cannot be used"):
        storage.open_storage("grpc://host:port")


def test_a_journal_lies_where_its_url_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage.open_storage("journal:///relative.log")
    storage.open_storage(f"journal:///{tmp_path}/absolute.log")
    assert {path.name for path in tmp_path.iterdir() if path.suffix == ".log"} == {"relative.log", "absolute.log"}


def test_only_a_file_of_ones_own_holds_one_study() -> None:
    urls = (None, "sqlite:///a.db", "journal:///a.log", "postgresql://h/n")
    shared = [url for url in urls if storage.is_shared(url)]
    assert shared == ["journal:///a.log", "postgresql://h/n"]
    assert [url for url in urls if storage.can_be_joined(url)] == ["postgresql://h/n"]


def test_a_journal_that_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match="cannot be used"):
        storage.open_storage(f"journal:///{tmp_path}/missing/study.log")
