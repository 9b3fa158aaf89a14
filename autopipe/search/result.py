"""What a search hands back. Values only."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import optuna

from autopipe.core.ceiling import Ceiling
from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import Measurement, Resources, TrialFailure
from autopipe.core.payback import CostProfile
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
    """A baseline, and how much faster the best is.

    Attributes:
        name: the baseline's.
        config: what ran.
        estimate: its images/s: in the confirmation run if there was one, else in the search; None if it failed.
        failure: why it failed, if it did.
        gain: how many times faster the best ran, in pairs of blocks; None without a confirmation, or if it is the best.
    """

    name: str
    config: PipelineConfig
    estimate: Estimate | None
    failure: TrialFailure | None
    gain: Comparison | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCount:
    """What a number of devices came to.

    Attributes:
        devices: how many.
        model_images_per_second: the model alone on them, in its fastest setup; None if it was not measured.
        images_per_second: the best measured configuration on them; None if none was.
    """

    devices: int
    model_images_per_second: float | None
    images_per_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search found.

    Attributes:
        best_config: the configuration to use; None if none could be measured.
        estimate: its images/s: the confirmation run's figure if `proved`, else the search's.
        measurement: its last measurement.
        proved: whether a confirmation ran to its end. Without, `estimate` is the best of many and too good to be true.
        confirmation: what the confirmation run says; None without one. Of those as good as the fastest, `best_config`
            is the cheapest.
        baselines: what it was compared with.
        ceiling: what no configuration like the best can exceed; None if it was not measured.
        stopped_because: why the search ended.
        trials: every trial of the study that ran, the confirmation run's blocks included.
        over_limits: what each trial that broke a limit of the user's would take over all of the data.
        dropped: what was left out before running, with the reason.
        seconds: how long all of it took, earlier sessions of the study included.
        measuring_seconds: the part of it inside trials, and on ceilings in this session.
        drift: how much the baselines' rates changed from the beginning to the confirmation run: 0.06 is 6 % faster.
            Beyond 0.05 either way, something else was using the machine.
        interrupted: whether the user ended it.
        epochs: over which one-time costs were charged; None if the training's length is not known.
        paybacks: what each storage form that was tried costs, and when it pays; the fastest first.
        device_counts: what each number of devices came to, fewest first.
        hosts: how many share each batch; all figures are of one of them.
        virtual_devices: whether devices are virtual: parts of the CPU.
        effects: what each setting of the best is worth.
        ways: what each way to keep samples costs once, and how fast it is then.
        ended_at: when, of a study that is shared; None of others, whose end is now.
        unsaved: why the last trials are in memory only, and not in the storage; None if the storage has them all.
        study: the Optuna study that holds all of this.
    """

    best_config: PipelineConfig | None
    estimate: Estimate | None
    measurement: Measurement | None
    proved: bool
    confirmation: Confirmation | None
    baselines: Sequence[BaselineResult]
    ceiling: Ceiling | None
    stopped_because: Stop
    trials: Sequence[Row]
    dropped: Sequence[Drop]
    seconds: float
    measuring_seconds: float
    drift: float | None
    interrupted: bool
    epochs: int | None
    paybacks: Sequence[Payback]
    study: optuna.Study
    ended_at: datetime.datetime | None = None
    unsaved: str | None = None
    over_limits: Sequence[Resources] = ()
    device_counts: Sequence[DeviceCount] = ()
    virtual_devices: bool = False
    hosts: int = 1
    effects: Sequence[Effect] = ()
    ways: Sequence[tuple[PipelineConfig, CostProfile]] = ()

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
