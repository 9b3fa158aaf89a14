"""What goes wrong under a loader, and that it ends in a clear error and leaves nothing behind."""

import contextlib
import ctypes
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import BadSampleError, ConfigError, LoaderError, OpError, WorkerDiedError
from autopipe.pipeline.batching import process, streaming
from autopipe.pipeline.batching.process import Nursery
from autopipe.pipeline.config import LoaderConfig
from autopipe.pipeline.devices.feed import TimedLoader
from autopipe.workload.sample import Batch
from tests.fakes import commands
from tests.fakes.commands import children, environment, python, succeeded
from tests.fakes.damage import truncate
from tests.fakes.sources import Made

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
    return ap.make_loader(work, ap.PipelineConfig(loader=loader, **settings))


def labels(batches: Iterator[Batch]) -> list[int]:
    return [int(label) for _, y in batches for label in y]


def wait_for(marker: Path, seconds: float = GONE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not marker.exists():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def gone(processes: list[psutil.Process]) -> bool:
    _, left = psutil.wait_procs(processes, timeout=GONE_SECONDS)
    return not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


def number(index: int) -> NDArray[np.uint8]:
    return np.full((16, 16, 3), index, np.uint8)


def numbered(loader: LoaderConfig, batch_size: int = 4, make: Callable[[int], Any] = number) -> ap.Loader:
    return opened(ap.Workload(data=Made(40, make), ops=[], batch_size=batch_size), loader)


KILLED = (lambda: os.kill(os.getpid(), signal.SIGKILL), r"SIGKILL 3 times.* 0, 1, 2, 3 of epoch 0")
EXITED = (lambda: os._exit(3), r"exit status 3, 3 times.*os\._exit")  # and not our own kill


@pytest.mark.parametrize(("end", "said"), [KILLED, EXITED])
def test_three_deaths_on_a_batch_fail_and_name_their_cause(photos: Path, end: Callable[[], object], said: str) -> None:
    here = os.getpid()
    work = workload(photos, lambda image: image if os.getpid() == here else end(), shuffle=False)
    with opened(work, PROCESSES) as loader, pytest.raises(WorkerDiedError, match=said):
        next(loader.batches(0))


@pytest.mark.parametrize("loader", [PROCESSES, ap.Threads(workers=1)])
def test_close_returns_although_an_op_does_not(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: LoaderConfig
) -> None:
    monkeypatch.setattr(streaming, "_PATIENCE_SECONDS", 0.1)
    begun, hanging, leave = (tmp_path / name for name in ("begun", "hanging", "leave"))

    def hangs(image: NDArray[Any]) -> NDArray[Any]:
        if begun.exists():
            hanging.touch()
            wait_for(leave, seconds=600)
        return image

    made = opened(workload(photos, hangs), loader)
    begun.touch()
    with ThreadPoolExecutor(1) as consumer:
        read = consumer.submit(lambda: list(made.batches(0)))
        wait_for(hanging)
        started = children()
        made.close()
        leave.touch()
        with pytest.raises(LoaderError, match="closed"):
            read.result(GONE_SECONDS)
    assert gone(started)


class Large(Made):
    """Says that its samples are large, as they are read."""

    def mean_bytes(self) -> float:
        return 10e6


@pytest.mark.parametrize(("plain", "ahead"), [*zip(OWN[:2], OWN[2:], strict=True), TF_DATA])
def test_samples_read_ahead_count_in_the_memory_that_a_loader_needs(
    plain: LoaderConfig, ahead: LoaderConfig, this_machine: Callable[..., None]
) -> None:
    knobs = [ap.Threads(workers=2, queue_size=2, read_ahead=number) for number in (8, 20, 1)]
    assert [each.samples_ahead(batch_size=4) for each in knobs] == [16, 32, 16]
    this_machine(free_bytes=10**8)
    work = ap.Workload(data=Large(40, number), ops=[], batch_size=4)
    with pytest.raises(LoaderError, match=r"152.6 MiB of samples read ahead"):
        opened(work, ahead)
    opened(work, plain).close()


def test_a_worker_that_cannot_begin_says_why(photos: Path) -> None:
    here = os.getpid()

    class Homesick:
        def __init__(self) -> None:
            if os.getpid() != here:
                raise RuntimeError("only at home")

        def __reduce__(self) -> tuple[object, ...]:
            return Homesick, ()

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
    library, child_subreaper = ctypes.CDLL(None), 36
    assert library.prctl(child_subreaper, 1, 0, 0, 0) == 0
    yield
    library.prctl(child_subreaper, 0, 0, 0, 0)
    for each in psutil.Process().children():
        if each.status() == psutil.STATUS_ZOMBIE:
            os.waitpid(each.pid, 0)


@contextlib.contextmanager
def with_ends_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as a worker of Ray does
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("place", [contextlib.nullcontext, first_of_a_container, with_ends_ignored])
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("with_nursery", [True, False])
def test_killed_workers_are_replaced_also_with_their_nursery_and_batches_come_once_in_order(
    place: Callable[[], contextlib.AbstractContextManager[None]], workers: int, with_nursery: bool, capfd: Any
) -> None:
    with numbered(ap.Threads(workers=1), batch_size=1) as loader:
        wanted = [int(x[0, 0, 0, 0]) for x, _ in loader.batches(0, last=True)]
    with place(), numbered(ap.Processes(workers=workers, queue_size=1), batch_size=1) as loader:
        watched = TimedLoader(loader)
        batches = loader.batches(0, last=True)
        made = [next(batches)[0].copy()]
        nursery, *killed = children()
        killed += [nursery] * with_nursery
        assert watched.lost_workers() == 0
        for each in killed:
            each.kill()
        made += [x.copy() for x, _ in batches]
        assert 1 <= watched.lost_workers() <= workers
    assert [int(x[0, 0, 0, 0]) for x in made] == wanted
    assert sorted(wanted) == list(range(40))
    assert gone([nursery, *killed])
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_a_loader_is_closed_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = numbered(ap.Processes(workers=3))
    started = children()
    monkeypatch.setattr(process, "time", SimpleNamespace(sleep=lambda seconds: signal.raise_signal(signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt):
        loader.close()
    monkeypatch.undo()
    assert len(started) == 4
    assert gone(started)


@pytest.mark.parametrize("place", [None, "", "folder"], ids=["not on the path", "as in a notebook", "as in a trial"])
def test_worker_processes_run_no_module_of_the_users_in_place_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str | None
) -> None:
    (tmp_path / "socket.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    if place is not None:
        monkeypatch.syspath_prepend(place and tmp_path)
    with numbered(ap.Processes(workers=1)) as loader:
        assert len(list(loader.batches(0, last=True))) == 10


def test_what_keeps_worker_processes_from_starting_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "socket.py").write_text("raise RuntimeError('no socket of mine')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # where even Python's own modules are looked for first
    said = r"(?s)the process that starts them ended with exit status 1:\n.*RuntimeError: no socket of mine"
    with pytest.raises(LoaderError, match=said):
        numbered(ap.Processes(workers=1))
    assert not children()


def test_workers_do_not_share_the_random_numbers_of_numpy() -> None:
    def drawn(index: int) -> NDArray[np.uint8]:
        return np.random.randint(0, 256, (4, 4, 3)).astype(np.uint8)

    with numbered(ap.Processes(workers=3), make=drawn) as loader:
        assert len({bytes(image) for x, _ in loader.batches(0, last=True) for image in np.asarray(x)}) == 40


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


@pytest.mark.parametrize(
    ("error", "place"),
    [(SystemExit, "read"), (KeyboardInterrupt, "op"), (GeneratorExit, "read"), (StopIteration, "op")],
)
@pytest.mark.parametrize("loader", [*OWN, *TF_DATA])
def test_whatever_ends_a_worker_is_raised(loader: LoaderConfig, error: type[BaseException], place: str) -> None:
    def read(index: int) -> NDArray[np.uint8]:
        if place == "read" and index == 9:
            raise error(3)
        return number(index)

    def ends(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if place == "op" and image[0, 0, 0] == 9:
            raise error(3)
        return image

    work = ap.Workload(data=Made(40, read), ops=[ap.Map(ends)], batch_size=4)
    said = pytest.raises((ap.AutopipeError, KeyboardInterrupt), match=f"{error.__name__}: 3|^3$")
    with opened(work, loader) as made, said:
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
    (tmp_path / "consumer.py").write_text(commands.script(photos, loader, end))
    *_, one, other, end = succeeded(python("-W", "ignore", tmp_path / "consumer.py")).stdout.splitlines()
    parent, status, samples = end.split()
    for line in (one, other):
        child = line.split()[-1]
        assert f"opened it, {parent}, but process {child}" in line
    assert (status, samples) == ("7", "19")


def boom(image: NDArray[Any]) -> NDArray[Any]:
    if image[0, 0, 0] == 255:
        raise RuntimeError("white images explode")
    return image


@pytest.fixture
def damaged(photos: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(photos, tmp_path / "photos"))


@pytest.mark.parametrize("keep", ["none", "memory"])
@pytest.mark.parametrize("loader", [*OWN, *TF_DATA])
def test_an_op_that_raises_is_named_with_sample_and_traceback(damaged: Path, loader: LoaderConfig, keep: str) -> None:
    cv2.imwrite(str(damaged / "9.jpg"), np.full((40, 60, 3), 255, np.uint8))
    said = f"Map on sample 9 .*{damaged / '9.jpg'}"
    with opened(workload(damaged, boom), loader, keep=keep) as made, pytest.raises(OpError, match=said) as caught:
        labels(made.batches(0))
    shown = "".join(traceback.format_exception(caught.value))
    assert re.search("in boom.*white images explode", shown, re.DOTALL)


def claim_much(path: Path, content: bytes) -> None:
    at = content.index(b"\xff\xc0") + 5
    path.write_bytes(content[:at] + (20_000).to_bytes(2, "big") * 2 + content[at + 4 :])


# Damage within an image is tests/contract/test_loaders.py's.
DAMAGE: dict[str, Callable[[Path, bytes], Any]] = {
    "gone": lambda path, _: None,
    "claims much": claim_much,
    "a pipe": lambda path, _: os.mkfifo(path),
    "a folder": lambda path, _: path.mkdir(),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_any_bad_image_is_named_or_may_be_skipped_and_is_then_replaced_alike_everywhere(
    damaged: Path, tmp_path: Path, damage: Callable[[Path, bytes], None]
) -> None:
    path, found = damaged / "9.jpg", list[list[int]]()
    strict, logs = workload(damaged), [tmp_path / f"{number}.jsonl" for number in range(len(OWN))]
    skipping = [workload(damaged, on_bad_sample="skip", bad_sample_log=str(log)) for log in logs]
    content = path.read_bytes()
    path.unlink()
    damage(path, content)
    for loader, work, log in zip(OWN, skipping, logs, strict=True):
        with opened(work, loader) as made:
            found.append(labels(made.batches(0)) + labels(made.batches(1)))
        (row,) = map(json.loads, log.read_text().splitlines())
        assert (row["index"], row["replaced_by"]) == (9, 10)
        assert "9.jpg" in log.read_text()
    assert found == [found[0]] * len(OWN)
    assert sorted([*range(9), 10, *range(10, 23)] * 2) == sorted(found[0])
    with opened(strict, OWN[0]) as made, pytest.raises(BadSampleError, match=r"sample 9 .*9\.jpg"):
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
    script.write_text(commands.script(photos, loader, ENDS[end], keep="memory"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command, pipe, variables = [sys.executable, str(script)], subprocess.PIPE, environment(TMPDIR=str(scratch))
    with subprocess.Popen(command, env=variables, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        family = [psutil.Process(int(pid)) for pid in line.split() if psutil.pid_exists(int(pid))]
        _, errors = process.communicate()  # ends when the last holder does: workers that live on would keep it open
    assert line, errors
    assert gone(family)
    assert list(scratch.iterdir()) == []
    if end in ("close twice", "dropped", "never closed"):
        assert (process.returncode, errors.count("Traceback")) == (0, 0)


FIT = """
import signal, time
import keras
import numpy as np
import autopipe as ap
from tests.fakes.sources import Made

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins without it

def read(index):
    time.sleep(0.02)
    return np.zeros(4, np.float32), np.float32(0)

tells = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: print("a batch", flush=True))
if __name__ == "__main__":
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    workload = ap.Workload(data=Made(400, read), ops=[], batch_size=4, model=model)
    with ap.make_trainer(workload, ap.PipelineConfig(loader={loader})) as trainer:
        trainer.fit(50, verbose=0, callbacks=[tells])
"""


@pytest.mark.timeout(200)
@pytest.mark.parametrize("loader", [OWN[0], OWN[2], *TF_DATA])
def test_ctrl_c_in_a_fit_is_ctrl_c(tmp_path: Path, loader: LoaderConfig) -> None:
    script = tmp_path / "train.py"
    script.write_text(FIT.format(loader=commands.code(loader)))
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
    process = psutil.Process()
    with opened(workload(photos, batch_size=12), loader) as made:

        def after(epochs: range) -> tuple[int, int, int, int]:
            for epoch in epochs:
                for _ in made.batches(epoch):
                    pass
            tree = [process, *process.children()]
            memory, files = sum(one.memory_info().rss for one in tree), sum(one.num_fds() for one in tree)
            return memory, files, threading.active_count(), len(tree)

        early, late = after(range(100)), after(range(100, 300))
    assert late[0] - early[0] < 12 << 20
    # A file that stays open in each of 200 epochs would make 200; those that are being read at this moment come and go.
    assert late[1] <= early[1] + 2 + getattr(loader, "read_ahead", 0)
    # So would a thread that stays; those of the last epoch may be ending at this moment.
    assert late[2] <= early[2] + 2 * (loader.worker_count() or 1) + 2
    assert late[3] == early[3]
