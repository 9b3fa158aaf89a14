"""What goes wrong under a loader, and that it ends in a clear error and leaves nothing behind."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import BadSampleError, ConfigError, DataError, LoaderError, OpError, WorkerDiedError
from autopipe.pipeline.batching import process, streaming
from autopipe.pipeline.batching.process import Nursery
from autopipe.pipeline.config import LoaderConfig
from autopipe.pipeline.devices.feed import TimedLoader
from autopipe.pipeline.loader import Recipe
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import Batch, FieldKind
from tests.fakes import consumers
from tests.fakes.commands import children, environment, python, succeeded
from tests.fakes.damage import empty, truncate

pytestmark = pytest.mark.slow

OWN = [
    ap.Threads(workers=2, queue_size=2),
    ap.Processes(workers=2, queue_size=2),
    ap.Threads(workers=2, queue_size=2, read_ahead=8),
    ap.Processes(workers=2, queue_size=2, read_ahead=8),
]
TF_DATA = [ap.TfData(num_parallel_calls=2, prefetch=2), ap.TfData(num_parallel_calls=2, prefetch=2, read_ahead=8)]
PROCESSES = ap.Processes(workers=2, queue_size=2)
GONE_SECONDS = 30


def workload(folder: Path, function: Callable[..., Any] | None = None, **changes: Any) -> ap.Workload:
    ops = [ap.Decode(), ap.Resize(16, 16), *([] if function is None else [ap.Map(function)]), ap.RandomCrop(8, 8)]
    return ap.Workload(data=ap.Table(folder / "labels.csv"), **{"ops": ops, "batch_size": 4, **changes})


def opened(work: ap.Workload, loader: LoaderConfig, **settings: Any) -> ap.Loader:
    return ap.build_loader(work, ap.PipelineConfig(loader=loader, **settings))


def labels(batches: Iterator[Batch]) -> list[int]:
    return [int(label) for _, y in batches for label in y]


def copies(batches: Iterator[Batch]) -> list[NDArray[Any]]:
    return [x.copy() for x, _ in batches]


def wait_for(marker: Path, seconds: float = GONE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not marker.exists():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def gone(processes: list[psutil.Process]) -> bool:
    _, left = psutil.wait_procs(processes, timeout=GONE_SECONDS)
    return not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


# ---------------------------------------------------------------- workers that die


def test_a_killed_worker_is_replaced_and_its_batch_delivered_once_in_order(photos: Path, tmp_path: Path) -> None:
    marker, here = str(tmp_path / "died"), os.getpid()

    def dies_once(image: NDArray[Any]) -> NDArray[Any]:
        if os.getpid() == here:  # while the ops are tried out
            return image
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return image
        os.kill(os.getpid(), signal.SIGKILL)
        return image

    with opened(workload(photos, lambda image: image), ap.Threads(workers=1)) as loader:
        expected = copies(loader.batches(0))
    with opened(workload(photos, dies_once), PROCESSES) as loader:
        found = copies(loader.batches(0))
    assert Path(marker).exists()
    np.testing.assert_array_equal(np.concatenate(expected), np.concatenate(found))


def test_idle_workers_that_are_killed_are_replaced_and_counted_by_whoever_watches(photos: Path) -> None:
    with opened(workload(photos), PROCESSES) as loader:
        watched = TimedLoader(loader)
        before = copies(loader.batches(0, last=True))
        workers = children()[1:]
        assert watched.lost_workers() == 0
        for each in workers:
            each.kill()
        np.testing.assert_array_equal(np.concatenate(before), np.concatenate(copies(loader.batches(0))))
        assert 1 <= watched.lost_workers() <= len(workers)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"SIGKILL 3 times.* 0, 1, 2, 3 of epoch 0"),
        (lambda: os._exit(3), r"exit status 3, 3 times.*os\._exit"),  # and not our own kill
    ],
    ids=["killed", "exits"],
)
def test_three_deaths_on_a_batch_fail_and_name_their_cause(photos: Path, end: Callable[[], object], said: str) -> None:
    here = os.getpid()

    def dies(image: NDArray[Any]) -> NDArray[Any]:
        if os.getpid() != here:
            end()
        return image

    work = workload(photos, dies, shuffle=False)
    with opened(work, PROCESSES) as loader, pytest.raises(WorkerDiedError, match=said):
        next(loader.batches(0))


@pytest.mark.parametrize("loader", [PROCESSES, ap.Threads(workers=1)])
def test_close_returns_although_an_op_does_not(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: LoaderConfig
) -> None:
    monkeypatch.setattr(streaming, "_PATIENCE_SECONDS", 0.1)
    marker, leave, here = tmp_path / "hangs", tmp_path / "leave", os.getpid()
    (tmp_path / "tried").touch()  # while the ops are tried out

    def hangs(image: NDArray[Any]) -> NDArray[Any]:
        if os.getpid() != here or not (tmp_path / "tried").exists():
            marker.touch()
            wait_for(leave, seconds=600)
        return image

    made = opened(workload(photos, hangs), loader)
    (tmp_path / "tried").unlink()
    caught: list[BaseException] = []

    def consume() -> None:
        try:
            next(made.batches(0))
        except LoaderError as error:
            caught.append(error)

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    wait_for(marker)
    nurseries = children()
    made.close()
    leave.touch()
    consumer.join(GONE_SECONDS)
    assert "closed" in str(caught[0])
    assert gone(nurseries)


class Counted:
    """A source that says when a number of its samples has been read."""

    def __init__(self) -> None:
        self.wanted: int | None = None
        self.reached = threading.Event()
        self._read: list[int] = []

    def __len__(self) -> int:
        return 400

    def read(self, index: int) -> NDArray[np.uint8]:
        if self.wanted is not None:
            self._read.append(index)
            if len(self._read) >= self.wanted:
                self.reached.set()
        return np.full((4, 4, 3), index % 256, np.uint8)


@pytest.mark.parametrize(("read_ahead", "held"), [(8, 16), (20, 32), (1, 16)])
def test_as_many_samples_are_held_as_the_knobs_say(read_ahead: int, held: int) -> None:
    data, leave, begun = Counted(), threading.Event(), threading.Event()

    def holds(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if begun.is_set():
            assert leave.wait(GONE_SECONDS)
        return image

    knobs = ap.Threads(workers=2, queue_size=2, read_ahead=read_ahead)
    assert knobs.samples_ahead(batch_size=4) == held
    with opened(ap.Workload(data=data, ops=[ap.Map(holds)], batch_size=4), knobs) as made:
        data.wanted = held
        begun.set()
        consumer = threading.Thread(target=lambda: list(made.batches(0, last=True)))
        consumer.start()
        assert data.reached.wait(GONE_SECONDS)
        assert len(data._read) == held
        leave.set()
        consumer.join(GONE_SECONDS)
    assert sorted(data._read) == list(range(400))


def test_processes_read_as_many_samples_at_a_time_as_the_knob_says(monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[int] = []
    fork = Nursery.fork

    def noted(nursery: Nursery, channel: socket.socket, number: int) -> int:
        readers.append(number)
        return fork(nursery, channel, number)

    monkeypatch.setattr(Nursery, "fork", noted)
    opened(ap.Workload(data=Large(), ops=[], batch_size=4), ap.Processes(workers=3, read_ahead=4)).close()
    assert sorted(readers) == [1, 1, 2]


class Large:
    """A source that says that its samples are large, as they are read."""

    def __len__(self) -> int:
        return 40

    def read(self, index: int) -> NDArray[np.uint8]:
        return np.full((4, 4, 3), index, np.uint8)

    def mean_bytes(self) -> float:
        return 10e6


@pytest.mark.parametrize(
    ("loader", "plain"),
    [
        (ap.Threads(workers=2, read_ahead=8), ap.Threads(workers=2)),
        (ap.Processes(workers=2, read_ahead=8), ap.Processes(workers=2)),
        (ap.TfData(num_parallel_calls=2, read_ahead=8), ap.TfData(num_parallel_calls=2)),
    ],
)
def test_samples_read_ahead_count_in_the_memory_that_a_loader_needs(
    loader: LoaderConfig, plain: LoaderConfig, this_machine: Callable[..., None]
) -> None:
    this_machine(free_bytes=10**8)
    work = ap.Workload(data=Large(), ops=[], batch_size=4)
    with pytest.raises(LoaderError, match=r"152.6 MiB of samples read ahead"):
        opened(work, loader)
    opened(work, plain).close()


def test_a_worker_that_cannot_begin_says_why(photos: Path) -> None:
    here = os.getpid()

    class Homesick:
        def __reduce__(self) -> tuple[object, ...]:
            return Homesick, ()

        def __init__(self) -> None:
            if os.getpid() != here:
                raise RuntimeError("only at home")

        def __call__(self, image: NDArray[Any]) -> NDArray[Any]:
            return image

    with opened(workload(photos, Homesick()), PROCESSES) as loader, pytest.raises(LoaderError, match="only at home"):
        next(loader.batches(0))


def test_processes_that_cannot_all_be_started_are_told_and_end(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    fork = Nursery.fork

    def only_one(nursery: Nursery, *arguments: Any) -> int:
        if started:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append(fork(nursery, *arguments))
        return started[0]

    monkeypatch.setattr(Nursery, "fork", only_one)
    with pytest.raises(LoaderError, match=r"could not be started: .*unavailable\. Use fewer workers"):
        opened(workload(photos), PROCESSES)
    assert not psutil.pid_exists(started[0])
    assert not children()


@contextlib.contextmanager
def first_of_a_container() -> Iterator[None]:
    """Have this process get the orphans below it, whose ends nobody but their parent takes notice of."""
    library = ctypes.CDLL(None, use_errno=True)
    assert library.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    library.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    for each in psutil.Process().children():
        if each.status() == psutil.STATUS_ZOMBIE:
            os.waitpid(each.pid, 0)


@contextlib.contextmanager
def with_ends_ignored() -> Iterator[None]:
    """Ignore the ends of children, as a worker of Ray does."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


