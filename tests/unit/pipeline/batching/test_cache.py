"""What workers fill and are sent: a kernel, caches and slots; messages, ends and pickles of processes; the trace."""

import contextlib
import dataclasses
import functools
import importlib
import json
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, strategies
from numpy.typing import NDArray

import autopipe as ap
from autopipe.pipeline.batching import process, trace
from autopipe.pipeline.batching.cache import MemoryCache, RowLayout, SharedBlock, Slot, SlotPool
from autopipe.pipeline.batching.kernel import BadSample, BadSampleLedger, Kernel
from autopipe.pipeline.batching.pickling import pickled, unpickled
from autopipe.pipeline.batching.process import Nursery, WorkerProcess, _ending
from autopipe.pipeline.batching.trace import Trace
from autopipe.pipeline.loader import Recipe
from autopipe.pipeline.storage.form import Conversion
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.facts import known
from tests.fakes.sources import Made

IMAGE = Field(FieldKind.IMAGE, (2, 2, 3), np.dtype("uint8"))
LABEL = Field(FieldKind.LABEL, (), np.dtype("int64"))
VARIED = SampleSpec(Field(FieldKind.IMAGE, None, np.dtype("uint8")), Field(FieldKind.ENCODED, None, None))
SHAPES = strategies.lists(strategies.integers(0, 9), max_size=4)


@given(shapes=strategies.lists(strategies.tuples(SHAPES, strategies.binary(max_size=99)), min_size=1, max_size=20))
def test_samples_of_any_shape_come_out_as_they_went_in(shapes: list[tuple[list[int], bytes]]) -> None:
    made = [(np.arange(math.prod(shape), dtype=np.uint8).reshape(shape), data) for shape, data in shapes]
    whole = recipe(len(made), 1.0, VARIED, 9**4 + 99)
    first = MemoryCache(whole)
    second = MemoryCache(whole, first.block)
    for index, sample in enumerate(made):
        (first, second)[index % 2].put(index, *sample)
    for index, (x, y) in enumerate(made):
        kept_x, kept_y = known(second.get(index))
        assert (np.shape(kept_x), kept_y) == (x.shape, y)
        np.testing.assert_array_equal(kept_x, x)
        assert not isinstance(kept_x, np.ndarray) or not kept_x.flags.writeable


@pytest.mark.parametrize(
    ("spec", "sample"),
    [
        (VARIED, (np.zeros((2, 2), np.float32), b"")),
        (VARIED, (np.zeros((1,) * 5, np.uint8), b"")),
        (VARIED, (np.zeros(2, np.uint8), 7)),
        (SampleSpec(IMAGE, Field(FieldKind.LABEL, (), np.dtype("uint8"))), (np.zeros((2, 2, 3), np.uint8), 300)),
    ],
)
def test_samples_of_another_kind_than_the_first_are_not_kept(spec: SampleSpec, sample: Any) -> None:
    kept = MemoryCache(recipe(2, 1.0, spec, 100))
    kept.put(1, *sample)
    assert kept.get(1) is None


BOTH = SampleSpec(IMAGE, LABEL)


def recipe(count: int, cached: float, spec: SampleSpec = BOTH, sample_bytes: float = 0.0) -> Recipe:
    data = ap.Arrays(np.zeros((count, 2, 2, 3), np.uint8), np.zeros(count, np.int64))
    return Recipe(source=data, fixed_spec=spec, spec=spec, cached=cached, kept_bytes=sample_bytes)


