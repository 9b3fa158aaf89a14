"""The child process: started with `--fd N --parent PID`, or forked by `forkserver`. Serves one request after another.

It keeps the framework imported and the model compiled, and gives way when it should: to SIGTERM by closing its session,
and to its parent's death by taking its whole process group along. The session does the measuring.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import dataclasses
import errno
import faulthandler
import functools
import itertools
import logging
import os
import pkgutil
import queue
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import cloudpickle

from autopipe import again, errors
from autopipe.errors import DataWarning, FrameworkWarning, TrialError, WorkloadError, users_lines
from autopipe.frameworks import hooks
from autopipe.hardware import gpu
from autopipe.measure.outcome import MEMORY_HINT, FailureKind, Phase, TrialFailure
from autopipe.measure.trial import child, workload_import
from autopipe.measure.trial.child import Channel
from autopipe.pipeline.wrap import backend_of
from autopipe.workload.mode import Mode
from autopipe.workload.workload import Workload

if TYPE_CHECKING:
    from autopipe.measure.session import TrialSession

_Inbox: TypeAlias = "queue.SimpleQueue[bytes | None]"

_LOG = logging.getLogger(__name__)


class _Terminated(BaseException):
    """SIGTERM arrived. No `Exception`, so that other code does not catch it."""


class _Reporter:
    def __init__(self, channel: Channel) -> None:
        self.current, self._channel, self._last_progress = Phase.START, channel, 0.0

    def phase(self, phase: Phase) -> None:
        self.current = phase
        self._channel.send(child.PhaseBegan(phase=phase))

    def progress(self, images: int, images_per_second: float) -> None:
        now = time.monotonic()
        if now - self._last_progress >= 0.2:
            self._last_progress = now
            self._channel.send(child.Progress(images=images, images_per_second=float(images_per_second)))

    def log(self, text: str, *, of_data: bool = False) -> None:
        self._channel.send(child.Log(text=text, of_data=of_data))


class _Server:
    def __init__(self, channel: Channel, forked: bool) -> None:
        self._channel, self._forked, self._report = channel, forked, _Reporter(channel)
        self._session: TrialSession | None = None
        self._name: str | None = None  # of the workload

    def serve(self, inbox: _Inbox) -> None:
        try:
            while (line := inbox.get()) is not None and (answer := self._answer(line)) is not None:
                self._channel.send(child.Done(answer=answer))
        except (_Terminated, KeyboardInterrupt):
            kind, said = FailureKind.INTERRUPTED, "The trial's process was told to end."
            answer = TrialFailure(kind=kind, phase=self._report.current, message=said)
            self._channel.send(child.Done(answer=answer))
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # closing is not to be cut short
            if self._session is not None:
                self._session.close()

    def _answer(self, line: bytes) -> child.Answer | None:
        try:
            request = child.REQUEST.validate_json(line)  # here, since a configuration can import its loader
            return None if isinstance(request, child.Close) else self._dispatch(request)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a workload raises is an outcome
            traceback.print_exc()  # to the log, whose tail goes with the failure
            return failure_of(error, self._report.current, self._name)

    def _dispatch(self, request: child.Load | child.Ask) -> child.Answer:
        if isinstance(request, child.Load):
            return self._load(request)
        if self._session is None:
            raise TrialError("A workload must be loaded before anything can be measured.")
        given: tuple[Any, ...] = () if request.request == "describe" else (request.options,)
        if request.configs:
            given = (request.configs if request.request == "verify" else request.configs[0], *given)
        method: Callable[..., child.Answer] = getattr(self._session, request.request)
        return method(*given, self._report)

    def _load(self, request: child.Load) -> child.Ready:
        terms = request.terms
        self._name = request.workload.text if isinstance(request.workload, workload_import.WorkloadName) else None
        self._report.phase(Phase.IMPORT)
        sys.path += [folder for folder in terms.sys_path if folder not in sys.path]
        before = _of_frameworks()
        with _warnings_told(self._report):
            if gpu.asked() > 1:
                from autopipe.pipeline.devices import strategy as strategies  # imports Keras

                if (several := strategies.sharing()) is not None:
                    several.prepare()
            sys.path.insert(0, os.getcwd())  # noqa: PTH109  # for the user's modules: ours are imported
            hooks.after_import("tensorflow", _cache_apart)
            try:
                workload = _workload(request.workload)
            finally:
                gpu.require_installed()  # Keras names no extra; a script may choose another backend as it begins
            # What no model reads, and steps of torch, run on torch: forked workers may hang beside another framework. A
            # process that was forked has imported Keras anyway.
            others = {"keras", "tensorflow", "jax"} & sys.modules.keys()
            if (backend := backend_of(workload)) is not None and (self._forked or not others):
                os.environ.setdefault("KERAS_BACKEND", backend)
            if self._forked and _of_frameworks() != before:
                return child.Ready(too_late=True)
            own_model = workload.model
            make_session: Callable[..., TrialSession] = pkgutil.resolve_name(terms.session)  # imports Keras
            if terms.simulate is not None:
                workload = dataclasses.replace(workload, model=terms.simulate)
            code: tuple[Any, ...] = () if terms.code is None else (terms.code, terms.code)
            if terms.code is not None and ":" in terms.code:
                code = workload_import.load_function(terms.code), terms.code
            self._report.phase(Phase.BUILD)
            mode = {} if terms.mode is Mode.TRAIN else {"mode": terms.mode}
            self._session = make_session(workload, *code, **mode)  # its ops look at the first samples
            self._session.own_model = own_model
        return child.Ready()


def _of_frameworks() -> dict[str, str]:
    """Return the variables that a framework reads as it is imported, which a script may set above its imports."""
    return {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES) and name not in _OF_LOGS}


_PREFIXES = ("KERAS_", "TF_", "JAX_", "XLA_", "CUDA_", "TORCH_", "PYTORCH_", "OMP_", "MKL_", "OPENBLAS_", "KMP_")
_OF_LOGS = ("TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_VMODULE")


def _cache_apart(tensorflow: Any) -> None:
    """Have new files of `Dataset.cache` written to a folder of this process: a trial that ends before its data do
    leaves a lock, with which TensorFlow refuses the next training.
    """
    original, numbers = tensorflow.data.Dataset.cache, itertools.count()

    @functools.wraps(original)
    def cache(dataset: Any, filename: Any = "", name: str | None = None) -> Any:
        is_new = isinstance(filename, str) and filename and not os.path.exists(f"{filename}.index")  # noqa: PTH110
        own = os.path.join(tempfile.gettempdir(), f"cache-{next(numbers)}") if is_new else filename  # noqa: PTH118
        return original(dataset, own, name)

    tensorflow.data.Dataset.cache = cache


@contextlib.contextmanager
def _warnings_told(report: _Reporter) -> Iterator[None]:
    """Forward autopipe's warnings of a workload to the user; other warnings go to the log."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, (DataWarning, FrameworkWarning)):
            report.log(str(message), of_data=True)
        else:
            usual(message, category, *place, **more)

    with warnings.catch_warnings():
        usual, warnings.showwarning = warnings.showwarning, show
        yield


