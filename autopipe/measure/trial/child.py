"""A process that measures for a study: the messages to and from it, its log and folders, its start, and the end of
everything it started.

The parent sends requests; the child answers each with events, of which the last is `done`. An answer ends at that line
and not at the end of the stream, which a grandchild may hold open for ever. Everything that crosses the boundary is
declared here, and carried by a `Channel`, the same on both sides.

The parent owns the process group, the socket, the log and the temporary folders. The child leads the group. Everything
it starts is in that group or descends from it, and ends with it; only a process that made its own session and lost its
parent to a sudden death is out of reach. `supervise` sends requests and keeps deadlines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import importlib.util
import json
import logging
import math
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Hashable, Mapping, Set
from pathlib import Path
from typing import IO, Annotated, Literal

import cloudpickle
import pydantic
from pydantic_core import PydanticSerializationError

from autopipe.errors import TrialError, WorkloadError, told
from autopipe.hardware import processes
from autopipe.hardware.processes import ProcessTree
from autopipe.measure.facts import Ceiling, Description
from autopipe.measure.outcome import EpochTime, LoaderRate, Measurement, Phase, TrialFailure, Verification
from autopipe.measure.trial.forkserver import Forked, ForkServer, wait_until
from autopipe.measure.trial.workload_import import WorkloadName
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.values import JsonObject, Value
from autopipe.workload.data import paths
from autopipe.workload.mode import Mode
from autopipe.workload.workload import Workload

# -------------------- the language: one JSON object a line, on a socket of its own


class Channel:
    """Sends messages and receives lines. Owns the socket; sending is safe from any thread, receiving from one."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._pending = b""
        self._selector = selectors.PollSelector()
        self._selector.register(connection, selectors.EVENT_READ)

    def send(self, message: pydantic.BaseModel) -> None:
        """Send one message; raises OSError if the other side has gone."""
        with self._sending:
            try:
                line = message.model_dump_json().encode()
            except PydanticSerializationError:  # half a character, from the name of a file that is no UTF-8
                line = json.dumps(message.model_dump(mode="json"), ensure_ascii=False).encode("utf-8", "replace")
            self._socket.sendall(line + b"\n")

    def receive(self, timeout_seconds: float) -> list[bytes]:
        """Return the complete lines, or wait for some; empty if none arrived. Raises EOFError if the other side has
        closed, or died; earlier lines have been returned by then.
        """
        if not self._selector.select(timeout_seconds):
            return []
        try:
            chunk = self._socket.recv(1 << 16)
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            raise EOFError
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        return lines

    def close(self) -> None:
        self._selector.close()
        self._socket.close()


