from __future__ import annotations

import errno

import pytest

from autopipe import errors
from autopipe.core.outcome import FailureKind, Phase
from autopipe.trial.classify import failure_of, kind_of


class ResourceExhaustedError(Exception):
    """Named like TensorFlow's."""


@pytest.mark.parametrize(
    ("error", "phase", "kind"),
    [
        (errors.ConfigError("x"), Phase.OPEN, FailureKind.UNSUPPORTED),
        (errors.StorageError("x"), Phase.OPEN, FailureKind.UNSUPPORTED),
        (errors.MissingExtraError("x"), Phase.OPEN, FailureKind.UNSUPPORTED),
        (NotImplementedError("x"), Phase.MEASURE, FailureKind.UNSUPPORTED),
        (errors.LoaderError("/dev/shm is too small"), Phase.OPEN, FailureKind.UNSUPPORTED),
        (errors.LoaderError("lost"), Phase.MEASURE, FailureKind.CRASHED),
        (errors.WorkerDiedError("x"), Phase.OPEN, FailureKind.CRASHED),
        (errors.ModelError("x"), Phase.MEASURE, FailureKind.BUILD),
        (errors.BadSampleError("x"), Phase.BUILD, FailureKind.BAD_DATA),
        (errors.OpError("x"), Phase.MEASURE, FailureKind.BAD_DATA),
        (errors.DataError("no such folder"), Phase.IMPORT, FailureKind.BAD_DATA),
        (errors.WorkloadError("x"), Phase.IMPORT, FailureKind.IMPORT),
        (errors.WorkloadError("x"), Phase.BUILD, FailureKind.BUILD),
        (errors.WorkloadError("x"), Phase.MEASURE, FailureKind.BAD_DATA),
        (ImportError("x"), Phase.IMPORT, FailureKind.IMPORT),
        (ValueError("shapes"), Phase.WARM_UP, FailureKind.BUILD),
        (ValueError("x"), Phase.MEASURE, FailureKind.CRASHED),
        (MemoryError(), Phase.MEASURE, FailureKind.OUT_OF_MEMORY),
        (MemoryError(), Phase.IMPORT, FailureKind.OUT_OF_MEMORY),
        (OSError(errno.ENOMEM, "x"), Phase.OPEN, FailureKind.OUT_OF_MEMORY),
        (ResourceExhaustedError("x"), Phase.WARM_UP, FailureKind.OUT_OF_MEMORY),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), Phase.MEASURE, FailureKind.OUT_OF_MEMORY),
        (SystemExit(1), Phase.MEASURE, FailureKind.CRASHED),
    ],
)
def test_each_exception_has_its_kind(error: BaseException, phase: Phase, kind: FailureKind) -> None:
    assert kind is kind_of(error, phase)


def test_a_message_of_ours_is_kept_with_its_hint() -> None:
    failure = failure_of(errors.ModelError("Rule.", hint="Do."), Phase.BUILD)
    assert (failure.message, failure.hint) == ("Rule.", "Do.")


def test_another_message_names_its_type_and_gets_a_hint() -> None:
    failure = failure_of(ValueError("bad shape"), Phase.WARM_UP)
    assert failure.message == "ValueError: bad shape"
    assert failure.hint is not None


def test_an_exception_without_a_message_has_one() -> None:
    assert failure_of(MemoryError(), Phase.MEASURE).message == "MemoryError"


def test_a_long_message_is_cut() -> None:
    assert len(failure_of(ValueError("x" * 10_000), Phase.MEASURE).message) == 2000
