"""The failures of a trial: its deadlines, and the failure in words for an exception, a silence or a death.

Pure: clock readings and events come in as values, a failure goes out. It imports no framework and never waits.
"""

from __future__ import annotations

import dataclasses
import errno
import math
import os
import re
import signal
from collections.abc import Mapping
from typing import Final

from autopipe import again, errors
from autopipe.errors import ConfigError, users_lines
from autopipe.hardware.machine import size_text
from autopipe.measure.outcome import FailureKind, Phase, TrialFailure

VARIABLE: Final = "AUTOPIPE_PATIENCE"
"""The environment variable that multiplies all deadlines."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds without a sign of life, by phase, and seconds for a whole request.

    They separate a dead trial from a slow one, so they are generous: a framework takes 8 s to import on an idle machine
    and a minute on a loaded one, and a segmentation batch can take 10 s. `request` is for a whole trial without the
    loading of the workload; `end` is the time to clean up after SIGTERM, before SIGKILL.
    """

    start_seconds: float = 60.0
    import_seconds: float = 180.0
    build_seconds: float = 180.0
    warm_up_seconds: float = 300.0
    open_seconds: float = 60.0
    first_batch_seconds: float = 90.0
    fill_seconds: float = 120.0
    measure_seconds: float = 90.0
    close_seconds: float = 30.0
    request_seconds: float = 1200.0
    end_seconds: float = 3.0

    def of(self, phase: Phase) -> float:
        seconds: float = getattr(self, f"{phase.value}_seconds")
        return seconds


def asked(environment: Mapping[str, str] = os.environ) -> Deadlines:
    """Return the deadlines, multiplied by the environment's factor; raises ConfigError unless that is 1 or more."""
    text = environment.get(VARIABLE, "").strip() or "1"
    try:
        times = float(text)
    except ValueError:
        times = math.nan
    if not 1 <= times < math.inf:
        raise ConfigError(
            f"`{VARIABLE}` must be a number of 1 or more, but got {text!r}.",
            hint=f"{VARIABLE}=4 allows a trial four times as long; unset it for the usual deadlines.",
        )
    usual = dataclasses.asdict(Deadlines())
    return Deadlines(**{name: each if name == "end_seconds" else times * each for name, each in usual.items()})


class Watch:
    """Follows one request, which is cut at `until`."""

    def __init__(self, deadlines: Deadlines, phase: Phase, now: float, until: float = math.inf) -> None:
        self.phase = phase  # the phase it is in
        self.phase_seconds: dict[Phase, float] = {}  # durations up to the last clock reading
        self._deadlines, self._until = deadlines, until
        self._ends = min(until, now + deadlines.request_seconds)
        self._began = self._heard = self._counted = now

    def enter(self, phase: Phase, now: float) -> None:
        self.heard(now)
        self.phase = phase

    def heard(self, now: float) -> None:
        self.phase_seconds[self.phase] = self.phase_seconds.get(self.phase, 0.0) + now - self._counted
        self._heard = self._counted = now

    def left_seconds(self, now: float) -> float:
        return max(0.0, min(self._heard + self._deadlines.of(self.phase), self._ends) - now)

    def failure(self, now: float) -> TrialFailure | None:
        """Return the failure of a request whose time is up: it was silent for too long, or reports and does not end."""
        seconds, phase = self._deadlines.of(self.phase), self.phase
        hung = now - self._heard >= seconds
        if not hung and now < self._ends:
            return None
        if now >= self._until:
            message = "The budget has no time left for this trial."
            return TrialFailure(kind=FailureKind.INTERRUPTED, phase=phase, message=message)
        if hung:
            message = f"No sign of life for {seconds:.3g} s in phase `{phase}`, which is all that it may be silent."
            hint = f"The log's tail shows where each thread stood. {_MORE}"
            return TrialFailure(kind=FailureKind.HUNG, phase=phase, message=message, hint=hint)
        message = f"Still in phase `{phase}` after {now - self._began:.3g} s, which is all that a trial may take."
        hint = f"This configuration, or the machine, is very slow. {_MORE}"
        return TrialFailure(kind=FailureKind.TIMEOUT, phase=phase, message=message, hint=hint)