class Pickled(Value):
    """A workload as an object that has no name, in an anonymous file that the child inherits."""

    kind: Literal["pickled"] = "pickled"
    fd: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a child makes its session of a workload."""

    session: str = "autopipe.measure.session:TrialSession"  # the "module:callable" that makes it from the workload
    sys_path: tuple[str, ...] = ()  # folders in addition to the child's own
    simulate: SimulatedAccelerator | None = None  # a simulated accelerator in place of the workload's model
    mode: Mode = Mode.TRAIN  # of the steps that trials measure
    code: str | None = None  # foreign code to measure: plain code by its name, or the user's "FILE.py:function"


class Load(Value):
    """Import the workload and make the session. The first request, once."""

    request: Literal["load"] = "load"
    workload: Annotated[WorkloadName | Pickled, pydantic.Field(discriminator="kind")]
    terms: Terms


class Ask(Value):
    """Call the method of the session that has this name; the answer is what it returns."""

    request: Literal["describe", "measure", "loader", "epoch", "ceiling", "verify"]
    configs: tuple[PipelineConfig, ...] = ()  # the one to `measure`, or those to `verify`
    options: JsonObject = pydantic.Field(default_factory=dict)


class Close(Value):
    """Close the session and exit. Has no answer."""

    request: Literal["close"] = "close"


Request = Load | Ask | Close


class Ready(Value):
    """The answer to `Load`."""

    status: Literal["ready"] = "ready"
    too_late: bool = False  # the workload's file has set what the framework had read when it was imported before


Answer = Ready | Description | Measurement | LoaderRate | EpochTime | Ceiling | Verification | TrialFailure


class PhaseBegan(Value):
    """The trial entered a phase."""

    event: Literal["phase"] = "phase"
    phase: Phase


class Progress(Value):
    """The trial is alive; its progress."""

    event: Literal["progress"] = "progress"
    images: int
    images_per_second: float


class Log(Value):
    """A line for the user."""

    event: Literal["log"] = "log"
    text: str
    of_data: bool = False  # a DataWarning's


class Done(Value):
    """The end of an answer."""

    event: Literal["done"] = "done"
    answer: Annotated[Answer, pydantic.Field(discriminator="status")]


Event = PhaseBegan | Progress | Log | Done

REQUEST: pydantic.TypeAdapter[Request] = pydantic.TypeAdapter(
    Annotated[Request, pydantic.Field(discriminator="request")]
)
EVENT: pydantic.TypeAdapter[Event] = pydantic.TypeAdapter(Annotated[Event, pydantic.Field(discriminator="event")])


# -------------------- what a process has: a log, temporary folders

TAIL_BYTES = 6000  # of a log, that go with a failure
LIMIT_BYTES = 64 << 20  # of a log, beyond which it is emptied


class ChildLog:
    """A file for stdout and stderr of a child. The parent reads its end; the child only appends."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        # The kernel appends, so that the file can be cut while the child writes.
        fcntl.fcntl(self.fd, fcntl.F_SETFL, fcntl.fcntl(self.fd, fcntl.F_GETFL) | os.O_APPEND)
        self._mark = 0

    @property
    def fd(self) -> int:
        return self._file.fileno()

    @property
    def size_bytes(self) -> int:
        return os.fstat(self.fd).st_size

    def mark(self) -> None:
        self._mark = self.size_bytes

    def cut(self) -> None:
        if self.size_bytes > LIMIT_BYTES:
            os.ftruncate(self.fd, 0)
            self._mark = 0

    def tail(self) -> str:
        size = self.size_bytes
        start = max(self._mark, size - TAIL_BYTES)
        text = os.pread(self.fd, size - start, start).decode(errors="replace")
        if start > self._mark:  # the first line is a piece of one
            text = text.partition("\n")[2] or text
        return text.strip()

    def count(self, text: str) -> int:
        """Return how often a text was written since the mark."""
        return os.pread(self.fd, self.size_bytes - self._mark, self._mark).count(text.encode())

    def close(self) -> None:
        self._file.close()


PREFIX = "autopipe-trial-"


class Scratch:
    """A folder owned by one process; `close` removes it with its content."""

    def __init__(self, folder: Path | None = None) -> None:
        """Make a folder in `folder` (default: the system's temporary one), and remove those of dead processes."""
        parent = Path(tempfile.gettempdir()) if folder is None else folder
        collect(parent)
        for _ in range(3):  # another process may collect a folder between these two statements
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._lock = _locked(self.path)
            if self._lock is not None and self.path.is_dir():
                return
            self.close()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))  # without a lock, which not every disk has

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def collect(folder: Path) -> None:
    """Remove the folders of this user in `folder` whose owners are dead."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and (lock := _locked(Path(entry.path))) is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def _locked(path: Path) -> int | None:
    """Lock the folder; None if it belongs to another user, is no folder, or is locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_uid == os.getuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


IN_TRIAL = "AUTOPIPE_IN_TRIAL"
"""Set in the child's environment, so that a script without a main guard that tunes in there gets a clear error."""

