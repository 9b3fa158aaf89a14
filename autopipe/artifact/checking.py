"""Checks whether a tuned configuration still fits this machine and workload, and is as fast as it was."""

from __future__ import annotations

import datetime
import os
import time
from typing import Final

from autopipe.artifact import check as rules
from autopipe.artifact import pick
from autopipe.artifact.check import Rates, Result
from autopipe.artifact.pin import Stored
from autopipe.errors import NothingMeasuredError
from autopipe.hardware import machine
from autopipe.measure import fingerprint
from autopipe.measure.facts import Description
from autopipe.measure.fingerprint import Hardware
from autopipe.measure.stats import FEWEST_PAIRS
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import PipelineConfig
from autopipe.search import lock
from autopipe.search.events import OnEvent
from autopipe.search.searching import description, hardware_of, queue_of, runner_for, workload_digest
from autopipe.search.settings import rehearsal
from autopipe.search.trial_measurer import succeeded
from autopipe.values import Estimate, JsonObject

_DRIFT: JsonObject = {"min_seconds": 5.0, "max_seconds": 12.0}
_AGAIN: JsonObject = {"min_seconds": 3.0, "max_seconds": 6.0}  # in the rounds after the first
_ALONE: JsonObject = {"model_only": True, "again": True}
_LONG_SECONDS: Final = 45.0
"""No further round begins that would last longer; with slow steps the first round, the longest, has to be enough."""


def check(stored: Stored, *, quick: bool, on_search: OnEvent = lambda event: None) -> Result:
    """Check the profile that an artefact has for this machine.

    Args:
        stored: the artefact.
        quick: compare fingerprints only, and measure nothing.
        on_search: hears of a wait for another process that measures on this machine.

    Raises:
        WorkloadError: the workload cannot be imported.
        NothingMeasuredError: the configuration no longer runs, or another process still measures on this machine after
            the longest wait.
    """
    profile, _ = pick.nearest(stored.artifact, fingerprint.detect())
    beside = stored.path.parent if os.access(stored.path.parent, os.W_OK) else None  # it may be a share for reading
    with runner_for(stored.workload, rehearsal(profile.request), folder=beside) as runner:
        described = description(runner)
        here = hardware_of(machine.detect(), described)
        return check_with(runner, described, stored, here, quick=quick, queue=queue_of(on_search))


def check_with(
    runner: TrialRunner,
    described: Description,
    stored: Stored,
    here: Hardware,
    *,
    quick: bool,
    queue: lock.Queue | None = None,
) -> Result:
    """Check the profile of this machine, which is `here`, with an existing runner."""
    in_turn = queue or lock.Queue(lambda who: None)

    def measured(config: PipelineConfig) -> Rates:
        with in_turn.held(lock.MEASURING):
            return _rates(runner, config)

    return rules.check(
        stored.artifact,
        here,
        datetime.datetime.now(datetime.UTC),
        workload=lambda: workload_digest(described),
        measure=None if quick else measured,
    )


def _rates(runner: TrialRunner, config: PipelineConfig) -> Rates:
    """Measure the model alone and the pipeline alternately, so that a change of the machine's speed affects both."""
    began = time.monotonic()
    rounds = [_round(runner, config, _DRIFT)]
    took = time.monotonic() - began
    while len(rounds) < FEWEST_PAIRS and time.monotonic() - began + took < _LONG_SECONDS:
        at = time.monotonic()
        try:
            rounds.append(_round(runner, config, _AGAIN))
        except NothingMeasuredError:  # after a temporary failure, the first round is still valid
            break
        took = time.monotonic() - at
    return Rates.by_turns(rounds)


def _round(runner: TrialRunner, config: PipelineConfig, seconds: JsonObject) -> tuple[Estimate, Estimate]:
    """Return images/s of the pipeline and of the model alone, which runs first."""
    alone = succeeded(runner.ceiling(config.model_setup, _ALONE))
    return succeeded(runner.measure(config, seconds)).images_per_second, alone.model_images_per_second
