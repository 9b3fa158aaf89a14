"""What every test shares. Fixtures that only one folder needs belong in that folder's own conftest.py."""

import gc
import os
import signal
import subprocess
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Literal

import cv2
import hypothesis
import numpy as np
import psutil
import pytest

from autopipe.hardware import machine
from autopipe.pipeline.batching import process
from autopipe.pipeline.config import LOADERS, LoaderConfig, PipelineConfig
from autopipe.search.space import to_config
from tests.fakes import nurseries
from tests.fakes.commands import children
from tests.fakes.reports import Approved

# Before any test imports TensorFlow, here and in the child processes that tests start: no start-up chatter, and two
# pytest workers on two cores do not each claim both for the arithmetic of one op.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No test asserts a time: a machine that is busy for a moment is no failure. `make test-core` runs the profile `whole`.
hypothesis.settings.register_profile("whole", deadline=None)
hypothesis.settings.register_profile("part", deadline=None, max_examples=15)
hypothesis.settings.load_profile("part")


# Looking for garbage takes a sixth of the tests' time: it is done seldom, and never while modules are imported.
gc.disable()


def pytest_collection_finish() -> None:
    """Have later collections of garbage leave out what is imported: with the frameworks, each takes a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--approve", action="store_true", help="keep the texts that tests compare as they are now")


@pytest.fixture
def approved(request: pytest.FixtureRequest) -> Approved:
    """Compare texts, each with the name of its case, with those in the folder `approved` beside the test's file.

    `make approve` keeps them as they are now. Read what `git diff` shows of them before you commit it.
    """
    name = f"{request.path.stem.removeprefix('test_')}-{request.function.__name__.removeprefix('test_')}.txt"
    file = request.path.parent / "approved" / name

    def compare(texts: Mapping[str, str]) -> None:
        lines = [
            line.rstrip()
            for case, text in texts.items()
            for line in (f"=== {' '.join(case.split())}", *text.splitlines(), "")
        ]
        if request.config.getoption("--approve"):
            file.parent.mkdir(exist_ok=True)
            file.write_text("\n".join(lines))
        kept = file.read_text() if file.exists() else ""
        assert lines == kept.split("\n"), f"{file} has other texts: if these are as they should be, run `make approve`"

    return compare


@pytest.fixture
def no_process_left() -> Iterator[None]:
    """Fail where a process that began within the test is there 20 s after it."""
    before = children()
    yield
    assert psutil.wait_procs(set(children()) - set(before), timeout=20)[1] == []


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Have SIGINT raise KeyboardInterrupt, as a job in the background begins without that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of caches of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def forked_nurseries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the processes that start a loader's workers forked from one that has imported what they need."""
    nurseries.begin()
    monkeypatch.setattr(
        process, "subprocess", types.SimpleNamespace(Popen=nurseries.Forked, DEVNULL=subprocess.DEVNULL)
    )


ThisMachine = Callable[..., None]


@pytest.fixture
def this_machine(monkeypatch: pytest.MonkeyPatch) -> ThisMachine:
    """Have this machine so many bytes of memory free, or so many cores, as `this_machine(free_bytes=1000)`."""

    def has(*, free_bytes: int | None = None, cores: int | None = None) -> None:
        if free_bytes is not None:
            memory = machine.Memory(usable_bytes=1 << 40, available_bytes=free_bytes)
            monkeypatch.setattr(machine, "detect_memory", lambda: memory)
        if cores is not None:
            monkeypatch.setattr(machine, "usable_cores", lambda: cores)

    return has


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 small JPEG and PNG files of several sizes, and `labels.csv`, in which a row's label is its number."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    rows = ["path,label"]
    for number in range(23):
        height, width = 40 + number % 5, 60 + number % 3
        coarse = rng.integers(0, 256, (6, 8, 3), np.uint8)
        name = f"{number}.png" if number % 4 == 3 else f"{number}.jpg"
        cv2.imwrite(str(folder / name), cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC))
        rows.append(f"{name},{number}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder


PALETTE = ((0, 0, 0), (255, 0, 0), (0, 255, 0), (64, 128, 192))


@pytest.fixture(scope="session")
def palette() -> tuple[tuple[int, int, int], ...]:
    return PALETTE


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `images` and `masks` with 11 PNG files each, of several sizes; masks are colour-coded."""
    folder = tmp_path_factory.mktemp("pairs")
    rng = np.random.default_rng(1)
    colours = np.array(PALETTE, np.uint8)[:, ::-1]  # OpenCV writes blue first
    for part in ("images", "masks"):
        (folder / part).mkdir()
    for number in range(11):
        size = (40 + number % 3, 50 + number % 2)
        cv2.imwrite(str(folder / "images" / f"{number:02}.png"), rng.integers(0, 256, (*size, 3), np.uint8))
        cv2.imwrite(str(folder / "masks" / f"{number:02}.png"), colours[rng.integers(0, len(colours), size)])
    return folder


class Elsewhere(LoaderConfig):
    """Has settings and no loader: its workers run on other cores than the training, as a plugin's may.

    It is known under its name only within the fixture `elsewhere`: other tests list all loaders.
    """

    kind: Literal["elsewhere"]  # without a default: a class with one registers itself for the whole process
    works_elsewhere: ClassVar[bool] = True
    workers: int
    queue_size: int = 8

    def worker_count(self) -> int:
        return self.workers

    def threads(self, cores: int) -> int:
        return 0

    def buffered_batches(self) -> int:
        return self.queue_size + 2 * self.workers

    def shares_lock(self) -> bool:
        return self.workers == 1


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], PipelineConfig]:
    """Make a loader known whose workers run on other cores; return a function from workers to a configuration of it."""
    list(LOADERS)  # the plugins are found
    monkeypatch.setitem(LOADERS._plugins, "elsewhere", Elsewhere)
    return lambda workers: to_config({"loader": "elsewhere", "elsewhere.workers": workers})