_RUNNER = "autopipe.measure.trial.runner"
_EXIT_SECONDS = 1.0  # for a process that has closed its channel, or was killed, to be gone

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Launch(Terms):
    """The settings that a child is started with."""

    workload: str | Workload | WorkloadName  # its name, "train.py:workload", or the object, which cloudpickle sends
    directory: Path | None = None  # the working directory; None for the parent's own
    folder: Path | None = None  # on the disk that samples converted for trials are written to; None: the temporary one
    environment: tuple[tuple[str, str], ...] = ()  # variables in addition to the parent's own
    server: ForkServer | None = None  # that forks all processes but the first


class Child:
    """A running child process, leader of a group and session of its own."""

    def __init__(self, launch: Launch) -> None:
        self._pickle = _pickled(launch.workload) if isinstance(launch.workload, Workload) else None
        try:
            # Files in the child's temporary folder, such as converted samples, are removed even if it dies at once.
            self._scratch = Scratch()
            self.log = ChildLog()
        except OSError as error:
            raise TrialError(
                f"A trial needs a temporary folder, but there can be none: {error}",
                hint="Make room, or name a folder that has room in the environment variable TMPDIR.",
            ) from error
        self._launch, self._own = launch, {"TMPDIR": str(self._scratch.path)}  # variables of this process alone
        self._sets: Scratch | None = None
        self.settings: Hashable = None  # of the model, that hold for the whole process
        self.keeps = False  # freed memory, from now on
        self.first_bytes = self.last_bytes = 0  # after the model has trained, and after the last answer
        self.cores: set[int] = set()  # on which it may run, after its last answer
        ours, theirs = socket.socketpair()
        inherited = [theirs.fileno()] + ([self._pickle.fileno()] if self._pickle else [])
        self._process: subprocess.Popen[bytes] | Forked
        with theirs:
            log, server = self.log.fd, launch.server
            forked = None if server is None else server.fork(self._own, launch.directory, log, inherited)
            self._process, inherited = self._started(inherited) if forked is None else (forked, forked.files)
        self._channel, self._tree = Channel(ours), ProcessTree(self.pid)
        source: WorkloadName | Pickled = Pickled(fd=inherited[-1])
        if not isinstance(launch.workload, Workload):
            source = WorkloadName(text=launch.workload) if isinstance(launch.workload, str) else launch.workload
        self.load = Load(workload=source, terms=launch)

    def _started(self, files: list[int]) -> tuple[subprocess.Popen[bytes], list[int]]:
        """Start the process, and return it with the numbers that the files have there."""
        server = self._launch.server
        process = subprocess.Popen(
            [*processes.started(_RUNNER), f"--fd={files[0]}", f"--parent={os.getpid()}"],
            stdin=subprocess.DEVNULL,
            stdout=self.log.fd,
            stderr=self.log.fd,
            cwd=self._launch.directory,
            env=_environment(self._launch, self._own),
            pass_fds=files,
            start_new_session=True,
        )
        if server is not None:
            server.begin(_environment(self._launch, {}))
        return process, files

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_forked(self) -> bool:
        return isinstance(self._process, Forked)

    def folder_for_sets(self) -> str | None:
        """Return the folder for converted samples, on the launch's disk; None if it names none. Raises OSError."""
        if self._sets is None and self._launch.folder is not None:
            self._sets = Scratch(self._launch.folder.resolve())
        return None if self._sets is None else str(self._sets.path)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, request: pydantic.BaseModel) -> None:
        """Send a request. If the process is gone, `receive` raises."""
        with contextlib.suppress(OSError):
            self._channel.send(request)

    def receive(self, timeout_seconds: float) -> list[bytes]:
        """Return the lines it sent; empty if there were none in this time. Raises EOFError if it is dead or has closed
        its channel, and everything it sent has been returned.
        """
        alive = self.is_alive()  # read first: all data of a dead process have arrived by now
        lines = self._channel.receive(timeout_seconds if alive else 0.0)
        if not lines and not alive:
            raise EOFError  # a grandchild may hold the other end open
        return lines

    def exit_status(self, seconds: float = _EXIT_SECONDS) -> int | None:
        """Return the status of a process that has just closed its channel, or None if it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def memory_bytes(self, allowed: float = math.inf) -> int:
        return held_bytes(self._tree, allowed)

    def dump_stacks(self) -> None:
        before = self.log.size_bytes
        self._process.send_signal(signal.SIGUSR1)
        wait_until(lambda: self.log.size_bytes > before or not self.is_alive(), 0.5)

    def end(self, grace_seconds: float, *, politely: bool = False) -> None:
        """End the process and everything it started, with this much time to clean up. Safe to call twice. If
        `politely`, it is asked by `Close`, else by SIGTERM.
        """
        try:
            self._tree.running()  # once more with those whose parents end now
            if self.is_alive():
                if politely:
                    self.send(Close())
                else:
                    self._process.terminate()
                self.exit_status(grace_seconds)
        finally:
            with processes.uninterrupted():  # also by a second Ctrl-C
                if not kill(self._tree):
                    _LOG.warning("Processes of the trial with process group %d cannot be killed.", self.pid)
                self.exit_status()
                for held in (self._channel, self.log, self._pickle, self._scratch, self._sets):
                    if held is not None:
                        held.close()


def _pickled(workload: Workload) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
    try:
        cloudpickle.dump(workload, file)
    except Exception as error:
        from autopipe.pipeline.wrap import WrappedData

        file.close()
        hint = "Write it at the top level of a file and name it: `train.py:workload`."
        if isinstance(workload.data, WrappedData):
            hint = "Give `ap.wrap` the function that makes the dataset: ap.wrap(make_dataset, ...)."
        raise WorkloadError(f"This workload cannot be sent to another process: {told(error)}", hint=hint) from error
    file.flush()
    return file


def _environment(launch: Launch, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the child: unbuffered output, and the fault handler."""
    own = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", IN_TRIAL: "1", **more}
    keras = importlib.util.find_spec("keras")
    file = None if keras is None or keras.origin is None else Path(importlib.util.cache_from_source(keras.origin))
    if sys.dont_write_bytecode and file is not None and not file.exists():
        # Where no bytecode is kept (in an image of a container), each child would compile Keras and TensorFlow for ten
        # seconds: they share it.
        own |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(paths.cache_folder().parent / "bytecode")}
    return {**os.environ, **own, **dict(launch.environment)}