def _workload(source: workload_import.WorkloadName | child.Pickled) -> Workload:
    if isinstance(source, workload_import.WorkloadName):
        return workload_import.load_workload(source)
    os.lseek(source.fd, 0, os.SEEK_SET)  # a child before this one has read it, too
    with open(source.fd, "rb", closefd=False) as file:
        workload = cloudpickle.load(file)
    if not isinstance(workload, Workload):
        raise WorkloadError(f"A pickled workload must be a Workload, but is a {type(workload).__name__}.")
    return workload


def _listen(channel: Channel, inbox: _Inbox, parent: int) -> None:
    """Pass requests on until the parent closes or dies; then end this process, whatever it does."""
    with contextlib.suppress(EOFError):
        while os.getppid() == parent:
            for line in channel.receive(1.0):
                inbox.put(line)
    inbox.put(None)
    main_thread = threading.main_thread().ident
    assert main_thread is not None  # it has been started
    signal.pthread_kill(main_thread, signal.SIGTERM)
    time.sleep(5.0)  # to close its session
    _end_group()
    os.kill(os.getpid(), signal.SIGKILL)


def _end_group() -> None:
    if os.getpgrp() == os.getpid():
        child.kill_others()


# -------------------- an exception of the workload in words

_OUT_OF_MEMORY_NAMES = frozenset({"ResourceExhaustedError", "OutOfMemoryError"})  # TensorFlow's; PyTorch's and CuPy's
_OUT_OF_MEMORY_WORDS = ("RESOURCE_EXHAUSTED", "out of memory", "Unable to allocate", "Cannot allocate memory")

