"""Notes of several processes become one trace, and files that cannot be written are told of.

Whole traces: tests/integration/test_tracing.py.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from autopipe.errors import ConfigError
from autopipe.pipeline.batching import traced
from autopipe.pipeline.batching.traced import TraceLog, TraceWarning, Tracing
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from tests.fakes.trace_reader import complaints

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


def span(name: str, ts: float, dur: float, pid: int = 1) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": pid}


def test_a_line_that_was_cut_is_left_out() -> None:
    assert traced.read(['{"ph":"i"}\n', '{"ph":"X","na']) == [{"ph": "i"}]


def test_notes_are_put_in_order_and_begin_at_0() -> None:
    made = traced.merged({"a": [span("step", 5000.0, 10.0), span("read", 4000.0, 1.0, pid=2)]})
    assert complaints(made) == []
    spans = [event for event in made["traceEvents"] if event["ph"] == "X"]
    assert [(event["name"], event["ts"]) for event in spans] == [("a", 0.0), ("read", 0.0), ("step", 1000.0)]
    names = {event["pid"]: event["args"]["name"] for event in made["traceEvents"] if event["name"] == "process_name"}
    assert names == {0: "trials", 1: "training", 2: "worker process"}


def test_the_stages_of_a_batch_are_events_and_those_of_two_trials_kept_apart(tmp_path: Path) -> None:
    log = TraceLog(str(tmp_path))
    log.flight("batch", "0/0", (1.0, 2.0, 3.0))
    log.flush()
    (file,) = tmp_path.iterdir()
    notes = traced.read(file.read_text().splitlines())
    made = traced.merged({"a": notes, "b": notes})
    assert complaints(made) == []
    stages = [(event["id"], event["ph"], event["ts"]) for event in made["traceEvents"] if event["ph"] in "bne"]
    assert sorted(stages, key=lambda stage: (stage[0], stage[2])) == [
        (f"{trial}/0/0", phase, at) for trial in (0, 1) for phase, at in zip("bne", (0.0, 1e6, 2e6), strict=True)
    ]


def test_of_many_trials_the_first_events_of_each_are_kept() -> None:
    made = traced.merged({name: [span("step", float(at), 0.5) for at in range(50)] for name in "ab"}, most=10)
    assert sum(event["name"] == "step" for event in made["traceEvents"]) == 20
    assert complaints(made) == []