# -------------------- the processes of a trial, seen from outside: their memory, and their end

_RESOURCE_TRACKER = b"multiprocessing.resource_tracker"


def held_bytes(tree: ProcessTree, allowed: float = math.inf) -> int:
    """Return the memory that only these processes keep in use. Pages of files (a memory-mapped data set, say) are left
    out, since the kernel drops them when it needs room. Shared memory is counted once. What a fork still shares with
    its parent is counted for both, unless that is more than `allowed`: then the kernel's own figures, which take
    longer, decide.
    """
    running = tree.running()
    each = [processes.resident(pid) for pid in running]
    held = sum(one.anonymous_bytes for one in each) + max((one.shared_bytes for one in each), default=0)
    return held if held <= allowed else min(held, sum(map(processes.own_bytes, running)) or held)


def kill(tree: ProcessTree) -> bool:
    """Kill processes, Python's resource tracker last, which removes their shared memory; True if they are gone."""
    for patient in (True, False):
        _kill(tree.running(), patient=patient)
        wait_until(lambda: not tree.running(), 2.0)
    return not tree.running()


def kill_others() -> None:
    """Kill all processes started by the calling one. The resource tracker ends after them."""
    _kill(ProcessTree(os.getpid()).running() - {os.getpid()}, patient=True)


def _kill(pids: Set[int], *, patient: bool) -> None:
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has gone
            if not (patient and _RESOURCE_TRACKER in Path(f"/proc/{pid}/cmdline").read_bytes()):
                os.kill(pid, signal.SIGKILL)