def test_a_part_of_the_samples_is_kept_for_every_worker_and_takes_that_much_memory() -> None:
    made, count = recipe(1000, 0.3), 1000
    cache = known(MemoryCache.of(made))
    for index in range(count):
        cache.put(index, np.full((2, 2, 3), index % 256, np.uint8), index)
    for worker in (cache, known(MemoryCache.of(made, cache.block))):
        kept = {index: sample for index in range(count) if (sample := worker.get(index)) is not None}
        assert len(kept) == worker.filled == 300
        assert all((int(x[0, 0, 0]), y) == (index % 256, index) for index, (x, y) in kept.items())
        assert 100 < sum(index < count // 2 for index in kept) < 200  # spread over the data
    assert MemoryCache.bytes_needed(made) == pytest.approx(300 * (12 + 8 + 1), abs=128)


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_kept_can_only_be_read(shared: bool) -> None:
    target = Field(FieldKind.MASK, (2, 2), np.dtype("uint8"))
    whole = recipe(2, 1.0, SampleSpec(IMAGE, target))
    cache = MemoryCache(whole)
    cache.put(1, np.full((2, 2, 3), 9, np.uint8), np.full((2, 2), 5, np.uint8))
    sample = known((MemoryCache(whole, cache.block) if shared else cache).get(1))
    for part, value in zip(sample, (9, 5), strict=True):
        with pytest.raises(ValueError, match="read-only"):
            part += 1
        assert part.max() == value
    cache.put(1, np.full((2, 2, 3), 7, np.uint8), np.full((2, 2), 6, np.uint8))
    assert (sample[0].max(), sample[1].max()) == (7, 6)


SPEC = SampleSpec(Field(FieldKind.IMAGE, (3, 5, 3), np.dtype("uint8")), Field(FieldKind.LABEL, (), np.dtype("int64")))


def test_fields_lie_aligned_and_apart() -> None:
    layout = RowLayout(SPEC, 7)
    block = SharedBlock(layout.size)
    x, y = layout.arrays(block)
    assert y is not None
    assert x.ctypes.data % 64 == y.ctypes.data % 64 == 0
    x[:], y[:] = 255, -1
    again_x, again_y = map(known, layout.arrays(block, 4))
    np.testing.assert_array_equal(again_x, np.full((4, 3, 5, 3), 255, np.uint8), strict=True)
    np.testing.assert_array_equal(again_y, np.full(4, -1), strict=True)


def test_a_slot_comes_back_with_the_last_reference_to_its_arrays() -> None:
    pool = SlotPool(RowLayout(SPEC, 4), keep=1)
    slot = pool.acquire()
    x, y = pool.lend(slot, 4)
    view = x[1:, 0]
    del x
    assert pool.acquire() is not slot
    del y
    assert pool.acquire() is not slot
    del view
    assert pool.acquire() is slot
    other = pool.acquire()
    pool.release(slot)
    pool.release(other)
    assert pool.acquire() is slot
    assert pool.acquire() is not other  # no more than one unused is kept


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_batch_that_a_forked_child_reads_is_not_overwritten() -> None:
    pool = SlotPool(RowLayout(SPEC, 4), keep=3)
    batch = pool.lend(pool.acquire(), 4)
    batch[0][:] = 7
    waiting, going_on = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(waiting, 1)
        os._exit(0 if batch[0].min() == batch[0].max() == 7 else 1)
    del batch
    later = pool.lend(pool.acquire(), 4)
    later[0][:] = 9
    os.write(going_on, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for descriptor in (waiting, going_on):
        os.close(descriptor)
    slot = pool.acquire()
    batch = pool.lend(slot, 4)
    del batch
    assert pool.acquire() is slot  # what was lent since then comes back


BLACK = np.zeros((4, 4, 3), np.uint8)
MASK = np.zeros((4, 4), np.uint8)


def mixed(usual: Any, odd: Any) -> Made:
    """Samples that are alike where the planner looks, and one that is not."""
    return Made(9, lambda index: odd if index == 1 else usual)


def recipe_of(data: Any, ops: Sequence[ap.Op], cached: float = 0.0) -> Recipe:
    workload = ap.Workload(data=data, ops=ops, batch_size=2, seed=3)
    return dataclasses.replace(Recipe.of(workload, make_plan(workload)), cached=cached)


def filled(data: Any, cached: float = 0.0, ops: tuple[ap.Op, ...] = ()) -> Any:
    made = recipe_of(data, ops, cached=cached)
    batch = made.spec.empty(2)
    Kernel(made, MemoryCache.of(made)).fill(0, np.array([0, 1]), batch)
    return batch


@pytest.mark.parametrize(
    ("usual", "odd", "said"),
    [
        ((BLACK, MASK), (BLACK, MASK.astype(np.uint16) + 300), r"y \(4, 4\) uint16, but .* y \(4, 4\) uint8\."),
        ((BLACK, 3), (BLACK, 0.5), r"y \(\) float64, but .* y \(\) int64"),
        ((BLACK, 3), (BLACK, float("nan")), r"y \(\) float64, but .* y \(\) int64"),
        ((BLACK, np.uint8(3)), (BLACK, 300), r"y \(\) int64, but .* y \(\) uint8"),
        ((BLACK, np.zeros(3)), (BLACK, np.zeros(1)), r"y \(1,\) float64, but .* y \(3,\) float64"),
        ((BLACK, 0.5), (BLACK, None), r"x \(4, 4, 3\) uint8, but .* and y \(\) float64\."),
        (BLACK, BLACK.astype(np.float32) + 0.5, r"x \(4, 4, 3\) float32, but a batch holds x \(4, 4, 3\) uint8"),
    ],
    ids=["mask of 16 bits", "fraction", "nan", "large label", "one number for three", "none", "floating point"],
)
def test_numbers_for_which_a_batch_has_no_room_are_refused_and_not_cut(usual: Any, odd: Any, said: str) -> None:
    with pytest.raises(ap.WorkloadError, match=rf"^sample 1 has .*{said}.*ap\.Cast"):
        filled(mixed(usual, odd))


@pytest.mark.parametrize("cached", [0.0, 1.0])
def test_a_sample_of_another_shape_is_named_where_samples_are_cached_too(cached: float) -> None:
    said = r"^sample 1 has x \(5, 4, 3\) uint8 and y \(\) int64, but a batch holds"
    with pytest.raises(ap.WorkloadError, match=said):
        filled(mixed((BLACK, 3), (np.zeros((5, 4, 3), np.uint8), 3)), cached)


PIXELS = np.random.default_rng(0).integers(0, 256, (2, 6, 6, 3), np.uint8)
SMALLER = ap.Resize(4, 4)  # which OpenCV writes into the batch at once, so that later ops get the batch's own memory


def smaller(number: int) -> NDArray[np.uint8]:
    made: NDArray[Any] = cv2.resize(PIXELS[number], (4, 4))
    return made


@pytest.mark.parametrize("cached", [0.0, 1.0])
@pytest.mark.parametrize(
    "function",
    [
        lambda image: image.swapaxes(0, 1),
        lambda image: np.broadcast_to(image[..., :1], image.shape),
        lambda image: image[::-1],
        lambda image: image,
    ],
    ids=["turned", "repeated", "upside down", "as it is"],
)
def test_a_view_of_the_batchs_own_pixels_is_what_it_holds(function: Callable[[Any], Any], cached: float) -> None:
    x, _ = filled(ap.Arrays(PIXELS), cached, (SMALLER, ap.Map(function)))
    for number in range(2):
        np.testing.assert_array_equal(x[number], function(smaller(number)))


@pytest.mark.parametrize(("cached", "later"), [(0.0, ()), (1.0, ()), (0.0, (ap.RandomErasing(1.0),))])
def test_an_image_that_becomes_its_own_target_stays_what_it_was(cached: float, later: tuple[ap.Op, ...]) -> None:
    inverted = ap.Map(lambda x, y: (255 - x, x), on="both")
    x, y = filled(ap.Arrays(PIXELS), cached, (SMALLER, inverted, *later))
    for number in range(2):
        np.testing.assert_array_equal(y[number], smaller(number))
        assert later or (x[number] == 255 - smaller(number)).all()


def test_a_list_that_cannot_be_written_warns_once_and_stops_nothing(tmp_path: Path) -> None:
    ledger = BadSampleLedger(str(tmp_path / "gone" / "log"), 1000)
    with pytest.warns(ap.DataWarning, match=r"cannot be listed in `.*/gone/log`: No such file"):
        ledger.record(0, [BadSample(3, 9, "broken")])
    ledger.record(0, [BadSample(4, 9, "broken")])  # another warning would be an error here
    assert ledger.counts == {0: 2}
    with pytest.raises(ap.DataError, match=r"11 samples .* are bad.*`ap.verify_files"):
        ledger.record(0, [BadSample(number, 99, "broken") for number in range(11)])


@pytest.mark.parametrize(("samples", "tolerated"), [(10, 1), (100, 1), (1000, 10)])
def test_bad_samples_are_listed_once_and_one_percent_is_the_most(tmp_path: Path, samples: int, tolerated: int) -> None:
    ledger, bad = BadSampleLedger(str(tmp_path / "log"), samples), [BadSample(3, 4, "broken")]
    for epoch in (0, 1):
        ledger.record(epoch, bad + [BadSample(number, 99, "broken") for number in range(4, 3 + tolerated)])
        ledger.record(epoch, bad)
    assert ledger.counts == {0: tolerated, 1: tolerated}
    listed = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert (len(listed), listed[0]) == (tolerated, {"index": 3, "replaced_by": 4, "message": "broken"})
    with pytest.raises(ap.DataError, match=rf"{tolerated + 1} samples .* are bad, .*/log"):
        ledger.record(0, [BadSample(99, 0, "broken")])


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


SENT = SampleSpec(Field(FieldKind.ARRAY, (2,), np.dtype("float32")), Field(FieldKind.LABEL, (), np.dtype("int64")))


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
    recipe = Recipe(source=source, fixed_spec=SENT, spec=SENT)
    slot = Slot(1, RowLayout(SENT, 4))
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


def test_every_end_of_a_worker_has_words() -> None:
    for status, words in ((-9, "by SIGKILL"), (-40, "by signal 40"), (3, "status 3")):
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
def test_ops_without_a_module_go_by_value(tmp_path: Path, monkeypatch: Any, made: Any, source: Any, part: Any) -> None:
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
    with trace.begun(tmp_path / "trace.json") as file, pytest.raises(IndexError):
        Trace(known(file)).noted(lambda: [threading.Event().wait(0.001)].pop(9), "fails")()
    assert [event["name"] for event in spans(tmp_path / "trace.json")] == ["fails"]


def test_what_cannot_be_written_is_refused_before_anything_runs_and_stops_no_work(tmp_path: Path) -> None:
    with pytest.raises(ap.ConfigError, match=r"`--trace` must name a file that can be written to.*nowhere"):
        trace.begun(tmp_path / "nowhere" / "trace.json").__enter__()
    Trace("/dev/full").span("read", 1.0, 2.0)  # a disk that is full by now
