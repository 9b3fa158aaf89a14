"""Worker processes: their messages, their ends, what is pickled for them, and the trace that all write."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import ConfigError
from autopipe.pipeline.batching import process, trace
from autopipe.pipeline.batching.cache import RowLayout, Slot
from autopipe.pipeline.batching.pickling import pickled, unpickled
from autopipe.pipeline.batching.process import Nursery, WorkerProcess, _ending
from autopipe.pipeline.batching.trace import Trace
from autopipe.pipeline.loader import Recipe
from autopipe.pipeline.storage.form import Conversion
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.facts import known
from tests.fakes.sources import Made

SYSTEM_BYTES = 1 << 17  # that a socket of Linux holds, and so a packet, unless it is raised


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SYSTEM_BYTES)
        yield one, other


@pytest.mark.parametrize("size", [1, 1 << 16, (1 << 16) + 1, 3_000_000])
def test_messages_of_any_length_arrive_whole_in_order_with_a_file(ends: Any, size: int) -> None:
    one, other = ends
    message, (reads, writes) = os.urandom(size), os.pipe()
    with ThreadPoolExecutor(1) as teller:
        for content, files in ((message, [writes]), (b"next", [])):
            teller.submit(process.send, one, content, files)
        received, (descriptor,) = process.receive(other)
        assert received == message
        assert process.receive(other) == (b"next", [])
    os.write(descriptor, b"through")
    assert os.read(reads, 7) == b"through"
    for each in (reads, writes, descriptor):
        os.close(each)


def test_an_end_that_closes_in_a_message_or_before_it_is_told(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    one.send((2).to_bytes(4, "little") + b"the first of two packets")
    one.close()
    for _ in range(2):
        with pytest.raises(EOFError):
            process.receive(other)


SPEC = SampleSpec(Field(FieldKind.ARRAY, (2,), np.dtype("float32")), Field(FieldKind.LABEL, (), np.dtype("int64")))


def forking(child: Path, index: int) -> tuple[object, int]:
    """Make a sample; for the first one, fork a child, which stays, and kill the own process."""
    if not child.exists():
        if (number := os.fork()) == 0:
            time.sleep(60)
            os._exit(0)
        child.write_text(str(number))
        os.kill(os.getpid(), signal.SIGKILL)
    return np.full(2, index, np.float32), index


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Made]:
    child = tmp_path / "child"
    yield Made(4, functools.partial(forking, child))
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(child.read_text()), signal.SIGKILL)


def test_a_dead_worker_with_a_living_child_is_replaced(source: Made, caplog: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(process, "_LOOK_SECONDS", 0.05)
    recipe = Recipe(source=source, fixed_spec=SPEC, spec=SPEC)
    slot = Slot(1, RowLayout(SPEC, 4))
    worker = WorkerProcess(Nursery(recipe, None))
    with ThreadPoolExecutor(1) as pool:
        try:
            assert pool.submit(worker.fill_slot, slot, 0, np.arange(4)).result(30) == []
        finally:
            worker.close()
    x, y = slot.layout.arrays(slot.block)
    assert (x[:, 0].tolist(), y.tolist()) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert worker.lost == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "SIGKILL" in caplog.text


@pytest.mark.parametrize(("status", "words"), [(-9, "by SIGKILL"), (-40, "by signal 40"), (3, "status 3")])
def test_every_end_of_a_worker_has_words(status: int, words: str) -> None:
    assert words in _ending(status)


MODULE = """
import dataclasses
from autopipe.workload.op import Op

def doubled(x):
    return x * 2

@dataclasses.dataclass(frozen=True)
class Doubled(Op):
    def apply(self, sample, spec, random):
        return sample[0] * 2, sample[1]
"""


def packed_in(folder: Path, patch: pytest.MonkeyPatch, ops_of: Callable[[Any], Any], source: Any, name: str) -> Any:
    """Return a conversion by an op of a new module in a folder, as it is sent to workers."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(MODULE)
    patch.syspath_prepend(folder)
    workload = ap.Workload(data=Made(4, source), ops=[ops_of(importlib.import_module(name))], batch_size=2)
    return pickled(Conversion.of(workload, make_plan(workload), 1), "Processes")


def alone(index: int) -> Any:
    return np.full((2, 2, 3), index, np.uint8)


def pair(index: int) -> Any:
    return {"left": alone(index), "right": alone(index)}, index


@pytest.mark.parametrize("made", [lambda module: ap.Map(module.doubled), lambda module: module.Doubled()])
@pytest.mark.parametrize(("source", "part"), [(alone, None), (pair, None), (pair, "left")])
def test_ops_of_a_module_that_cannot_be_imported_go_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Any, source: Callable[[int], Any], part: str | None
) -> None:
    name = "only_of_the_training"
    op_of = made if part is None else lambda module: ap.On(part, made(module))
    packed = packed_in(tmp_path, monkeypatch, op_of, source, name)
    (tmp_path / f"{name}.py").unlink()
    monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()
    image, *_ = unpickled(packed).sample(3)
    assert np.all(image == 6)


@pytest.mark.parametrize("packages", ["site-packages", "dist-packages"])  # the latter of Debian and Colab
def test_ops_of_an_installed_module_go_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: str) -> None:
    packed = packed_in(tmp_path / packages, monkeypatch, lambda module: module.Doubled(), alone, "installed_ops")
    monkeypatch.setitem(sys.modules, "installed_ops", None)
    with pytest.raises(ModuleNotFoundError, match="installed_ops"):
        unpickled(packed)


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
