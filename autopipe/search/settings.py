"""The settings of a search, from the command line down to the study. Values only, with the defaults of a tune."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from autopipe.errors import ConfigError, shortened
from autopipe.hardware import gpu
from autopipe.measure.facts import Limits
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.search.result import BLOCKS
from autopipe.search.samplers import SURROGATE, Sampler

STUDY = "autopipe"
"""The name of a study that has a storage to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a search."""

    space: str = "default"  # the name of a shipped search space, or a YAML file
    # an Optuna storage URL such as "sqlite:///study.db"; None keeps the study in memory
    storage: str | None = None
    trials: int = 30  # the most, baselines included and the confirmation run's blocks not
    budget_seconds: float | None = 120.0  # with the confirmation run; None for as long as it takes
    end_seconds: float = 0.0  # of the budget, kept for the time after the search: the result, the report, the exit
    # the reading of `clock` at which the budget began, such as before the import of the workload; None: with the search
    began: float | None = None
    seed: int = 0  # of everything random in the search
    sampler: Sampler = SURROGATE  # chooses the next configuration
    seeding: bool = True  # baselines and predictions are tried first
    known: Sequence[PipelineConfig] = ()  # did well elsewhere or before; tried instead of the predictions
    limits: Limits = field(default_factory=Limits)
    baseline: str | None = None  # the user's own pipeline, "FILE.py:function", which the winner has to beat
    convert: bool | None = None  # samples may be kept in another form; None: only if epochs are known
    page_cache: Literal["warm", "cold", "auto"] = "auto"  # the state of the files before a trial
    isolation: Literal["warm", "process"] = "warm"  # "warm", one process for many trials, or "process", one for each
    simulate: SimulatedAccelerator | None = None  # a simulated accelerator in place of the workload's model
    virtual_devices: int = field(default_factory=gpu.asked)  # that the CPU is split into; 0 leaves it whole
    hosts: int = 1  # hosts that share each batch; one host's part of it is tuned
    epochs: int | None = None  # over which one-time costs (cache fill, conversion, start) are charged; None: none are
    patience: int = 10  # stop after this many trials in a row without a gain beyond the interval
    # a baseline that reaches this share of the ceiling is left as it is; up to 2 % less is enough if measurements
    # vary too much to show more
    ceiling_share: float = 0.97
    # a search that has begun ends at this share of the ceiling, the higher one: by then a trial costs little, and 3 %
    # would be given away
    reached_share: float = 0.99
    finalists: int = 3  # the best ones to prove, beside the baselines
    # fewest and most rounds of the confirmation, which may end early with the budget; (0, 0) leaves it out
    blocks: tuple[int, int] = BLOCKS
    study_name: str = STUDY  # in the storage; one study is one workload on one kind of machine
    digests: Mapping[str, str] = field(default_factory=dict)  # must be equal to resume a study
    fresh: bool = False  # begin anew even if there is such a study
    join: bool = False  # share the study with other processes that search for the same on machines like this one
    # additional options of a configuration's trial
    options: Callable[[PipelineConfig], Mapping[str, str]] = lambda config: {}
    command: str = ""  # the line that repeats it, for readers of the result
    clock: Callable[[], float] = time.monotonic  # monotonic seconds

    @property
    def search_seconds(self) -> float | None:
        """The part of the budget for the search itself; None without a budget."""
        return None if self.budget_seconds is None else max(0.0, self.budget_seconds - self.end_seconds)

    def __post_init__(self) -> None:
        if not isinstance(self.trials, int) or self.trials < 1:
            raise ConfigError(f"`trials` must be a whole number of 1 or more, but got {shortened(self.trials)}.")
        if not isinstance(self.budget_seconds, int | float | None):
            raise ConfigError(
                f"`budget` must be a number of seconds, or None, but got {shortened(self.budget_seconds)}.",
                hint="`budget=120` is two minutes; `--budget 2m` on a command line.",
            )
        if self.budget_seconds is not None and not 0 < self.budget_seconds < math.inf:
            raise ConfigError(
                f"The budget must be longer than 0 s and come to an end, but got {self.budget_seconds:g} s.",
                hint="`--budget 1h` is an hour; in Python, budget=None takes as long as the trials do.",
            )