_GRAPH = "Graph execution error:"  # begins TensorFlow's text, with the place in its graph, before the cause
_AROUND = re.compile(
    rf"{_GRAPH}|Detected at node |\s+File \"|<stack traces unavailable>|\s*\[\[|\d+ root error|.*most recent call last"
)

# What a loss says of a model whose outputs do not fit y, in Keras's words and TensorFlow's, and what to do.
_OUTPUTS = (
    (
        re.compile(r"Received a label value of \S+ which is outside the valid range"),
        "Give the model's last layer an output for each class, and number the classes from 0.",
    ),
    (
        re.compile(r"y_true and y_pred have different structures"),
        "Let y and the model's outputs have the same parts, by the same names: a source of your own may return y as a "
        "dictionary. Or make both one array.",
    ),
    (
        re.compile(r"`target` and `output` must have the same"),
        "Let y, the model's last layer and its loss fit: sparse_categorical_crossentropy takes numbers of classes, "
        "categorical_crossentropy takes one-hots.",
    ),
)

_KIND_HINTS = {
    FailureKind.UNSUPPORTED: "Leave this choice out of the search space.",
    FailureKind.IMPORT: "Import the workload's module by hand to see the whole traceback.",
    FailureKind.BUILD: "Call the workload's `model` by hand and train it on one batch.",
    FailureKind.BAD_DATA: "Mend or remove the sample that is named, or set on_bad_sample='skip' in a workload's file. "
    "{verify} lists all samples that cannot be used.",
    FailureKind.OUT_OF_MEMORY: MEMORY_HINT,
    FailureKind.CRASHED: "The end of the trial's log shows where.",
}


def failure_of(error: BaseException, phase: Phase, workload: str | None = None) -> TrialFailure:
    """Return the failure for an exception in `phase`; `workload`: its name, if it was imported by one."""
    kind = kind_of(error, phase)
    if isinstance(error, errors.AutopipeError):
        message, hint = error.message, error.hint
        if isinstance(error, errors.OpError | errors.DataError) and error.__cause__ is not None:
            message = "\n".join([message, *users_lines(error.__cause__)])  # an op's, or a source's
        if isinstance(error, errors.OpError):  # whose failure is not skipped
            hint = hint or "Mend the op's function; or, if only this sample is odd, remove the sample."
    else:
        message = errors.told(error, _told(str(error))).rstrip(": ")
        lines = users_lines(error, or_any=not str(error))  # an `assert` of a library tells nothing else
        message, hint = "\n".join([message, *lines]), _hint_of_outputs(error) or errors.hint_of_workers(error)
    if workload is None:  # an object, that of a command such as `tune --images` included
        verify = "`ap.verify_files(workload)`, or `autopipe verify --files` with the same arguments,"
    else:
        verify = f"`{again.autopipe('verify', '--files', workload)}`"
    if kind is not FailureKind.BAD_DATA or phase not in (Phase.START, Phase.IMPORT):  # before any sample was read
        hint = hint or _KIND_HINTS.get(kind, "").format(verify=verify) or None
    return TrialFailure(kind=kind, phase=phase, message=errors.cut(message, 2000), hint=hint)


