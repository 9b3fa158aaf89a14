"""A trace is one file of whole events; what cannot be written stops nothing. Whole trials: tests/integration."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from autopipe.errors import ConfigError
from autopipe.pipeline.batching import trace
from autopipe.pipeline.batching.trace import Trace
from tests.fakes.facts import known


def spans(file: Path) -> list[Any]:
    return [event for event in json.loads(file.read_text()) if event["ph"] == "X"]


def test_spans_of_several_writers_and_threads_become_one_document(tmp_path: Path) -> None:
    with trace.begun(tmp_path / "trace.json") as file:
        first, second = Trace(known(file)), Trace(known(file))
        first.span("Decode", 1.0, 1.5)
        thread = threading.Thread(target=second.span, args=("read", 2.0, 2.25), name="worker")
        thread.start()
        thread.join()
    events = json.loads((tmp_path / "trace.json").read_text())
    decode, read = spans(tmp_path / "trace.json")
    assert (decode["name"], decode["ts"], decode["dur"]) == ("Decode", 1e6, 5e5)
    assert (read["name"], read["pid"]) == ("read", decode["pid"])
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {decode["tid"]: threading.current_thread().name, read["tid"]: "worker"}


def test_short_spans_and_those_beyond_the_most_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_MOST", 3)
    with trace.begun(tmp_path / "trace.json") as file:
        log = Trace(known(file))
        for name, end in (("short", 1.00005), *[("long", 2.0)] * 5):
            log.span(name, 1.0, end)
    assert [event["name"] for event in spans(tmp_path / "trace.json")] == ["long"] * 3


def test_a_call_that_fails_is_noted_and_fails(tmp_path: Path) -> None:
    def fails(seconds: float) -> None:
        threading.Event().wait(seconds)
        raise RuntimeError

    with trace.begun(tmp_path / "trace.json") as file, pytest.raises(RuntimeError):
        Trace(known(file)).noted(fails, "fails")(0.001)
    assert [event["name"] for event in spans(tmp_path / "trace.json")] == ["fails"]


def test_what_cannot_be_written_is_refused_before_anything_runs_and_stops_no_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`--trace` must name a file that can be written to.*nowhere"):
        trace.begun(tmp_path / "nowhere" / "trace.json").__enter__()
    Trace("/dev/full").span("read", 1.0, 2.0)  # a disk that is full by now
