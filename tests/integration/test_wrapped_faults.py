"""What goes wrong in a dataset of the user's that has an index of batches: one sentence, no hang, nothing is left."""

import ctypes
import io
import os
import platform
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np
import psutil
import pytest
import threadpoolctl

import autopipe as ap
from autopipe.errors import LoaderError, WorkerDiedError, WorkloadError
from autopipe.hardware import processes as hardware
from autopipe.measure import description
from autopipe.pipeline import wrap
from autopipe.pipeline.batching import indexed, process
from autopipe.pipeline.config import LoaderConfig
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.workload.ops.planner import make_plan
from tests.fakes.commands import children, python, succeeded

THREADS, PROCESSES = ap.Threads(workers=2, queue_size=2), ap.Processes(workers=2, queue_size=2)
KERAS = Wrapped.model_validate({"workers": 2, "use_multiprocessing": True, "max_queue_size": 10})
GONE_SECONDS = 30
pytestmark = pytest.mark.usefixtures("forked_nurseries", "no_process_left")
of_both = pytest.mark.parametrize("loader", [THREADS, PROCESSES], ids=["threads", "processes"])


class Batches(keras.utils.PyDataset):
    """Ten batches of four; `spoil` gets the index and the batch of some of them."""

    def __init__(self, spoil: Callable[[int, Any], Any] | None = None, at: int = 5, **knobs: Any) -> None:
        super().__init__(**knobs)
        self.spoil, self.at = spoil, at

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        batch = np.full((4, 2), index, np.float32), np.full(4, index)
        return self.spoil(index, batch) if self.spoil is not None and index == self.at else batch


def wrapped(dataset: Any) -> ap.Workload:
    return wrap.wrap(dataset, model=None, shuffle=False)


def opened(dataset: Any, loader: LoaderConfig) -> ap.Loader:
    return ap.make_loader(wrapped(dataset), ap.PipelineConfig(loader=loader, finish="host", device_prefetch=0))


def indices(loader: ap.Loader, epoch: int = 0) -> list[int]:
    return [int(x[0, 0]) for x, _ in loader.batches(epoch)]


def raises(index: int, batch: Any) -> Any:
    raise ValueError("no image")


PLACE = r"\(test_wrapped_faults\.py, line \d+, in raises: raise Value.*\)"
SPOILT = {
    "raises": (raises, rf"`Batches\[5\]` raised ValueError: no image {PLACE}"),
    "lies": (lambda i, b: [][i], r"`Batches\[5\]` raised IndexError: .*; `__len__` says that there are 10 batches"),
    "exits": (lambda i, b: exit(3), r"`Batches\[5\]` raised SystemExit: 3"),
    "another shape": (lambda i, b: (b[0][:, :1], b[1]), r"x is \(4, 2\) float32, but in `Batches\[5\]` it is \(4, 1\)"),
    "another dtype": (
        lambda i, b: (b[0].astype(float), b[1]),
        r"float32, but in `Batches\[5\]` it is \(4, 2\) float64",
    ),
    "ragged": (lambda i, b: (b[0], b[1][:3]), r"`Batches\[5\]` must be a batch .*there are 4 in x, 3 in y"),
    "no sample": (lambda i, b: (b[0][:0], b[1][:0]), r"x is \(4, 2\) float32, but in `Batches\[5\]` it is \(0, 2\)"),
    "no batch": (lambda i, b: None, "must give batches x"),
    "another structure": (lambda i, b: (b[0],), r"the parts of the first one, but `Batches\[5\]` has no y"),
}


# How each is found is the same for both.
@pytest.mark.parametrize(
    ("loader", "fault"), [*((THREADS, fault) for fault in SPOILT), (PROCESSES, "exits"), (PROCESSES, "raises")]
)
def test_a_bad_batch_is_named_by_its_index_where_it_comes(loader: LoaderConfig, fault: str) -> None:
    spoil, said = SPOILT[fault]
    found: list[int] = []
    with opened(Batches(spoil), loader) as made, pytest.raises(WorkloadError, match=said) as error:
        found.extend(int(x[0, 0]) for x, _ in made.batches(0))
    assert found == [0, 1, 2, 3, 4]
    assert error.value.hint or fault == "another structure"


def test_a_bad_first_or_last_batch_is_named_when_the_dataset_is_wrapped() -> None:
    for at in (0, 9):
        with pytest.raises(WorkloadError, match=rf"`Batches\[{at}\]` raised ValueError"):
            wrapped(Batches(raises, at))


@pytest.mark.parametrize("length", [0, -1, 2.5])
@pytest.mark.parametrize("base", [object, keras.utils.PyDataset])
def test_a_length_that_cannot_be_is_refused(length: Any, base: Any) -> None:
    class Bad(base):
        def __len__(self) -> Any:
            return length

        def __getitem__(self, index: int) -> Any:
            return Batches()[index]

    none = r"`Bad` holds no batch: its length is 0.*An empty folder or list"
    said = none if length == 0 else r"`Bad\.__len__` must return the number of batches, but it raised"
    with pytest.raises(WorkloadError, match=said):
        wrapped(Bad())


@of_both
def test_an_epoch_of_fewer_batches_is_refused_when_it_begins(loader: LoaderConfig) -> None:
    class Shrinking(Batches):
        count = 10

        def __len__(self) -> int:
            return self.count

        def on_epoch_end(self) -> None:
            self.count = 6

    with opened(Shrinking(), loader) as made:
        assert indices(made) == list(range(10))
        with pytest.raises(WorkloadError, match=r"as many batches in each epoch.*returned 6, and 10 are needed"):
            indices(made, 1)


