"""From what a trial raised to the kind of its failure: one table, read from top to bottom. Imports no framework."""

from __future__ import annotations

import errno

from autopipe import errors
from autopipe.core.outcome import FailureKind, Phase, TrialFailure

_MESSAGE_LIMIT = 2000

_OUT_OF_MEMORY_NAMES = frozenset({"ResourceExhaustedError", "OutOfMemoryError"})  # TensorFlow's; PyTorch's and CuPy's
_OUT_OF_MEMORY_WORDS = ("RESOURCE_EXHAUSTED", "out of memory", "Unable to allocate", "Cannot allocate memory")

_HINTS = {
    FailureKind.UNSUPPORTED: "Leave this choice out of the search space.",
    FailureKind.IMPORT: "Import the workload's module by hand to see the whole traceback.",
    FailureKind.BUILD: "Call the workload's `model` by hand and train it on one batch.",
    FailureKind.BAD_DATA: "Mend or remove the sample that is named, or set on_bad_sample='skip' in the workload.",
    FailureKind.OUT_OF_MEMORY: "Use fewer workers, a shorter queue, a smaller batch or no memory cache.",
    FailureKind.CRASHED: "The end of the trial's log shows where.",
}


def failure_of(error: BaseException, phase: Phase) -> TrialFailure:
    """Return the failure that an exception in `phase` amounts to."""
    kind = kind_of(error, phase)
    if isinstance(error, errors.AutopipeError):
        message, hint = error.message, error.hint
    else:
        message, hint = f"{type(error).__name__}: {error}".rstrip(": "), None
    if len(message) > _MESSAGE_LIMIT:
        message = f"{message[: _MESSAGE_LIMIT - 1]}…"
    return TrialFailure(kind=kind, phase=phase, message=message, hint=hint or _HINTS.get(kind))


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
    match phase:
        case Phase.START | Phase.IMPORT:
            return FailureKind.IMPORT
        case Phase.BUILD | Phase.WARM_UP:
            return FailureKind.BUILD
    return FailureKind.BAD_DATA if isinstance(error, errors.WorkloadError) else FailureKind.CRASHED


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if type(error).__name__ in _OUT_OF_MEMORY_NAMES:
        return True
    is_ours = isinstance(error, errors.AutopipeError)
    return not is_ours and any(words in str(error) for words in _OUT_OF_MEMORY_WORDS)
