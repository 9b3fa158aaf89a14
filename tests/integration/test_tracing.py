"""`--trace`: what a training notes of itself is a whole trace; without it nothing is noted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import autopipe as ap
from autopipe.errors import ConfigError
from autopipe.measure.session import Session
from autopipe.pipeline.batching import traced
from autopipe.pipeline.batching.traced import TraceLog, Tracing
from autopipe.pipeline.config import LoaderConfig
from tests.fakes.reports import Told
from tests.fakes.trace_reader import complaints
from tests.integration.test_measure import QUICK

pytestmark = pytest.mark.slow

IN_TRAINING = {"step", "hand-over", "transfer"}
OPS = {"read", "Decode", "Resize", "RandomFlip"}


def run(photos: Path, file: Path | None, loader: LoaderConfig, **config: Any) -> None:
    workload = ap.Workload(
        data=ap.Table(photos / "labels.csv", path="path", label="label"),
        ops=[ap.Decode(), ap.Resize(8, 8), ap.RandomFlip()],
        model=ap.SimulatedAccelerator(step_seconds=0.002),
        batch_size=4,
    )
    wanted = ap.PipelineConfig(loader=loader, **config)
    session = Session(workload)
    with Tracing(file) as tracing:
        session.measure(wanted, {**QUICK, **tracing.options(wanted)}, Told())
    session.close()


def names_by_process(trace: Any) -> dict[str, set[str]]:
    called = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    found: dict[str, set[str]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            found.setdefault(called[event["pid"]], set()).add(event["name"])
    return found


@pytest.mark.parametrize(
    ("loader", "in_training", "in_workers"),
    [
        (ap.Threads(workers=2, read_ahead=4), IN_TRAINING | OPS, None),
        (ap.Processes(workers=1), IN_TRAINING, OPS),
        (ap.TfData(), IN_TRAINING, None),
    ],
)
def test_lanes_show_what_each_worker_and_the_training_did(
    loader: LoaderConfig, in_training: set[str], in_workers: set[str] | None, tmp_path: Path, photos: Path
) -> None:
    file = tmp_path / "trace.json"
    run(photos, file, loader)
    trace = json.loads(file.read_text())
    assert complaints(trace) == []
    found = names_by_process(trace)
    assert found["training"] == in_training
    assert found.get("worker process") == in_workers
    phases = {event["ph"] for event in trace["traceEvents"]}
    assert ({"b", "n", "e", "C"} <= phases) == (loader.kind in ("threads", "processes"))
    assert any(event["name"] == "epoch end" for event in trace["traceEvents"])
    lanes = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert ("autopipe-reader-0" in lanes) == (loader.reads_ahead())


def test_nothing_is_noted_where_no_trace_is_wanted(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("a log was made")

    monkeypatch.setattr(TraceLog, "__init__", refuse)
    run(photos, None, ap.Threads(workers=1))


def test_what_is_quick_is_noted_now_and_then_and_what_is_slow_each_time(tmp_path: Path) -> None:
    log = TraceLog(str(tmp_path))
    now = 0.0

    def took(seconds: float) -> None:
        nonlocal now
        now += seconds

    quick, slow = (traced.noted(took, name, log, clock=lambda: now) for name in ("quick", "slow"))
    for _ in range(1000):
        quick(1e-6)
    for _ in range(10):
        slow(0.1)
    log.flush()
    (file,) = tmp_path.iterdir()
    assert [file.read_text().count(f'"{name}"') for name in ("quick", "slow")] == [2, 10]


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`--trace` must name a file in a folder"):
        Tracing(tmp_path / "nowhere" / "trace.json")
