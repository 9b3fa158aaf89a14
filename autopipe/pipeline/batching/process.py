"""Worker processes: forked by a nursery, given batches to fill, and replaced when they die.

The nursery is a fresh process that imports what workers need and then forks one after the other: that takes
milliseconds, where a Python of its own would take half a second of a core for each worker. It runs no framework, has
one thread, and never unpickles the user's data, so a fork of it is safe. An owner and a worker talk over a socket pair,
a message a batch; memory goes by file descriptor. A worker ends when its socket closes, so none survives its owner,
however the owner ended. A nursery's arguments are descriptors: STDERR SOCKET RECIPE [CACHE].
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import logging
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import LoaderError, WorkerDiedError
from autopipe.hardware import processes
from autopipe.pipeline.batching.cache import MemoryCache, RowLayout, SharedBlock, Slot
from autopipe.pipeline.batching.indexed import WITHOUT_DEVICES, Indexed, end_with, kernel_of, settle
from autopipe.pipeline.batching.kernel import BadSample, Kernel
from autopipe.pipeline.batching.pickling import RemoteFailure, answered, pickled, unpickled
from autopipe.pipeline.loader import Recipe
from autopipe.values import count_text
from autopipe.workload.sample import Batch

# -------------------- messages
# They go over a pair of sockets that keep packets apart; a long message goes in several. Linux takes no packet above
# some 400 KiB unless its administrator has raised net.core.wmem_max, which is the numbers of 53,000 samples.


_COUNT = struct.Struct("<I")  # packets of a message, before the first
_PACKET_BYTES = 1 << 16
_MOST_DESCRIPTORS = 3  # of a message


def send(channel: socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a message, which is not empty, and file descriptors with it; raise OSError if the other end is closed."""
    first = _COUNT.pack(-(-len(message) // _PACKET_BYTES)) + message[:_PACKET_BYTES]
    if descriptors:
        socket.send_fds(channel, [first], descriptors)
    else:
        channel.send(first)
    for at in range(_PACKET_BYTES, len(message), _PACKET_BYTES):
        channel.send(message[at : at + _PACKET_BYTES])


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Return a message and its descriptors. Raise EOFError at a closed end, TimeoutError if none began in time."""
    first, descriptors, _, _ = socket.recv_fds(channel, _COUNT.size + _PACKET_BYTES, _MOST_DESCRIPTORS)
    if not first:
        raise EOFError
    (count,) = _COUNT.unpack_from(first)
    if count == 1:
        return first[_COUNT.size :], descriptors
    patience = channel.gettimeout()
    channel.settimeout(None)  # the rest is on its way
    try:
        rest = [channel.recv(_PACKET_BYTES) for _ in range(count - 1)]
    finally:
        channel.settimeout(patience)
    if not all(rest):
        raise EOFError
    return b"".join((first[_COUNT.size :], *rest)), descriptors


# -------------------- processes that another one forks


def fork(channel: socket.socket, asked: object, descriptors: Sequence[int]) -> tuple[int, list[int]]:
    """Have the process behind a channel fork one, which gets what is `asked` and copies of some descriptors; return its
    number, and those of the copies. Raises OSError if it cannot be forked, and EOFError if that process has gone.
    """
    pid, error, copies = _answered(channel, ("fork", asked), descriptors)
    if pid == 0:
        raise OSError(error, os.strerror(error))
    return pid, copies


def ended(channel: socket.socket, pid: int) -> int | None:
    """Return a forked process's exit status, negative for a signal; None while it runs. Raise if its owner is gone."""
    return _answered(channel, ("ended", pid))  # type: ignore[no-any-return]


def _answered(channel: socket.socket, question: tuple[str, object], descriptors: Sequence[int] = ()) -> Any:
    send(channel, pickle.dumps(question), descriptors)
    return pickle.loads(receive(channel)[0])  # noqa: S301  # from our own child over a private socket


def serve_forks(
    channel: socket.socket, questions: Iterator[tuple[bytes, list[int]]], begin: Callable[[Any, list[int]], object]
) -> None:
    """Answer `fork` and `ended`, until the owner has gone. A forked process does `begin(asked, copies)` alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an owner that ignores it, as in Ray, would have no ends told
    ends: dict[int, int] = {}
    for question, descriptors in questions:
        what, asked = pickle.loads(question)  # noqa: S301  # from the owner
        if what == "fork":
            try:
                pid, error = os.fork(), 0
            except OSError as failure:
                pid, error = -1, failure.errno or 0
            if pid == 0:
                channel.close()
                begin(asked, descriptors)
                return
            for each in descriptors:
                os.close(each)
            answer: Any = (max(0, pid), error, descriptors)
        else:
            if asked not in ends:
                with contextlib.suppress(ChildProcessError):  # of a process before this one
                    done, status = os.waitpid(asked, os.WNOHANG)
                    ends |= {asked: os.waitstatus_to_exitcode(status)} if done else {}
            answer = ends.get(asked)
        if not _answer(channel, pickle.dumps(answer)):
            return


# -------------------- owner


_DEATHS_ALLOWED = 3  # on one batch; then the batch is to blame
_LOOK_SECONDS = 1.0  # how often it is looked whether a process that is waited for is still there
_ENDING_SECONDS = 5.0  # for a process that has closed its socket to be gone; it takes milliseconds
_LINES_SAID = 8  # the last ones of a start that fails
_SHOWN = 16  # numbers of samples in a message
_ASK_SECONDS = 0.001  # between two looks whether it is

_LOG = logging.getLogger(__name__)


class Nursery:
    """Starts the worker processes of one loader."""

    def __init__(
        self,
        recipe: Recipe,
        cache: MemoryCache | None,
        workers: int = 1,
        *,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Pickle the recipe into a block that `workers` map; raise LoaderError if a part of it does not pickle. No
        process is started before the first worker. `environment` is added to that of this process.
        """
        self._environment, self._workers = environment, workers  # those that have not retired
        packed = np.frombuffer(pickled(recipe, "Processes"), np.uint8)
        self._recipe = SharedBlock(len(packed))
        self._recipe.array(packed.shape, packed.dtype)[:] = packed
        self._cache = cache
        modules = {type(each).__module__ for each in (recipe.source, *(step.op for step in recipe.steps))}
        self._modules = {name for name in modules if name.startswith("autopipe.")}
        self.indexed = recipe.source if isinstance(recipe.source, Indexed) else None
        if self.indexed is not None:
            self.indexed.pack()
            self._modules |= self.indexed.preloads()
        self._lock = threading.Lock()
        self._channel: socket.socket  # of the process
        self._process: subprocess.Popen[bytes] | None = None
        self._forks = set[int]()  # of the process
        self._said: IO[bytes]  # what it writes to stderr before it is ready

    def fork(self, channel: socket.socket, readers: int) -> int:
        """Start a worker at the other end of the channel, of which `readers` threads read ahead; return its number.
        Raise OSError if it cannot be started, and LoaderError, with its own error, if what starts it has ended.
        """
        with self._lock:
            if self._process is not None:
                with contextlib.suppress(EOFError, ConnectionError):  # it was killed: another one is started
                    return self._forked(channel, readers)
                self._process.wait()
            self._start()
            try:
                return self._forked(channel, readers)
            except (EOFError, ConnectionError):
                raise self._failure() from None

    def _forked(self, channel: socket.socket, readers: int) -> int:
        pid, _ = fork(self._channel, readers, [channel.fileno()])
        self._forks.add(pid)
        return pid

    def ended(self, pid: int) -> int | None:
        """Return the exit status of a worker, negative for a signal; None while it runs."""
        with self._lock, contextlib.suppress(EOFError, OSError):
            if pid in self._forks:
                return ended(self._channel, pid)
        return None if processes.runs(pid) else -signal.SIGKILL  # its nursery was killed: how it ended is not known

    def shown(self, epoch: int, indices: NDArray[np.int64]) -> str:
        if self.indexed is not None:
            return f"{self.indexed.shown(epoch, indices)} of epoch {epoch}"
        shown, count = ", ".join(map(str, indices[:_SHOWN].tolist())), len(indices)
        return f"the samples {shown}{f', … ({count} in all)' if count > _SHOWN else ''} of epoch {epoch}"

    def retire(self) -> None:
        """Note that a worker will not be started again; the last one closes the nursery."""
        self._workers -= 1
        if self._workers == 0:
            self.close()

    def close(self) -> None:
        with self._lock:
            if self._process is not None:
                self._hang_up()
                self._process.wait()
                self._process = None

    def _hang_up(self) -> None:
        self._channel.close()
        self._said.close()

    def _start(self) -> None:
        self._forks.clear()
        if self._process is not None:
            self._hang_up()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = open(os.memfd_create("autopipe"), "r+b")  # noqa: SIM115  # closed with the process
        try:
            stderr = os.dup(2)
        except OSError:  # it is closed
            stderr = os.open(os.devnull, os.O_WRONLY)
        descriptors = [stderr, theirs.fileno(), self._recipe.descriptor]
        descriptors += [] if self._cache is None else [self._cache.block.descriptor]
        command = [*processes.started(__name__, sys.path), *map(str, descriptors)]
        environment = os.environ | ({} if self.indexed is None else WITHOUT_DEVICES)
        if self.indexed is None or not self.indexed.by_keras:
            environment |= processes.library_variables(1)
        environment |= self._environment
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command, pass_fds=descriptors, env=environment, stdin=subprocess.DEVNULL, stderr=self._said
                )
        except OSError:
            self._hang_up()
            raise
        finally:
            os.close(stderr)
        with contextlib.suppress(OSError):  # it has ended, which the first question finds out
            send(self._channel, pickle.dumps(sorted(self._modules)))

    def _failure(self) -> LoaderError:
        assert self._process is not None
        status = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").rstrip().splitlines()[-_LINES_SAID:]
        return LoaderError(
            "A worker process could not be started: the process that starts them "
            + "\n".join([_ending(status).removesuffix(",") + (":" if lines else "."), *lines]),
            hint=_advice(status) if status == -signal.SIGKILL else None,
        )


class WorkerProcess:
    """One worker process; fills one batch at a time."""

    def __init__(self, nursery: Nursery, readers: int = 0) -> None:
        """Start the process without waiting for it. `readers` of its threads read ahead."""
        self.lost = 0  # processes that died so far, and were replaced
        self._readers, self._nursery = readers, nursery
        self._lock = threading.Lock()  # between a restart and `close`
        self._stopped = False
        self._start()

    def begin(self, indices: NDArray[np.int64]) -> None:
        self._tell("begin", indices)  # a worker that dies meanwhile reads the samples with their batch

    def forget(self, indices: NDArray[np.int64]) -> None:
        self._tell("forget", indices)

    def fill_slot(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> list[BadSample] | Batch:
        """Have a batch filled. A worker that dies is replaced and the batch made anew. Raise WorkerDiedError if it died
        three times on this batch, or the AutopipeError of the worker, with its traceback as the cause.
        """
        endings = []
        for _ in range(_DEATHS_ALLOWED):
            try:
                answer = self._ask(slot, epoch, indices)
            except (EOFError, OSError):
                endings.append(self._replace())
            else:
                made: list[BadSample] | Batch = answered(answer)
                return made
        raise WorkerDiedError(
            f"A worker process {_ending(endings[0])} {_DEATHS_ALLOWED} times on one batch, "
            f"with {self._nursery.shown(epoch, indices)}.",
            hint=_advice(endings[0]),
        )

    def close(self) -> None:
        with self._lock:
            if not self._stopped:
                self._stopped = True
                try:
                    self._end()
                finally:  # also by Ctrl-C
                    self._nursery.retire()

    def _start(self) -> None:
        try:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with contextlib.ExitStack() as undo, theirs:
                undo.callback(self._socket.close)
                self.pid = self._nursery.fork(theirs, self._readers)
                undo.pop_all()
        except OSError as error:
            raise LoaderError(
                f"A worker process could not be started: {error}.",
                hint="Use fewer workers, or raise the limits of processes (`ulimit -u`) and of files (`ulimit -n`).",
            ) from error
        self._mapped: dict[int, weakref.ref[Slot]] = {}  # the slots that the process has mapped
        self._dataset: tuple[SharedBlock, list[int]] | None = None  # that the process has

    def _tell(self, what: str, indices: NDArray[np.int64]) -> None:
        with contextlib.suppress(OSError):  # it has died, which the next batch finds out
            send(self._socket, pickle.dumps((what, indices.tobytes())))

    def _ask(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> Any:
        dataset = None if self._nursery.indexed is None else self._nursery.indexed.packed  # as it is in this epoch
        if dataset is not None and dataset is not self._dataset:
            block, lengths = self._dataset = dataset
            send(self._socket, pickle.dumps(("dataset", lengths)), [block.descriptor])
        gone = [number for number, reference in self._mapped.items() if reference() is None]
        for number in gone:
            del self._mapped[number]
        message = pickle.dumps(("fill", slot.number, slot.block.size, slot.layout.rows, epoch, indices.tobytes(), gone))
        if slot.number in self._mapped:
            send(self._socket, message)
        else:
            send(self._socket, message, [slot.block.descriptor])
            self._mapped[slot.number] = weakref.ref(slot)
        return pickle.loads(self._received())  # noqa: S301  # from our own child over a private socket

    def _received(self) -> bytes:
        """Return the next message; raise EOFError once the process is gone, which forks of it hide from the socket."""
        self._socket.settimeout(_LOOK_SECONDS)
        try:
            gone = False
            while True:
                try:
                    return receive(self._socket)[0]
                except TimeoutError:
                    if gone:
                        raise EOFError from None
                    gone = self._nursery.ended(self.pid) is not None  # its last message has arrived by now, if so
        finally:
            with contextlib.suppress(OSError):  # it was stopped meanwhile
                self._socket.settimeout(None)

    def _replace(self) -> int:
        until = time.monotonic() + _ENDING_SECONDS  # by itself, so that its own end is told and not our kill
        while self._nursery.ended(self.pid) is None and time.monotonic() < until:
            time.sleep(_ASK_SECONDS)
        with self._lock:
            if self._stopped:
                raise LoaderError("The loader was closed while a batch was being made.")
            status = self._end()
            self._start()
        self.lost += 1
        if self.lost & (self.lost - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...: repeated losses do not fill the log
            _LOG.warning(
                "A worker process %s and was replaced; its batch is made anew. So far that happened to this worker "
                "%s. %s",
                _ending(status).removesuffix(","),
                count_text(self.lost, "time"),
                _advice(status),
            )
        return status

    def _end(self) -> int:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes up a thread that waits for an answer
        self._socket.close()
        while (status := self._nursery.ended(self.pid)) is None:  # so long its number is no other process's
            with contextlib.suppress(ProcessLookupError):  # without a nursery, it may have gone by now
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(_ASK_SECONDS)
        return status


def _ending(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):  # most of the real-time ones have no name
            return f"was killed by {signal.Signals(-status).name}"
        return f"was killed by signal {-status}"
    return f"ended with exit status {status},"


def _advice(status: int) -> str:
    if status == -signal.SIGKILL:
        return "Look for too little memory (fewer workers)."
    if status < 0:
        return "Look for a sample that crashes its decoder; `threads` shows where, with `python -X faulthandler`."
    return "Look for what ends the process (os._exit, say) in the data and in the functions of ap.Map."


# -------------------- worker


_SAID_BYTES = 1 << 16  # of a start that succeeds: warnings
_POLL_SECONDS = 5.0  # how often an idle worker looks whether its owner is still there


def main() -> None:
    """Fork workers for one owner, until it has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's business
    logging.getLogger("autopipe.native").setLevel(logging.ERROR)  # the owner has said why it makes no samples
    stderr, channel_number, recipe_number, *cache_number = map(int, sys.argv[1:])
    channel = socket.socket(fileno=channel_number)
    questions = tasks(channel, os.getppid())
    for asked, _ in itertools.islice(questions, 1):
        for module in pickle.loads(asked):  # noqa: S301  # from the owner
            with contextlib.suppress(ModuleNotFoundError):  # workers say what they lack
                importlib.import_module(module)
    said = os.pread(2, _SAID_BYTES, 0)
    os.truncate(2, 0)
    os.dup2(stderr, 2)
    os.close(stderr)
    os.write(2, said)
    gc.freeze()  # so that a collection in a worker does not touch, and so copy, what they share
    serve_forks(channel, questions, lambda readers, copies: _work(*copies, readers, recipe_number, *cache_number))


def _work(channel_number: int, readers: int, recipe_number: int, *cache_number: int) -> None:
    np.random.seed()  # Python's own generator is seeded anew in a forked process, NumPy's is not
    channel = socket.socket(fileno=channel_number)
    told = tasks(channel, os.getppid())
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()  # even in a read that never returns
    try:
        recipe = unpickled(bytes(_mapped(recipe_number).view()))
        if not getattr(recipe.source, "by_keras", False):  # Keras's processes are as they are without autopipe
            processes.set_library_threads()
            processes.keep_freed_memory()
        cache = MemoryCache.of(recipe, _mapped(*cache_number)) if cache_number else None
        kernel = kernel_of(recipe, cache, readers)
        if isinstance(recipe.source, Indexed):
            settle()
    except BaseException as error:  # noqa: BLE001  # the owner raises it, in place of the first batch
        for _ in told:
            _answer(channel, pickle.dumps(RemoteFailure.of(error)))
    else:
        _serve(channel, told, kernel)
        if isinstance(recipe.source, Indexed):  # a thread or exit handler of the user's may never end
            sys.stdout.flush()
            os._exit(0)


def _mapped(descriptor: int) -> SharedBlock:
    return SharedBlock(os.fstat(descriptor).st_size, descriptor)


def tasks(channel: socket.socket, owner: int) -> Iterator[tuple[bytes, list[int]]]:
    """Yield the owner's messages, with the file descriptors that came along, until it has gone."""
    channel.settimeout(_POLL_SECONDS)
    while True:
        try:
            yield receive(channel)
        except TimeoutError:
            if os.getppid() != owner:  # the socket may live on in a process that the owner forked
                return
        except (EOFError, ConnectionResetError):  # the latter of an owner that died before it took an answer
            return


def _serve(channel: socket.socket, tasks: Iterator[tuple[bytes, list[int]]], kernel: Kernel) -> None:
    blocks: dict[int, SharedBlock] = {}
    for message, descriptors in tasks:
        what, *told = pickle.loads(message)  # noqa: S301  # from the owner
        if what == "dataset":
            assert isinstance(kernel.source, Indexed)
            kernel.source.unpack(told[0], descriptors[0])
            continue
        if what != "fill":
            (kernel.begin if what == "begin" else kernel.forget)(np.frombuffer(told[0], np.int64))
            continue
        number, size, rows, epoch, packed, gone = told
        for old in gone:
            del blocks[old]
        if descriptors:
            blocks[number] = SharedBlock(size, descriptors[0])
        indices = np.frombuffer(packed, np.int64)
        batch = RowLayout(kernel.spec, rows).arrays(blocks[number], len(indices))
        try:
            answer = pickle.dumps(kernel.fill(epoch, indices, batch))
        except BaseException as error:  # noqa: BLE001  # the owner raises it
            answer = pickle.dumps(RemoteFailure.of(error))
        if not _answer(channel, answer):
            return


def _answer(channel: socket.socket, answer: bytes) -> bool:
    with contextlib.suppress(OSError):  # the owner is gone
        send(channel, answer)
        return True
    return False
