from __future__ import annotations

import pytest

from autopipe.api.trial_measurer import failed
from autopipe.core.outcome import FailureKind, Phase, TrialFailure
from autopipe.errors import NothingMeasuredError, WorkloadError


def failure(kind: FailureKind) -> TrialFailure:
    return TrialFailure(kind=kind, phase=Phase.FIRST_BATCH, message="Broken.", hint="Mend it.", log_tail="last words")


@pytest.mark.parametrize("kind", [FailureKind.IMPORT, FailureKind.BUILD, FailureKind.BAD_DATA, FailureKind.UNSUPPORTED])
def test_what_is_the_workloads_fault_is_said_as_it_is(kind: FailureKind) -> None:
    error = failed(failure(kind))
    assert isinstance(error, WorkloadError)
    assert (error.message, error.hint) == ("Broken.", "Mend it.")


@pytest.mark.parametrize("kind", [FailureKind.CRASHED, FailureKind.HUNG, FailureKind.OUT_OF_MEMORY])
def test_what_the_trial_met_is_said_with_the_phase_and_its_last_words(kind: FailureKind) -> None:
    error = failed(failure(kind))
    assert isinstance(error, NothingMeasuredError)
    assert error.message == "Broken. (in phase: first batch)\n\nThe end of the log:\nlast words"