PR_SET_CHILD_SUBREAPER = 36


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", [contextlib.nullcontext, first_of_a_container, with_ends_ignored])
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("with_nursery", [True, False])
def test_killed_workers_are_replaced_also_with_their_nursery(
    place: Callable[[], contextlib.AbstractContextManager[None]],
    workers: int,
    with_nursery: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config = ap.Processes(workers=workers, queue_size=1)
    with place(), opened(ap.Workload(data=Large(), ops=[], batch_size=1), config) as loader:
        batches = loader.batches(0, last=True)
        made = [next(batches)]
        nursery, *killed = children()
        killed += [nursery] * with_nursery
        for each in killed:
            each.kill()
        made += batches
        assert 1 <= loader.lost_workers() <= workers
    assert sorted(int(x[0, 0, 0, 0]) for x, _ in made) == list(range(40))
    assert gone([nursery, *killed])
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_a_loader_is_closed_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = opened(ap.Workload(data=Large(), ops=[], batch_size=4), ap.Processes(workers=3))
    started = children()
    monkeypatch.setattr(process, "time", SimpleNamespace(sleep=lambda seconds: signal.raise_signal(signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt):
        loader.close()
    monkeypatch.undo()
    assert len(started) == 4
    assert gone(started)


def test_a_nursery_that_cannot_be_started_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made = socket.socketpair

    def pair(*kind: Any) -> Any:
        if sys._getframe(1).f_code is Nursery._start.__code__:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return made(*kind)

    monkeypatch.setattr(socket, "socketpair", pair)
    gc.collect()
    before = psutil.Process().num_fds()
    with pytest.raises(LoaderError, match="Too many open files"):
        opened(ap.Workload(data=Large(), ops=[], batch_size=4), ap.Processes(workers=1))
    gc.collect()
    assert psutil.Process().num_fds() == before


@pytest.mark.parametrize("place", [None, "", "folder"], ids=["not on the path", "as in a notebook", "as in a trial"])
def test_worker_processes_run_no_module_of_the_users_in_place_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str | None
) -> None:
    (tmp_path / "socket.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    if place is not None:
        monkeypatch.syspath_prepend(place and tmp_path)
    with opened(ap.Workload(data=Large(), ops=[], batch_size=4), ap.Processes(workers=1)) as loader:
        assert len(list(loader.batches(0, last=True))) == 10


def test_what_keeps_worker_processes_from_starting_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "socket.py").write_text("raise RuntimeError('no socket of mine')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # where even Python's own modules are looked for first
    said = r"the process that starts them ended with exit status 1:\n.*RuntimeError: no socket of mine"
    with pytest.raises(LoaderError, match=f"(?s){said}") as raised:
        opened(ap.Workload(data=Large(), ops=[], batch_size=4), ap.Processes(workers=1))
    assert "limits" not in str(raised.value)
    assert not children()


def test_a_worker_that_is_about_to_end_has_no_status_yet_and_one_of_a_nursery_before_is_told_as_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a process whose main thread has ended before the others, /proc says that it is a zombie, and `waitpid` not."""
    workload = ap.Workload(data=Large(), ops=[], batch_size=1)
    nursery = Nursery(Recipe.of(workload, make_plan(workload)), None)
    nursery._channel = socket.socket()
    nursery._forks.add(2**22 + 1)  # no process has these numbers
    monkeypatch.setattr(process, "ended", lambda channel, pid: None)
    assert [nursery.ended(pid) for pid in (2**22 + 1, 2**22 + 2)] == [None, -signal.SIGKILL]
    nursery._channel.close()


def test_a_worker_that_answers_in_time_is_not_asked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ended = list[int](), Nursery.ended

    def counted(nursery: Nursery, pid: int) -> int | None:
        asked.append(pid)
        return ended(nursery, pid)

    monkeypatch.setattr(Nursery, "ended", counted)
    with opened(ap.Workload(data=Large(), ops=[], batch_size=1), ap.Processes(workers=1)) as loader:
        batches = loader.batches(0, last=True)
        next(batches)  # the process has started
        asked.clear()
        made = len(list(batches))
    assert len(asked) < made // 2  # asked only where a second passed without an answer


def test_workers_do_not_share_the_random_numbers_of_numpy() -> None:
    class Drawn(Large):
        def read(self, index: int) -> NDArray[np.uint8]:
            return np.random.randint(0, 256, (4, 4, 3)).astype(np.uint8)

    with opened(ap.Workload(data=Drawn(), ops=[], batch_size=4), ap.Processes(workers=3)) as loader:
        images = [bytes(image) for x, _ in loader.batches(0, last=True) for image in np.asarray(x)]
    assert len(set(images)) == 40


def test_threads_that_cannot_all_be_started_are_told_of_and_end(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    begin = threading.Thread.start

    def not_the_second(thread: threading.Thread) -> None:
        if thread.name == "autopipe-1":
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", not_the_second)
    with pytest.raises(LoaderError, match=r"2 workers need a thread each.*can't start new thread\. Use fewer workers"):
        opened(workload(photos), ap.Threads(workers=2, queue_size=2))
    assert not [each.name for each in set(threading.enumerate()) - before if each.name.startswith("autopipe-")]


class Ends:
    """A source, and a function, that ends its worker in one sample."""

    x_kind = FieldKind.IMAGE

    def __init__(self, error: type[BaseException], place: str) -> None:
        self._error = error
        self._place = place

    def __len__(self) -> int:
        return 23

    def read(self, index: int) -> NDArray[np.uint8]:
        if self._place == "read" and index == 9:
            raise self._error(3)
        return np.full((16, 16, 3), index, np.uint8)

    def function(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if self._place == "op" and image[0, 0, 0] == 9:
            raise self._error(3)
        return image


@pytest.mark.parametrize(
    ("error", "place"),
    [(SystemExit, "read"), (KeyboardInterrupt, "op"), (GeneratorExit, "read"), (StopIteration, "op")],
)
@pytest.mark.parametrize("loader", [*OWN, *TF_DATA])
def test_whatever_ends_a_worker_is_raised(loader: LoaderConfig, error: type[BaseException], place: str) -> None:
    data = Ends(error, place)
    work = ap.Workload(data=data, ops=[ap.Map(data.function), ap.RandomCrop(8, 8)], batch_size=4)
    with (
        opened(work, loader) as made,
        pytest.raises((ap.AutopipeError, KeyboardInterrupt), match=f"{error.__name__}: 3|^3$"),
    ):
        list(made.batches(0))


@pytest.mark.parametrize("loader", [*OWN, *TF_DATA])
def test_a_forked_child_cannot_read_and_leaves_it_as_it_is(photos: Path, tmp_path: Path, loader: LoaderConfig) -> None:
    end = """
        child = os.fork()
        if child == 0:
            for attempt in (batches, loader.batches(1)):
                try:
                    next(attempt)
                except Exception as error:
                    print(type(error).__name__, error, os.getpid(), flush=True)
            loader.close()
            {bye}(7)
        _, status = os.waitpid(child, 0)
        print(os.getpid(), os.waitstatus_to_exitcode(status), sum(len(y) for _, y in batches))
    """
    # TensorFlow itself hangs where a forked child ends by itself and not as those of multiprocessing do.
    end = end.replace("{bye}", "sys.exit" if loader in OWN else "os._exit")
    (tmp_path / "consumer.py").write_text(consumers.script(photos, loader, end))
    *_, one, other, end = succeeded(python("-W", "ignore", tmp_path / "consumer.py")).stdout.splitlines()
    parent, status, samples = end.split()
    for line in (one, other):
        child = line.split()[-1]
        assert f"opened it, {parent}, but process {child}" in line
    assert (status, samples) == ("7", "19")


# ---------------------------------------------------------------- ops and samples that fail


def boom(image: NDArray[Any]) -> NDArray[Any]:
    if image[0, 0, 0] == 255:  # the sample that `with_white` makes white
        raise RuntimeError("white images explode")
    return image


@pytest.fixture
def damaged(photos: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(photos, tmp_path / "photos"))


@pytest.mark.parametrize("keep", ["none", "memory"])
@pytest.mark.parametrize("loader", [*OWN, *TF_DATA])
def test_an_op_that_raises_is_named_with_sample_and_traceback(damaged: Path, loader: LoaderConfig, keep: str) -> None:
    cv2.imwrite(str(damaged / "9.jpg"), np.full((40, 60, 3), 255, np.uint8))
    with opened(workload(damaged, boom), loader, keep=keep) as made, pytest.raises(OpError) as caught:
        labels(made.batches(0))
    assert "Map on sample 9" in str(caught.value)
    assert str(damaged / "9.jpg") in str(caught.value)
    shown = "".join(traceback.format_exception(caught.value))
    assert "in boom" in shown
    assert "white images explode" in shown


def _claim_much(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = (20_000).to_bytes(2, "big") * 2
    path.write_bytes(data)


def _put(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def instead(path: Path) -> None:
        path.unlink()
        make(path)

    return instead


def _clear(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)


# Damage within an image is tests/contract/test_loaders.py's.
DAMAGE = {"gone": Path.unlink, "claims much": _claim_much, "a pipe": _put(os.mkfifo), "a folder": _put(Path.mkdir)}


# How each damage is found is the kernel's, which is the same for all loaders.
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_any_bad_image_is_named_or_may_be_skipped_and_is_then_replaced_alike_everywhere(
    damaged: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path, found = damaged / "9.jpg", []
    content, strict = path.read_bytes(), workload(damaged)
    for number, loader in enumerate(OWN):
        log = tmp_path / f"{number}.jsonl"
        work = workload(damaged, on_bad_sample="skip", bad_sample_log=str(log))
        damage(path)
        with opened(work, loader) as made:
            found.append(labels(made.batches(0)) + labels(made.batches(1)))
        (row,) = map(json.loads, log.read_text().splitlines())
        assert (row["index"], row["replaced_by"]) == (9, 10)
        assert "9.jpg" in log.read_text()
        if loader is OWN[0]:
            with opened(strict, loader) as made, pytest.raises(BadSampleError, match=r"sample 9 .*9\.jpg"):
                labels(made.batches(0))
        _clear(path)
        path.write_bytes(content)
    assert all(each == found[0] for each in found)
    assert sorted([*range(9), 10, *range(10, 23)] * 2) == sorted(found[0])


@pytest.mark.parametrize("loader", OWN)
def test_an_epoch_with_too_many_bad_samples_fails(damaged: Path, tmp_path: Path, loader: LoaderConfig) -> None:
    work = workload(damaged, on_bad_sample="skip", bad_sample_log=str(tmp_path / "log"))
    for number in (4, 9):
        empty(damaged / f"{number}.jpg")
    with opened(work, loader) as made, pytest.raises(DataError, match="more than the 1 "):
        labels(made.batches(0))


@pytest.mark.parametrize("loader", TF_DATA)
def test_loaders_that_cannot_count_bad_samples_refuse_to_skip_them(photos: Path, loader: LoaderConfig) -> None:
    with pytest.raises(ConfigError, match="threads"):
        opened(workload(photos, on_bad_sample="skip"), loader)


def test_an_error_inside_a_native_dataset_is_traced_back_to_its_sample(damaged: Path) -> None:
    import tensorflow as tf

    work = workload(damaged)
    truncate(damaged / "9.jpg")
    with opened(work, ap.TfData(num_parallel_calls=2, prefetch=1)) as loader:
        with pytest.raises(tf.errors.OpError) as caught:
            list(loader.native_dataset(0, 2))
        assert "9.jpg" in str(loader.diagnose(caught.value))


# ---------------------------------------------------------------- ends

ENDS = {
    "interrupt": "signal.raise_signal(signal.SIGINT)",
    "terminate": "signal.raise_signal(signal.SIGTERM)",
    "kill": "signal.raise_signal(signal.SIGKILL)",
    "exception": "raise ValueError('in the consumer')",
    "close twice": "loader.close(); loader.close()",
    "dropped": "del batches, loader; assert not psutil.Process().children(), psutil.Process().children()",
    "never closed": "pass",
    "exit": "sys.exit(3)",
}


# tf.data has no process and no block to leave, and takes long to import: for it, the ends that can find it at work.
HOW = [
    *((loader, end) for loader in OWN[:2] for end in ENDS),
    *((OWN[2], end) for end in ("interrupt", "dropped", "never closed")),
    *((TF_DATA[0], end) for end in ("interrupt", "exception", "never closed")),
]


@pytest.mark.parametrize(("loader", "end"), HOW)
def test_nothing_is_left_however_the_process_ends(photos: Path, tmp_path: Path, loader: LoaderConfig, end: str) -> None:
    script = tmp_path / "consumer.py"
    script.write_text(consumers.script(photos, loader, ENDS[end], keep="memory"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command, pipe, variables = [sys.executable, str(script)], subprocess.PIPE, environment(TMPDIR=str(scratch))
    with subprocess.Popen(command, env=variables, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        family = [psutil.Process(int(pid)) for pid in line.split() if psutil.pid_exists(int(pid))]
        errors = process.stderr.read()  # ends when the last holder of it does: workers that live on would keep it open
        process.wait(GONE_SECONDS)
    assert line, errors
    assert gone(family)
    assert list(scratch.iterdir()) == []
    if end in ("close twice", "dropped", "never closed"):
        assert (process.returncode, errors.count("Traceback")) == (0, 0)


FIT = """
import signal, threading, time
import keras
import numpy as np
import autopipe as ap

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins without it

class Slow:
    def __len__(self): return 400
    def read(self, index):
        time.sleep(0.02 if fitting.is_set() else 0)
        return np.zeros(4, np.float32), np.float32(0)

def build_model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

class Tells(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        print("a batch", flush=True)

fitting = threading.Event()
if __name__ == "__main__":
    workload = ap.Workload(data=Slow(), ops=[], batch_size=4, model=build_model)
    with ap.build_trainer(workload, ap.PipelineConfig(loader={loader})) as trainer:
        fitting.set()
        trainer.fit(50, verbose=0, callbacks=[Tells()])
"""


@pytest.mark.timeout(200)
@pytest.mark.parametrize("loader", [OWN[0], OWN[2], *TF_DATA])
def test_ctrl_c_in_a_fit_is_ctrl_c(tmp_path: Path, loader: LoaderConfig) -> None:
    script = tmp_path / "train.py"
    script.write_text(FIT.format(loader=consumers.code(loader)))
    command, pipe = [sys.executable, str(script)], subprocess.PIPE
    with subprocess.Popen(command, env=environment("tensorflow"), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        began = process.stdout.readline()  # Ctrl-C comes after the first batch
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=GONE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
    assert began == "a batch\n", errors
    assert process.returncode == -signal.SIGINT, errors
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert "LoaderError" not in errors


# ---------------------------------------------------------------- where it cannot run


@pytest.mark.parametrize("loader", [*OWN, *TF_DATA])
def test_too_little_memory_is_refused(photos: Path, loader: LoaderConfig, this_machine: Callable[..., None]) -> None:
    this_machine(free_bytes=1000)
    before = children()
    with pytest.raises(LoaderError, match=r"needs [\d.]+ [KM]iB of memory .* 1000 B are free"):
        opened(workload(photos), loader, keep="memory")
    assert before == children()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("loader", [*OWN[:3], *TF_DATA])
def test_epoch_after_epoch_memory_files_and_threads_stay_as_they_were(photos: Path, loader: LoaderConfig) -> None:
    process, epochs = psutil.Process(), 300
    with opened(workload(photos, batch_size=12), loader) as made:

        def after(epochs: range) -> tuple[int, int, int, int]:
            for epoch in epochs:
                for _ in made.batches(epoch):
                    pass
            tree = [process, *process.children()]
            return (
                sum(one.memory_info().rss for one in tree),
                sum(one.num_fds() for one in tree),
                threading.active_count(),
                len(tree),
            )

        early, late = after(range(epochs // 3)), after(range(epochs // 3, epochs))
    assert late[0] - early[0] < 12 << 20
    # A file that stays open in each of 200 epochs would make 200; those that are being read at this moment come and go.
    assert late[1] <= early[1] + 2 + getattr(loader, "read_ahead", 0)
    # So would a thread that stays; those of the last epoch may be ending at this moment.
    assert late[2] <= early[2] + 2 * (loader.worker_count() or 1) + 2
    assert late[3] == early[3]
