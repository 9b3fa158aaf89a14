"""Traces whose files cannot be written. Whole traces: tests/integration/test_tracing.py."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from autopipe.errors import ConfigError
from autopipe.pipeline.batching.traced import TraceLog, TraceWarning, Tracing
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads

CONFIG = PipelineConfig(loader=Threads(workers=1))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_trace_that_cannot_be_written_at_the_end_is_a_warning(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "traces").mkdir()
    tracing = Tracing(tmp_path / "traces" / "trace.json")
    tracing.options(CONFIG)
    (tmp_path / "traces").rmdir()
    with pytest.warns(TraceWarning, match="cannot be written to `.*trace.json`: No such file"):
        tracing.__exit__(None, None, None)
    assert list(temporary.iterdir()) == []


def test_a_failure_before_the_first_trial_leaves_an_older_trace(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text("old")
    with pytest.raises(RuntimeError), Tracing(file):
        raise RuntimeError
    assert file.read_text() == "old"
    tracing = Tracing(file)
    tracing.options(CONFIG)
    with pytest.raises(RuntimeError), tracing:
        raise RuntimeError
    assert file.read_text().startswith("{")


def test_a_trial_for_whose_notes_there_is_no_room_goes_untraced(tmp_path: Path, temporary: Path) -> None:
    with Tracing(tmp_path / "trace.json") as tracing:
        (notes,) = temporary.iterdir()
        shutil.rmtree(notes)
        assert tracing.options(CONFIG) == {}
    assert (tmp_path / "trace.json").exists()


def test_a_worker_whose_notes_cannot_be_written_goes_on(tmp_path: Path) -> None:
    log = TraceLog(str(tmp_path / "gone"))
    log.span("read", 0.0, 1.0)
    log.flush()
    log.span("read", 1.0, 2.0)
    log.flush()
    assert list(tmp_path.iterdir()) == []


def test_without_a_temporary_folder_a_trace_is_refused_at_once(tmp_path: Path, temporary: Path) -> None:
    temporary.rmdir()
    with pytest.raises(ConfigError, match="`--trace` needs a temporary folder") as raised:
        Tracing(tmp_path / "trace.json")
    assert "TMPDIR" in str(raised.value.hint)
