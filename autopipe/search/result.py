"""What a search hands back. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import optuna

from autopipe.core.config import PipelineConfig
from autopipe.core.costs import CostProfile
from autopipe.core.facts import Ceiling
from autopipe.core.outcome import Measurement, Resources, TrialFailure
from autopipe.core.stats import Comparison
from autopipe.core.value import Estimate
from autopipe.search.confirmation import Confirmation
from autopipe.search.conversions import Payback
from autopipe.search.effects import Effect
from autopipe.search.feasible import Drop
from autopipe.search.row import Row
from autopipe.search.stopping import Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineResult:
    """A baseline, and how much faster the best is."""

    name: str
    config: PipelineConfig  # what ran
    # images/s in the confirmation run if there was one, else in the search; None if it failed
    estimate: Estimate | None
    failure: TrialFailure | None  # why it failed, if it did
    gain: Comparison | None  # of the best over it, in pairs of blocks; None without a confirmation, or of the best


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCount:
    """What a number of devices came to."""

    devices: int
    model_images_per_second: float | None  # the model alone on them, in its fastest setup; None if it was not measured
    images_per_second: float | None  # the best measured configuration on them; None if none was


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search found."""

    best_config: PipelineConfig | None  # the configuration to use; None if none could be measured
    estimate: Estimate | None  # its images/s: the confirmation run's figure if `proved`, else the search's
    measurement: Measurement | None  # its last measurement
    proved: bool  # whether a confirmation ran to its end; without, `estimate` is the best of many and too good
    # what the confirmation run says; None without one. Of those as good as the fastest, `best_config` is the cheapest
    confirmation: Confirmation | None
    baselines: Sequence[BaselineResult]  # what it was compared with
    ceiling: Ceiling | None  # what no configuration like the best can exceed; None if it was not measured
    stopped_because: Stop  # why the search ended
    trials: Sequence[Row]  # every trial of the study that ran, the confirmation run's blocks included
    dropped: Sequence[Drop]  # what was left out before running, with the reason
    seconds: float  # how long all of it took, earlier sessions of the study included
    measuring_seconds: float  # the part of it inside trials, and on ceilings in this session
    # how much the baselines' rates changed from the beginning to the confirmation run: 0.06 is 6 % faster; beyond 0.05
    # either way, something else was using the machine
    drift: float | None
    interrupted: bool  # whether the user ended it
    epochs: int | None  # over which one-time costs were charged; None if the training's length is not known
    paybacks: Sequence[Payback]  # what each storage form that was tried costs, and when it pays; the fastest first
    study: optuna.Study  # the Optuna study that holds all of this
    unsaved: str | None = None  # why the last trials are in memory only; None if the storage has them all
    # what each trial that broke a limit of the user's would take over all of the data
    over_limits: Sequence[Resources] = ()
    device_counts: Sequence[DeviceCount] = ()  # what each number of devices came to, fewest first
    virtual_devices: bool = False  # whether devices are virtual: parts of the CPU
    resident_share: float | None = None  # of the files, what was in memory when the tune began, 0 to 1
    hosts: int = 1  # how many share each batch; all figures are of one of them
    effects: Sequence[Effect] = ()  # what each setting of the best is worth
    ways: Sequence[tuple[PipelineConfig, CostProfile]] = ()  # ways to keep samples: their cost, and their rate then

    @property
    def failed(self) -> Sequence[Row]:
        """The trials that gave no measurement."""
        return [row for row in self.trials if not isinstance(row.outcome, Measurement)]

    @property
    def share_of_ceiling(self) -> float | None:
        """How much of what the model can take the best reaches, 0 to 1; None if either is not known, or the
        model alone was read too low.

        Read side by side where that was done, else from figures of different moments.
        """
        if self.confirmation is not None and self.confirmation.reached_share is not None:
            return self.confirmation.reached_share.value
        if self.estimate is None or self.ceiling is None or self.ceiling.is_overtaken_by(self.estimate):
            return None
        return min(1.0, self.estimate.value / self.ceiling.model_images_per_second.value)