def _told(text: str) -> str:
    """Return the text of an exception without the lines that TensorFlow adds to the one that matters."""
    text = re.sub(r"\s*Label values: [-\d\s]+", " ", text).strip()  # every pixel of a batch of masks
    said, is_repeated, repeated = text.partition("Traceback (most recent call last):")  # of a Python function it called
    if is_repeated:
        return "\n".join([re.sub(r"^\{\{.*?\}\}\s*", "", said).strip(), *errors.users_lines_in(repeated)])
    if not text.startswith(_GRAPH):
        return text
    lines = [line for line in text.splitlines() if line.strip() and not _AROUND.match(line)]
    return re.sub(r"\s*\[Op:.*\]$", "", "\n".join(lines)) or text


_OF_WORKLOAD = {
    Phase.START: FailureKind.IMPORT,
    Phase.IMPORT: FailureKind.IMPORT,
    Phase.BUILD: FailureKind.BUILD,
    Phase.WARM_UP: FailureKind.BUILD,
}


def kind_of(error: BaseException, phase: Phase) -> FailureKind:
    """Return the kind of failure for an exception in `phase`."""
    if _is_out_of_memory(error):
        return FailureKind.OUT_OF_MEMORY
    match error:
        case errors.ConfigError() | errors.MissingExtraError() | errors.StorageError() | NotImplementedError():
            return FailureKind.UNSUPPORTED
        case errors.WorkerDiedError():
            return FailureKind.CRASHED
        case errors.LoaderError() if phase not in _OF_WORKLOAD:
            return FailureKind.UNSUPPORTED if phase is Phase.OPEN else FailureKind.CRASHED
        case errors.ModelError():
            return FailureKind.BUILD
        case errors.DataError() | errors.OpError():
            return FailureKind.BAD_DATA
    if _hint_of_outputs(error) is not None:  # an error that shows at the first batch with such a label
        return FailureKind.BUILD
    if phase in _OF_WORKLOAD:
        return _OF_WORKLOAD[phase]
    return FailureKind.BAD_DATA if isinstance(error, errors.WorkloadError) else FailureKind.CRASHED


def _hint_of_outputs(error: BaseException) -> str | None:
    return next((hint for said, hint in _OUTPUTS if said.search(str(error))), None)


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if type(error).__name__ in _OUT_OF_MEMORY_NAMES:
        return True
    is_ours = isinstance(error, errors.AutopipeError)
    return not is_ours and any(words in str(error) for words in _OUT_OF_MEMORY_WORDS)


def _on_sigterm(_number: int, _frame: Any) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Terminated


def _leave() -> NoReturn:
    """Exit after the registered exit functions, without tearing down TensorFlow, which takes 1.2 s when idle."""
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def main() -> NoReturn:
    """Serve one parent until it closes the channel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the socket to the parent")
    parser.add_argument("--parent", type=int, required=True, help="its process id")
    arguments = parser.parse_args()
    sys.argv[1:] = []  # the user's script may look at them
    os.set_inheritable(arguments.fd, False)
    serve(arguments.fd, arguments.parent)


def serve(channel_fd: int, parent: int, *, forked: bool = False) -> NoReturn:
    """Serve until the channel is closed, or the `parent` has gone; a `forked` process has imported the framework."""
    channel = Channel(socket.socket(fileno=channel_fd))
    inbox: _Inbox = queue.SimpleQueue()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGTERM, _on_sigterm)
    threading.Thread(target=_listen, args=(channel, inbox, parent), daemon=True).start()
    try:
        _Server(channel, forked).serve(inbox)
    except (Exception, _Terminated):  # noqa: BLE001 - whatever it is, the group must go too
        _LOG.exception("This process ends early: it was told to, or the study that asked for its trials has gone.")
    _end_group()
    _leave()
