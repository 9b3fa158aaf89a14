"""What a trial answers, what trials of one session leave for the next one, and the lines on which the making of batches
spends its time."""

import contextlib
import functools
import gc
import json
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pydantic
import pytest

import autopipe as ap
from autopipe import errors
from autopipe.hardware import machine
from autopipe.hardware.gpu import GpuUse
from autopipe.hardware.processes import Sample, Usage
from autopipe.measure.lines import Line, Lines, LineWatch
from autopipe.measure.outcome import (
    FailureKind,
    Measurement,
    Phase,
    Ran,
    Resources,
    TrialFailure,
    Window,
    parse_outcome,
)
from autopipe.measure.session import TrialSession
from autopipe.reports.tables import slow_lines
from autopipe.values import Estimate, JsonObject
from tests.fakes.facts import known
from tests.fakes.reports import Told

MEASUREMENT = Measurement(
    config={"loader": {"kind": "threads", "workers": 2}, "devices": 1}, config_key="abc", batch_size=32,
    windows=(Window(images=320, seconds=2.0, waiting_seconds=0.5), Window(images=320, seconds=1.5)),
    images_per_second=Estimate(value=100.0, low=99.0, high=101.0), first_batch_seconds=0.2, cache_fill_seconds=3.0,
    discarded_batches=21, stable=False, warnings=("The rate still moved.",), data_wait_share=0.1, page_cache="warm",
    resources=Resources(cpu_percent=180.0, peak_rss_bytes=1 << 30), overhead_seconds=0.4,
    ran=Ran(threads=2, processes=1, devices=("CPU:0",), backend="tensorflow", versions={"keras": "3"}),
    phase_seconds={Phase.OPEN: 0.1, Phase.MEASURE: 3.5},
)  # fmt: skip
FAILURE = TrialFailure(
    kind=FailureKind.HUNG, phase=Phase.FILL, message="silent", hint="wait", log_tail="…", config={"devices": 1}
)


def test_an_outcome_survives_json_and_another_schema_is_refused() -> None:
    assert [parse_outcome(each.model_dump_json()) for each in (MEASUREMENT, FAILURE)] == [MEASUREMENT, FAILURE]
    for change in ({"status": "fine"}, {"schema_version": 2}, {"surprise": 1}, {"kind": "odd"}, {"message": 3}):
        with pytest.raises(pydantic.ValidationError):
            parse_outcome(json.dumps(FAILURE.model_dump(mode="json") | change))


def look(seconds: float, cpu: float = 0.0, *gpus: GpuUse, memory: int = 0, machine: float = 0.0) -> Sample:
    return Sample(seconds=seconds, cpu_seconds=cpu, memory_bytes=memory, machine_cpu_seconds=machine, gpus=gpus)


def card(busy: float | None, watts: float | None = 100.0) -> GpuUse:
    return GpuUse(busy_percent=busy, memory_used_bytes=None if watts is None else 1, power_watts=watts)


@pytest.mark.parametrize(
    ("looks", "spare", "cards", "expected"),
    [
        ([look(10, 5, memory=5), look(11, 5.5, memory=9), look(14, 9.5)], 0, None, {"cpu_percent": 112.5}),
        ([look(1, memory=5), look(2, memory=9), look(3, memory=7)], 0, None, {"peak_rss_bytes": 9}),
        ([look(0, 1, machine=50), look(1, 2, machine=50.5)], 0, None, {"others_cpu_percent": 0.0}),  # never less
        ([look(0, 1, machine=50), look(2, 2, machine=54)], 0, None, {"others_cpu_percent": 150.0}),
        ([look(0), look(2, 4, machine=44)], 62, None, {"others_cpu_percent": 0.0}),  # on cores that a quota leaves idle
        ([look(0), look(2, 4, machine=131)], 62, None, {"others_cpu_percent": 150.0}),
        ([look(1, 0, card(90), card(0), card(0)), look(2, 0, card(90), card(90), card(0))],  # the third is not used
         0, 2, {"gpu_percent": 67.5, "gpu_busiest_percent": 90, "gpu_idlest_percent": 45, "gpu_watts": 200,
                "gpu_memory_bytes": 2}),
        ([look(1, 0, card(90))], 0, 0, {"gpu_percent": None, "gpu_watts": None, "cpu_percent": None}),
        ([look(1, 0, card(None, None))], 0, None, {"gpu_percent": None, "gpu_watts": None, "gpu_memory_bytes": None}),
        ([], 0, None, Resources().model_dump()),
    ],
)  # fmt: skip
def test_resources_follow_from_what_was_sampled(
    looks: list[Sample], spare: float, cards: int | None, expected: dict[str, float | None]
) -> None:
    found = Resources.of(Usage(samples=tuple(looks), spare_cores=spare), cards)
    assert {name: getattr(found, name) for name in expected} == expected