_MORE = f"If it is only slow: {VARIABLE}=4 in the environment allows four times as long."
MEMORY_HINT = "Use fewer workers, a shorter queue, a smaller batch or no memory cache."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of a trial, as far as it is known."""

    peak_bytes: int  # the most that its processes were seen to hold
    limit_bytes: int  # of their memory
    oom_kills: int = 0  # processes of their cgroup that the kernel killed for memory meanwhile

    @property
    def exceeded(self) -> bool:
        return self.peak_bytes > self.limit_bytes


def too_large(phase: Phase, memory: Memory) -> TrialFailure:
    """Describe a trial that was ended before the kernel had to."""
    most, held = size_text(memory.limit_bytes), size_text(memory.peak_bytes)
    message = f"The trial's processes may hold {most} together, but held {held}."
    return TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=phase, message=message, hint=MEMORY_HINT)


def dead(phase: Phase, status: int | None, memory: Memory) -> TrialFailure:
    """Describe a process that ended, or closed its channel (`status` None), without an answer."""
    killed = status == -signal.SIGKILL
    held = f"; the trial's processes held {size_text(memory.peak_bytes)}" if killed and memory.peak_bytes else ""
    if killed and memory.oom_kills > 0:
        message = f"The kernel killed the trial's process (SIGKILL) in phase `{phase}` because memory was short{held}."
        return TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=phase, message=message, hint=MEMORY_HINT)
    message = f"The trial's process {_ending(status)} in phase `{phase}` without an answer{held}."
    hint = _SIGNAL_HINTS.get(status or 0, "The log's tail may show why.")
    return TrialFailure(kind=FailureKind.CRASHED, phase=phase, message=message, hint=hint)


def blamed_on_memory(failure: TrialFailure, memory: Memory) -> TrialFailure:
    """Turn a crash into out of memory, if the kernel has just killed a process (a worker, say) for that."""
    if failure.kind is not FailureKind.CRASHED or memory.oom_kills == 0:
        return failure
    return failure.model_copy(update={"kind": FailureKind.OUT_OF_MEMORY, "hint": MEMORY_HINT})


def without_folder(error: OSError) -> TrialFailure:
    """Describe a trial without a place for its converted samples."""
    message = f"A trial with converted samples needs a folder for them, but there can be none: {error}"
    hint = "Choose a folder that can be written to: --out in a shell, the working directory in Python."
    return TrialFailure(kind=FailureKind.UNSUPPORTED, phase=Phase.OPEN, message=message, hint=hint)


def garbled(phase: Phase, line: bytes) -> TrialFailure:
    """Describe a process that sent an unreadable line."""
    message = f"The trial's process must write JSON lines to its channel, but wrote {line[:80]!r}."
    hint = "The workload's code, or a library, writes to a file descriptor that is not its own."
    return TrialFailure(kind=FailureKind.CRASHED, phase=phase, message=message, hint=hint)


_SIGNAL_HINTS = {
    -signal.SIGKILL: "Something outside killed it: a person, a job scheduler, or a memory limit not seen from here.",
    -signal.SIGTERM: "Something outside ended it: a person or a job scheduler.",
    -signal.SIGSEGV: "A native library crashed; the log's tail shows the Python line that called it.",
    -signal.SIGABRT: "A native library gave up; the log's tail shows why, and the Python line that called it.",
}


def _ending(status: int | None) -> str:
    if status is None:
        return "closed its channel"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


_MESSAGE_LIMIT = 2000

_OUT_OF_MEMORY_NAMES = frozenset({"ResourceExhaustedError", "OutOfMemoryError"})  # TensorFlow's; PyTorch's and CuPy's
_OUT_OF_MEMORY_WORDS = ("RESOURCE_EXHAUSTED", "out of memory", "Unable to allocate", "Cannot allocate memory")

_GRAPH = "Graph execution error:"  # begins TensorFlow's text, with the place in its graph, before the cause
_AROUND = re.compile(
    rf"{_GRAPH}|Detected at node |\s+File \"|<stack traces unavailable>|\s*\[\[|\d+ root error|.*most recent call last"
)

_TOO_FEW_OUTPUTS = re.compile(r"Received a label value of \S+ which is outside the valid range")  # TensorFlow's loss

_KIND_HINTS = {
    FailureKind.UNSUPPORTED: "Leave this choice out of the search space.",
    FailureKind.IMPORT: "Import the workload's module by hand to see the whole traceback.",
    FailureKind.BUILD: "Call the workload's `model` by hand and train it on one batch.",
    FailureKind.BAD_DATA: "Mend or remove the sample that is named, or set on_bad_sample='skip' in a workload's file. "
    "`{verify}` lists all samples that cannot be used.",
    FailureKind.OUT_OF_MEMORY: MEMORY_HINT,
    FailureKind.CRASHED: "The end of the trial's log shows where.",
}


_OF_AN_OP = "Mend the op's function; or, if only this sample is odd, remove the sample."  # no op's failure is skipped


def failure_of(error: BaseException, phase: Phase, workload: str | None = None) -> TrialFailure:
    """Return the failure for an exception in `phase`; `workload`: its name, if it was imported by one."""
    kind = kind_of(error, phase)
    if isinstance(error, errors.AutopipeError):
        message, hint = error.message, error.hint
        if isinstance(error, errors.OpError | errors.DataError) and error.__cause__ is not None:
            message = "\n".join([message, *users_lines(error.__cause__)])  # an op's, or a source's
        if isinstance(error, errors.OpError):
            hint = hint or _OF_AN_OP
    else:
        message, hint = f"{type(error).__name__}: {_told(str(error))}".rstrip(": "), None
        message = "\n".join([message, *users_lines(error)])
        if _has_too_few_outputs(error):
            hint = "Give the model's last layer an output for each class, and number the classes from 0."
    if len(message) > _MESSAGE_LIMIT:
        message = f"{message[: _MESSAGE_LIMIT - 1]}…"
    verify = "ap.verify_files(workload)" if workload is None else again.autopipe("verify", "--files", workload)
    hint = hint or _KIND_HINTS.get(kind, "").format(verify=verify) or None
    return TrialFailure(kind=kind, phase=phase, message=message, hint=hint)


def _told(text: str) -> str:
    """Return the text of an exception without the lines that TensorFlow adds to the one that matters."""
    said, is_repeated, repeated = text.partition("Traceback (most recent call last):")  # of a Python function it called
    if is_repeated:
        return "\n".join([re.sub(r"^\{\{.*?\}\}\s*", "", said).strip(), *errors.users_lines_in(repeated)])
    if not text.startswith(_GRAPH):
        return text
    lines = [line for line in text.splitlines() if line.strip() and not _AROUND.match(line)]
    return re.sub(r"\s*\[Op:.*\]$", "", "\n".join(lines)) or text


def kind_of(error: BaseException, phase: Phase) -> FailureKind:
    """Return the kind of failure for an exception in `phase`."""
    if _is_out_of_memory(error):
        return FailureKind.OUT_OF_MEMORY
    match error:
        case errors.ConfigError() | errors.MissingExtraError() | errors.StorageError() | NotImplementedError():
            return FailureKind.UNSUPPORTED
        case errors.WorkerDiedError():
            return FailureKind.CRASHED
        case errors.LoaderError():
            return FailureKind.UNSUPPORTED if phase is Phase.OPEN else FailureKind.CRASHED
        case errors.ModelError():
            return FailureKind.BUILD
        case errors.DataError() | errors.OpError():
            return FailureKind.BAD_DATA
    if _has_too_few_outputs(error):  # an error that shows at the first batch with such a label
        return FailureKind.BUILD
    match phase:
        case Phase.START | Phase.IMPORT:
            return FailureKind.IMPORT
        case Phase.BUILD | Phase.WARM_UP:
            return FailureKind.BUILD
    return FailureKind.BAD_DATA if isinstance(error, errors.WorkloadError) else FailureKind.CRASHED


def _has_too_few_outputs(error: BaseException) -> bool:
    return _TOO_FEW_OUTPUTS.search(str(error)) is not None


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if type(error).__name__ in _OUT_OF_MEMORY_NAMES:
        return True
    is_ours = isinstance(error, errors.AutopipeError)
    return not is_ours and any(words in str(error) for words in _OUT_OF_MEMORY_WORDS)
