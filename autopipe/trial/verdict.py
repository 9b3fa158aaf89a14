"""How a trial that gave no answer is judged and worded. Pure: what happened comes in as a value, a failure goes out."""

from __future__ import annotations

import dataclasses
import signal

from autopipe.core.outcome import FailureKind, Phase, TrialFailure
from autopipe.hardware.memory import size_text
from autopipe.trial.deadlines import VARIABLE

_MORE = f"If it is only slow: {VARIABLE}=4 in the environment allows four times as long."
MEMORY_HINT = "Use fewer workers, a shorter queue, a smaller batch or no memory cache."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is known of a trial's memory."""

    peak_bytes: int  # the most that its processes were seen to hold
    limit_bytes: int  # what they may hold
    oom_kills: int = 0  # how often the kernel killed a process of their cgroup for memory meanwhile

    @property
    def exceeded(self) -> bool:
        """Return whether there is too much of it."""
        return self.peak_bytes > self.limit_bytes


def silent(phase: Phase, seconds: float) -> TrialFailure:
    """Word a trial that gave no sign of life."""
    message = f"No sign of life for {seconds:.3g} s in phase `{phase}`, which is all that this phase may be silent."
    hint = f"The log's tail shows where each thread stood. {_MORE}"
    return TrialFailure(kind=FailureKind.HUNG, phase=phase, message=message, hint=hint)


def cut(phase: Phase) -> TrialFailure:
    """Return the failure of a trial that was under way when the time for all of them was over."""
    message = "The budget has no time left for this trial."
    return TrialFailure(kind=FailureKind.INTERRUPTED, phase=phase, message=message)


def overdue(phase: Phase, seconds: float) -> TrialFailure:
    """Word a trial that went on and on."""
    message = f"Still in phase `{phase}` after {seconds:.3g} s, which is all that a trial may take."
    hint = f"This configuration, or the machine, is very slow. {_MORE}"
    return TrialFailure(kind=FailureKind.TIMEOUT, phase=phase, message=message, hint=hint)


def too_large(phase: Phase, memory: Memory) -> TrialFailure:
    """Word a trial that was ended before the kernel had to."""
    most, held = size_text(memory.limit_bytes), size_text(memory.peak_bytes)
    message = f"The trial's processes may hold {most} together, but held {held}."
    return TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=phase, message=message, hint=MEMORY_HINT)


def dead(phase: Phase, status: int | None, memory: Memory) -> TrialFailure:
    """Word a process that ended, or closed its channel (`status` None), without an answer."""
    killed = status == -signal.SIGKILL
    held = f"; the trial's processes held {size_text(memory.peak_bytes)}" if killed and memory.peak_bytes else ""
    if killed and memory.oom_kills > 0:
        message = f"The kernel killed the trial's process (SIGKILL) in phase `{phase}` because memory was short{held}."
        return TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=phase, message=message, hint=MEMORY_HINT)
    message = f"The trial's process {_ending(status)} in phase `{phase}` without an answer{held}."
    hint = _HINTS.get(status or 0, "The log's tail may show why.")
    return TrialFailure(kind=FailureKind.CRASHED, phase=phase, message=message, hint=hint)


def blamed_on_memory(failure: TrialFailure, memory: Memory) -> TrialFailure:
    """Return a crash as out of memory, if the kernel has just killed a process (a worker, say) for that."""
    if failure.kind is not FailureKind.CRASHED or memory.oom_kills == 0:
        return failure
    return failure.model_copy(update={"kind": FailureKind.OUT_OF_MEMORY, "hint": MEMORY_HINT})


def without_folder(error: OSError) -> TrialFailure:
    """Word a trial whose converted samples can be written nowhere."""
    message = f"A trial with converted samples needs a folder for them, but there can be none: {error}"
    hint = "Choose a folder that can be written to: --out in a shell, the working directory in Python."
    return TrialFailure(kind=FailureKind.UNSUPPORTED, phase=Phase.OPEN, message=message, hint=hint)


def garbled(phase: Phase, line: bytes) -> TrialFailure:
    """Word a process whose line cannot be understood."""
    message = f"The trial's process must write JSON lines to its channel, but wrote {line[:80]!r}."
    hint = "The workload's code, or a library, writes to a file descriptor that is not its own."
    return TrialFailure(kind=FailureKind.CRASHED, phase=phase, message=message, hint=hint)


_HINTS = {
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