def test_busy_neighbours_are_warned_of() -> None:
    for percent, warned in ((None, False), (20.0, False), (150.0, True)):
        said = Resources(others_cpu_percent=percent).warnings
        assert ["1.5 of the cores" in text for text in said] == [True] * warned


class Counted:
    """Samples that count their readings."""

    def __init__(self) -> None:
        self.reads = 0

    def __len__(self) -> int:
        return 64

    def read(self, index: int) -> tuple[Any, int]:
        self.reads += 1
        return np.full((4, 4, 3), index, np.uint8), index % 2


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
    made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


SHORT: JsonObject = {"min_seconds": 0.02, "max_seconds": 0.05, "page_cache": "warm"}
FIRST = ap.PipelineConfig(loader=ap.Threads(workers=1), keep="memory")


@pytest.mark.parametrize(
    ("then", "small", "anew"),
    [
        (FIRST, True, False),
        (FIRST.model_copy(update={"loader": ap.Threads(workers=2)}), True, False),
        (FIRST.model_copy(update={"keep": "memory:50%"}), True, True),
        (FIRST, False, True),
    ],
)
def test_a_trial_finds_the_cache_of_the_one_before_full(
    then: ap.PipelineConfig, small: bool, anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it keeps other samples, or others could miss the memory: then what that one took is free before it."""
    data = Counted()
    with contextlib.closing(TrialSession(ap.Workload(data=data, ops=[], batch_size=8, model=model))) as session:
        if not small:
            monkeypatch.setattr(
                machine, "detect_memory", lambda: machine.Memory(usable_bytes=10**9, available_bytes=20_000)
            )
        first = session.measure(FIRST, SHORT, Told())
        reads = data.reads
        second = session.measure(then, SHORT, Told())
    assert reads >= 64
    assert (data.reads > reads) == anew
    assert first.cache_fill_seconds is not None
    assert (second.cache_fill_seconds == first.cache_fill_seconds) == (not anew)


def line(**other: Any) -> Line:
    return Line(**{"file": "train.py", "line": 3, "code": "x = f(y)", "seconds": 1.0, **other})


def test_times_of_a_line_add_up_and_the_users_own_threads_come_last() -> None:
    beside = line(line=9, seconds=5.0, beside=True)
    parts = [Lines(lines=(line(seconds=1.0),)), Lines(lines=(line(seconds=2.0), beside), forked=True)]
    other = line(line=7, seconds=2.0)
    found = Lines.together([Lines(lines=(other,)), *parts])
    assert found.lines == (line(seconds=3.0), other, beside)
    assert (found.seconds, found.forked) == (5.0, True)


def test_files_of_the_users_are_neither_pythons_nor_a_packages() -> None:
    others = ["/usr/lib/python3/dist-packages/cv2/data.py", "/home/me/.local/lib/python3.11/site-packages/cv2/data.py"]
    for file in (*others, functools.__file__, errors.__file__, "<frozen runpy>", "rasterio/_io.pyx"):
        assert not errors.is_users(file)
    assert errors.is_users("/home/me/of-packages/train.py")
    assert errors.is_users("<ipython-input-1-0a>")


def test_lines_are_shown_with_their_share_and_what_they_wait_for() -> None:
    other = line(line=4, code="for x in y:", processor_seconds=1.0)
    seen = Lines(lines=(line(seconds=3.0, processor_seconds=1.5), other), seconds=4.0)
    assert list(slow_lines(seen)) == [
        ("slow lines", "of making data"),
        ("", "75% train.py:3 x = f(y) (computes 50%, waits 50%)"),
        ("", "25% train.py:4 for x in y: (computes 100%, waits 0%)"),
    ]
    limited = ("slow lines", "of making data, which does not limit this training")
    assert next(iter(slow_lines(seen, limits=False))) == limited


def module(file: Path, code: str) -> Any:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    made: Any = types.ModuleType(file.stem)
    exec(compile(code, str(file), "exec"), vars(made))
    return made


WORK = "import hashlib\n\ndef work():\n    for _ in range(60):\n        hashlib.sha256(bytes(9_000_000))\n"
READER = "site-packages/torch/utils/data/reader.py"
COSTS = "hashlib.sha256(bytes(9_000_000))"


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Call a function as torch's reader does."""
    return module(tmp_path / READER, "def read(f):\n    return f()\n").read


def watched(function: Callable[[], object]) -> Lines | None:
    with (watch := LineWatch()):
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()
    return watch.stop()


def test_the_line_that_takes_the_time_is_named_in_the_file_of_the_users(tmp_path: Path, read: Any) -> None:
    users, own = module(tmp_path / "users.py", WORK), str(tmp_path / "users.py")
    first = known(watched(lambda: read(users.work))).lines[0]
    assert (first.file, first.line, first.code, first.beside) == (own, 5, COSTS, False)
    assert watched(users.work) is None  # it makes no batch
    reader = module(tmp_path / READER, WORK)
    with (watch := LineWatch(whole=True)):  # also of what the main thread does beside batches
        users.work()
        reader.work()  # as a loop waits for a worker's batch
    found = known(watch.stop())
    assert (found.lines, found.own[0].file, found.own[0].code) == ((), own, COSTS)
    assert not any("reader.work()" in each.code for each in found.own)


def test_of_a_librarys_dataset_the_line_is_in_its_file_unless_it_calls_the_users(tmp_path: Path) -> None:
    reader = module(tmp_path / READER, "def read(data):\n    return data[0]\n")
    other, users = (module(tmp_path / name, WORK) for name in ("site-packages/other/work.py", "users.py"))
    code = "class Data:\n    def __getitem__(self, index):\n        return self.made()\n\n"
    code += "    def made(self):\n        self.work()\n"
    for file, named in (
        ("photos/data.py", ("photos/data.py", 6, "self.work()")),
        ("tensorflow/python/distribute/input_lib.py", None),  # an iterator that waits for tf.data
    ):
        librarys = module(tmp_path / "site-packages" / file, code).Data()
        for work_of, place in ((other, named), (users, (str(tmp_path / "users.py"), 5, COSTS))):
            librarys.work = work_of.work
            found = watched(functools.partial(reader.read, librarys))
            first = None if found is None else found.lines[0]
            assert (first and (first.file, first.line, first.code)) == place
    generator = module(
        tmp_path / "site-packages/fast/load.py", "class Data:\n    def made(self):\n        yield self.work()\n"
    )
    data, reader = generator.Data(), module(tmp_path / READER, "def read(data):\n    return next(data.made())\n")
    data.work = other.work
    assert known(watched(functools.partial(reader.read, data))).lines[0].code == "yield self.work()"


def test_no_garbage_is_collected_while_python_lists_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds a lock meanwhile, for which the end of a `threading.local` would wait for ever."""
    listed, looked, collects = sys._current_frames, threading.Event(), set[bool]()

    def listing() -> Any:
        collects.add(gc.isenabled())
        looked.set()
        return listed()

    monkeypatch.setattr(sys, "_current_frames", listing)
    watch = LineWatch()
    watch.start()
    assert looked.wait(60)
    watch.stop()
    assert collects == {False}
    assert gc.isenabled()