def test_a_generator_is_told_how_it_gets_workers() -> None:
    with pytest.raises(WorkloadError) as error:
        wrapped(Batches()[index] for index in range(3))
    assert re.search(r"one reader.*def __getitem__\(self, i\)", str(error.value.hint), re.DOTALL)


@pytest.mark.parametrize("held", [threading.Lock(), io.BufferedReader(io.FileIO(os.devnull))], ids=["lock", "file"])
def test_what_does_not_pickle_is_named_and_leaves_threads_in_the_search_unless_they_would_move_it(held: Any) -> None:
    dataset = Batches()
    dataset.held = held
    with pytest.raises(LoaderError, match=r"`Batches\.held`, <.*>, cannot be: TypeError: cannot pickle"):
        opened(dataset, PROCESSES)
    with opened(dataset, THREADS) as made:
        assert indices(made) == list(range(10))
    workload = wrapped(dataset)
    against = {each.value: each.reason for each in description.impossible_to_feed(workload, make_plan(workload))}
    assert "`Batches.held`" in against["processes"]
    assert ("threads" in against) == isinstance(held, io.BufferedReader)  # which would move its position


def test_a_killed_worker_is_replaced_and_has_the_dataset_of_this_epoch(tmp_path: Path) -> None:
    marker, here = tmp_path / "died", os.getpid()

    class Shifting(Batches):
        shift = 0

        def __getitem__(self, index: int) -> Any:
            if index == 6 and self.shift == 100 and os.getpid() != here and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            x, y = super().__getitem__(index)
            return x + self.shift, y

        def on_epoch_end(self) -> None:
            self.shift += 100

    with opened(Shifting(), PROCESSES) as made:
        assert indices(made, 0) == list(range(10))
        assert indices(made, 1) == list(range(100, 110))
        assert made.lost_workers() == 1


def test_a_batch_that_ends_its_workers_is_named() -> None:
    said = r"exit status 3, 3 times on one batch, with `Batches\[5\]` of epoch 0"
    with opened(Batches(lambda *_: os._exit(3)), PROCESSES) as made, pytest.raises(WorkerDiedError, match=said):
        indices(made)


def test_what_a_worker_prints_is_seen_and_its_forks_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    note = tmp_path / "pid"

    def forks(index: int, batch: Any) -> Any:
        print("here I am")  # noqa: T201  # as people look for a fault
        if (child := os.fork()) == 0:
            time.sleep(600)
            os._exit(0)
        note.write_text(str(child))
        return batch

    with opened(Batches(forks), PROCESSES) as made:
        assert indices(made) == list(range(10))
        child = psutil.Process(int(note.read_text()))
    assert psutil.wait_procs([child], timeout=GONE_SECONDS)[1] == []
    assert "here I am" in capfd.readouterr().out


@pytest.mark.slow  # here and below: it has to import Keras
def test_a_process_of_keras_that_dies_is_a_deadline_and_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.getpid()

    def dies(index: int, batch: Any) -> Any:
        if os.getpid() != here:
            os._exit(1)
        return batch

    monkeypatch.setattr(indexed, "_KERAS_SECONDS", 3.0)
    said = r"gave no batch of `Batches` for 3 s\..*hangs or has died"
    with opened(Batches(dies), KERAS) as made, pytest.raises(LoaderError, match=said):
        indices(made)


@pytest.mark.slow
def test_keras_own_processes_end_with_the_loader() -> None:
    class Many(Batches):
        def __len__(self) -> int:
            return 10**6

    before = set(children())
    with opened(Many(), KERAS) as made:
        next(made.batches(0))
        family = set(children()) - before
        assert len(family) >= 4  # those that fork, read, and two workers
    left = psutil.wait_procs(family, timeout=GONE_SECONDS)[1]
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
def test_an_error_in_a_process_of_keras_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with opened(Batches(raises), KERAS) as made, pytest.raises(WorkloadError, match="raised ValueError in a process"):
        indices(made)
    assert not re.search("Traceback", capfd.readouterr().err)


class Around(Batches):
    """Its batches say what the process that makes them is like."""

    def __getitem__(self, index: int) -> Any:
        library = ctypes.CDLL(None)
        library.malloc.restype = ctypes.c_void_p
        block = library.malloc(ctypes.c_size_t(31 << 20))  # glibc maps one as large, unless it keeps freed memory
        mapped = ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value & 2
        (blas,) = {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}
        return np.array([[mapped, cv2.getNumThreads(), blas]], np.float32), np.zeros(1)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it looks into glibc's blocks")
def test_keras_own_processes_are_as_without_autopipe_but_for_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "subprocess", subprocess)  # what they are started with is what is asked
    for name in (*hardware.KEEPING, "OMP_NUM_THREADS"):  # which would be left there; the tests have set it
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    asked = KERAS.model_copy(update={"freed_memory": "kept", "library_threads": 1})
    found = []
    for loader in (KERAS, asked):
        with opened(Around(), loader) as made:
            found.append({tuple(map(float, x[0])) for x, _ in made.batches(0)})
    code = "import cv2, os; print(cv2.getNumThreads(), len(os.sched_getaffinity(0)))"
    usual = map(float, succeeded(python("-c", code)).stdout.split())
    assert found == [{(2.0, *usual)}, {(0.0, 1.0, 1.0)}]
