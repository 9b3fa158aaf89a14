"""Adds later measurements to an artefact, so that its report shows them."""

from __future__ import annotations

from pathlib import Path

from autopipe import again
from autopipe.artifact import artifact as files
from autopipe.artifact import joining, pick
from autopipe.artifact.schema import Profile
from autopipe.errors import ArtifactError
from autopipe.hardware import machine
from autopipe.measure.facts import Description
from autopipe.measure.fingerprint import MatchLevel
from autopipe.measure.outcome import StepTime
from autopipe.search.search_facts import hardware_of
from autopipe.workload.mode import Mode


def step_time(path: Path, found: StepTime, described: Description) -> Profile:
    """Keep the model's step time in the profile of this machine, in place of an earlier one of the same mode.

    Args:
        path: the artefact.
        found: the measured step time.
        described: the workload that was measured.

    Returns:
        The new profile.

    Raises:
        ArtifactError: the artefact has no profile of this machine and this model, or cannot be read or written.
    """
    known = files.read(path)
    profile, match = pick.nearest(known, hardware_of(machine.detect(), described))
    renew = f"Run: {again.autopipe('retune', path)}"
    if match.level is not MatchLevel.SAME:
        raise ArtifactError(f"`{path}` has no profile of this machine to keep a step's time in.", hint=renew)
    if profile.workload.model is not None and profile.workload.model != described.model_digest:
        raise ArtifactError(f"`{path}` is of another model than the one that was measured.", hint=renew)
    others = (each for each in profile.step_times if each.mode != found.mode)
    step_times = tuple(sorted((*others, found), key=lambda each: list(Mode).index(each.mode)))
    kept = profile.model_copy(update={"step_times": step_times})
    joining.renew(known, kept, path)
    return kept
