"""From what a trial raised to the kind of its failure: one table, read from top to bottom. Imports no framework."""

from __future__ import annotations

import errno
import re
import sysconfig
import traceback
from pathlib import Path

from autopipe import errors
from autopipe.core.outcome import FailureKind, Phase, TrialFailure
from autopipe.trial.verdict import MEMORY_HINT

_MESSAGE_LIMIT = 2000

_OUT_OF_MEMORY_NAMES = frozenset({"ResourceExhaustedError", "OutOfMemoryError"})  # TensorFlow's; PyTorch's and CuPy's
_OUT_OF_MEMORY_WORDS = ("RESOURCE_EXHAUSTED", "out of memory", "Unable to allocate", "Cannot allocate memory")

_GRAPH = "Graph execution error:"  # how TensorFlow begins, with the place in its graph, before it says what happened
_AROUND = re.compile(
    rf"{_GRAPH}|Detected at node |\s+File \"|<stack traces unavailable>|\s*\[\[|\d+ root error|.*most recent call last"
)
_NOT_OWN = (
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    str(Path(errors.__file__).parent),
    "<",
)

_TOO_FEW_OUTPUTS = re.compile(r"Received a label value of \S+ which is outside the valid range")  # TensorFlow's loss

_HINTS = {
    FailureKind.UNSUPPORTED: "Leave this choice out of the search space.",
    FailureKind.IMPORT: "Import the workload's module by hand to see the whole traceback.",
    FailureKind.BUILD: "Call the workload's `model` by hand and train it on one batch.",
    FailureKind.BAD_DATA: "Mend or remove the sample that is named, or set on_bad_sample='skip' in a workload's file. "
    "`autopipe verify --files`, of the same workload, lists all samples that cannot be used.",
    FailureKind.OUT_OF_MEMORY: MEMORY_HINT,
    FailureKind.CRASHED: "The end of the trial's log shows where.",
}


_OF_AN_OP = "Mend the op's function; or, if only this sample is odd, remove the sample."  # no op's failure is skipped


def failure_of(error: BaseException, phase: Phase) -> TrialFailure:
    """Return the failure that an exception in `phase` amounts to."""
    kind = kind_of(error, phase)
    if isinstance(error, errors.AutopipeError):
        message, hint = error.message, error.hint
        if isinstance(error, errors.OpError | errors.DataError) and error.__cause__ is not None:
            message += "".join(f"\n{line}" for line in _users_line(error.__cause__))  # an op's, or a source's
        if isinstance(error, errors.OpError):
            hint = hint or _OF_AN_OP
    else:
        message, hint = f"{type(error).__name__}: {_told(str(error))}".rstrip(": "), None
        message += "".join(f"\n{line}" for line in _users_line(error))
        if _has_too_few_outputs(error):
            hint = "Give the model's last layer an output for each class, and number the classes from 0."
    if len(message) > _MESSAGE_LIMIT:
        message = f"{message[: _MESSAGE_LIMIT - 1]}…"
    return TrialFailure(kind=kind, phase=phase, message=message, hint=hint or _HINTS.get(kind))


def _told(text: str) -> str:
    """Return the text of an exception without what TensorFlow puts around the one line that tells something."""
    if not text.startswith(_GRAPH):
        return text
    lines = [line for line in text.splitlines() if line.strip() and not _AROUND.match(line)]
    return re.sub(r"\s*\[Op:.*\]$", "", "\n".join(lines)) or text


def _users_line(error: BaseException) -> list[str]:
    """Return the last line of the user's own code that led there; nothing where none did."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith(_NOT_OWN) and "__autograph_" not in each.filename]
    return [f"  {Path(frame.filename).name}, line {frame.lineno}, in {frame.name}: {frame.line}" for frame in own[-1:]]


def kind_of(error: BaseException, phase: Phase) -> FailureKind:
    """Return the kind of failure that an exception in `phase` amounts to."""
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
    if _has_too_few_outputs(error):  # which shows at the first batch that has such a label
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
