"""Worker processes: their messages, their ends, and what is pickled for them."""

from __future__ import annotations

import contextlib
import functools
import importlib
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
from autopipe.pipeline.batching import process
from autopipe.pipeline.batching.cache import RowLayout, Slot
from autopipe.pipeline.batching.pickling import pickled, unpickled
from autopipe.pipeline.batching.process import Nursery, WorkerProcess, _ending
from autopipe.pipeline.loader import Recipe
from autopipe.pipeline.storage.form import Conversion
from autopipe.workload.op import Op
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.sources import Made

SYSTEM_BYTES = 1 << 17  # that a socket of Linux holds, and so a packet, unless it is raised


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SYSTEM_BYTES)
        yield one, other


@pytest.mark.parametrize("size", [1, 1 << 16, (1 << 16) + 1, 3_000_000])
def test_messages_of_any_length_arrive_whole_in_order(ends: tuple[socket.socket, socket.socket], size: int) -> None:
    one, other = ends
    message = os.urandom(size)

    def tell() -> None:
        process.send(one, message)
        process.send(one, b"next")

    teller = threading.Thread(target=tell)
    teller.start()
    assert process.receive(other)[0] == message
    assert process.receive(other)[0] == b"next"
    teller.join()


def test_a_file_goes_with_a_long_message(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    given, kept = os.pipe()
    teller = threading.Thread(target=process.send, args=(one, bytes(1_000_000), [kept]))
    teller.start()
    message, (descriptor,) = process.receive(other)
    teller.join()
    os.write(descriptor, b"through")
    assert (len(message), os.read(given, 7)) == (1_000_000, b"through")
    for each in (given, kept, descriptor):
        os.close(each)


def test_an_end_that_closes_in_a_message_or_before_it_is_told(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    one.send((2).to_bytes(4, "little") + b"the first of two packets")
    one.close()
    for _ in range(2):
        with pytest.raises(EOFError):
            process.receive(other)


def test_waiting_for_a_message_ends_in_the_channels_time(ends: tuple[socket.socket, socket.socket]) -> None:
    _, other = ends
    other.settimeout(0.01)
    with pytest.raises(TimeoutError):
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


def test_a_dead_worker_with_a_living_child_is_replaced(
    source: Made, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def alone(index: int) -> Any:
    return np.full((2, 2, 3), index, np.uint8)


def pair(index: int) -> Any:
    return {"left": alone(index), "right": alone(index)}, index


@pytest.mark.parametrize("made", ["function", "class"])
@pytest.mark.parametrize(("source", "part"), [(alone, None), (pair, None), (pair, "left")])
def test_ops_of_a_module_that_workers_cannot_import_go_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, source: Callable[[int], Any], part: str | None
) -> None:
    file = tmp_path / "only_of_the_training.py"
    file.write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(file.stem)
    op: Op = ap.Map(module.doubled) if made == "function" else module.Doubled()
    workload = ap.Workload(data=Made(4, source), ops=[op if part is None else ap.On(part, op)], batch_size=2)
    packed = pickled(Conversion.of(workload, make_plan(workload), 1), "Processes")

    file.unlink()
    monkeypatch.delitem(sys.modules, file.stem)
    importlib.invalidate_caches()
    image, *_ = unpickled(packed).sample(3)
    assert np.all(image == 6)


@pytest.mark.parametrize("packages", ["site-packages", "dist-packages"])  # the latter of Debian and Colab
def test_ops_of_an_installed_module_go_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: str) -> None:
    (tmp_path / packages).mkdir()
    (tmp_path / packages / "installed_ops.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / packages)
    op: Op = importlib.import_module("installed_ops").Doubled()
    workload = ap.Workload(data=Made(4, alone), ops=[op], batch_size=2)
    packed = pickled(Conversion.of(workload, make_plan(workload), 1), "Processes")
    monkeypatch.setitem(sys.modules, "installed_ops", None)
    with pytest.raises(ModuleNotFoundError, match="installed_ops"):
        unpickled(packed)
