"""The settings of a search, from the command line down to the study, and their part that an artifact keeps.

`Settings` are those of one search. A `Request` is what a tune was asked for: `request_of` makes it, and
`retune_settings` gives the settings of a retune from it. Optuna is not imported: reading an artifact needs none of it.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import pydantic

from autopipe.errors import ConfigError, SpaceError, shortened
from autopipe.hardware import gpu
from autopipe.measure.facts import Limits
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.search import space as spaces
from autopipe.values import Count, Positive, Value
from autopipe.workload.mode import Mode

STUDY = "autopipe"
"""The name of a study that has a storage to itself."""

BLOCKS: Final = (3, 12)
"""Fewest and most rounds of a confirmation run; half of the most tell configurations of autopipe's apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a search."""

    space: str = "default"  # the name of a shipped search space, or a YAML file
    storage: str | None = None  # an Optuna storage URL such as "sqlite:///study.db"; None keeps the study in memory
    trials: int = 30  # the most, baselines included and the confirmation run's blocks not
    budget_seconds: float | None = 120.0  # with the confirmation run; None for as long as it takes
    end_seconds: float = 0.0  # of the budget, kept for the time after the search: the result, the report, the exit
    began: float | None = None  # of the budget, by `clock`, such as before an import; None: with the search
    seed: int = 0  # of everything random in the search
    sampler: Callable[[int], Any] | None = None  # makes another sampler of Optuna's than TPE, from a seed
    known: Sequence[PipelineConfig] = ()  # did well elsewhere or before; tried before the sampler's
    limits: Limits = field(default_factory=Limits)
    baseline: str | None = None  # the user's own pipeline, "FILE.py:function", which the winner has to beat
    convert: bool | None = None  # samples may be kept in another form; None: only if epochs are known
    page_cache: Literal["warm", "cold", "auto"] = "auto"  # the state of the files before a trial
    simulate: SimulatedAccelerator | None = None  # a simulated accelerator in place of the workload's model
    virtual_devices: int = field(default_factory=gpu.asked)  # that the CPU is split into; 0 leaves it whole
    mode: Mode = Mode.TRAIN  # of the model's steps: a tune may also be for evaluation or prediction
    epochs: int | None = None  # over which one-time costs (cache fill, conversion, start) are charged; None: none are
    patience: int = 10  # stop after this many trials in a row without a gain beyond the interval
    # a search ends at this share of the ceiling: by then a trial costs little, and 3 % would be given away; up to 2 %
    # less is enough if measurements vary too much to show more
    reached_share: float = 0.99
    finalists: int = 3  # the best ones to prove, beside the baselines
    blocks: tuple[int, int] = BLOCKS  # fewest and most rounds of the confirmation run; (0, 0) leaves it out
    study_name: str = STUDY  # in the storage; one study is one workload on one kind of machine
    digests: Mapping[str, str] = field(default_factory=dict)  # must be equal to resume a study
    fresh: bool = False  # begin anew even if there is such a study
    trace: str | None = None  # the file of a trace that is begun
    command: str = ""  # the line that repeats it, for readers of the result
    clock: Callable[[], float] = time.monotonic  # monotonic seconds

    def __post_init__(self) -> None:
        seed: Any = self.seed  # a user may write anything
        most = 2**32 - 1  # that NumPy and Optuna take
        if not isinstance(seed, numbers.Integral) or not 0 <= int(seed) <= most:
            raise ConfigError(f"`seed` must be a whole number from 0 to {most}, but got {shortened(seed)}.")
        if self.baseline is not None and not all(self.baseline.rpartition(":")):
            raise ConfigError(
                f"`baseline` must name a function of your own, but got {shortened(self.baseline)}.",
                hint="Write `bench.py:make_dataset` or `package.module:make_dataset`. A tune compares with "
                "usual pipelines in any case.",
            )
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


# -------------------- request: what an artifact keeps


class Request(Value):
    """The settings of the tune that made a profile, which a retune repeats; see the same names in `Settings`."""

    space: str = pydantic.Field(default="default", max_length=4096)
    trials: int = pydantic.Field(default=30, ge=1)
    budget_seconds: Positive | None = None
    limits: Limits = Limits()
    convert: bool | None = None
    epochs: int | None = pydantic.Field(default=None, ge=1)
    simulate: SimulatedAccelerator | None = None
    virtual_devices: Count = 0
    mode: Annotated[Mode, pydantic.Field(strict=False)] = Mode.TRAIN
    page_cache: Literal["warm", "cold", "auto"] = "auto"
    seed: int = 0

    @property
    def asked(self) -> Asked:
        """What else a profile is of, beside its machine and workload."""
        return self.mode, self.simulate


Asked: TypeAlias = tuple[Mode, SimulatedAccelerator | None]
"""What was tuned for: a mode, and an accelerator if one was simulated."""

TRAINING: Final[Asked] = (Mode.TRAIN, None)


_RETUNE_TRIALS: Final = 0.5  # a retune's share of a tune's trials: the known configurations come first
_RETUNE_BUDGET: Final = 0.75  # and of its time

_OPTIONS: Final = {
    "space": "--space {}",
    "limits.memory_bytes": "--max-memory {}B",
    "limits.workers": "--max-workers {}",
    "epochs": "--epochs {}",
    "simulate": "--simulate-step {}",
    "virtual_devices": "--virtual-devices {}",
    "mode": "--mode {}",
    "page_cache": "--page-cache {}",
    "seed": "--seed {}",
}


def request_of(settings: Settings, *, retune: bool = False) -> Request:
    """Return the request that a profile keeps. A retune has a share of a tune's trials and time."""
    trials, budget = (_RETUNE_TRIALS, _RETUNE_BUDGET) if retune else (1.0, 1.0)
    kept: dict[str, Any] = {name: getattr(settings, name) for name in Request.model_fields}
    kept["space"] = settings.space if settings.space in spaces.names() else str(Path(settings.space).absolute())
    kept["trials"] = round(settings.trials / trials)
    kept["budget_seconds"] = None if settings.budget_seconds is None else settings.budget_seconds / budget
    return Request(**kept)


def step_text(simulated: SimulatedAccelerator) -> str:
    """Return a simulated accelerator as `--simulate-step` takes it."""
    milliseconds = f"{1e3 * simulated.step_seconds:g}ms"
    return milliseconds if simulated.batch_size is None else f"{milliseconds}/{simulated.batch_size}"


def retune_settings(request: Request, settings: Settings, given: Collection[str], folder: Path) -> Settings:
    """Return the settings of a retune: those of the tune, except for the ones that are given now. Virtual devices in
    the environment count as given: a training there will have as many. `settings` are those of the command, with the
    defaults of a retune; `given` names the fields of `Settings` and `Limits` to take from it. `folder` is the
    artifact's. Raises SpaceError if the file of the tune's search space is gone.
    """
    known: dict[str, Any] = dict(request) | {
        "space": request.space if "space" in given else _space(request.space, folder),
        "trials": max(1, math.ceil(request.trials * _RETUNE_TRIALS)),
        "budget_seconds": None if request.budget_seconds is None else request.budget_seconds * _RETUNE_BUDGET,
        "limits": dataclasses.replace(
            request.limits,
            only={**request.limits.only, **settings.limits.only},
            **{name: getattr(settings.limits, name) for name in ("memory_bytes", "workers") if name in given},
        ),
        "virtual_devices": gpu.asked() or request.virtual_devices,
    }
    return dataclasses.replace(settings, **{name: value for name, value in known.items() if name not in given})


def simulation(request: Request) -> Settings:
    """Return settings with the simulated hardware of a tune: an accelerator and virtual devices."""
    return Settings(simulate=request.simulate, virtual_devices=request.virtual_devices, mode=request.mode)


def _space(space: str, folder: Path) -> str:
    if space in spaces.names() or Path(space).is_file():
        return space
    if (beside := folder / Path(space).name).is_file():
        return str(beside)
    raise SpaceError(
        f"The profile was made with the search space `{space}`, which is not there any more.",
        hint="Name it, or another one, with --space.",
    )


def as_options(settings: Settings) -> str:
    """Return the options of a search that differ from the defaults, quoted for a shell; "" if none does."""
    request, usual, said = request_of(settings), Request(), []
    for name, text in _OPTIONS.items():
        if (value := attrgetter(name)(request)) != attrgetter(name)(usual):
            value = step_text(value) if isinstance(value, SimulatedAccelerator) else value
            said.append(text.format(shlex.quote(str(value))))
    said += ["--convert" if request.convert else "--no-convert"] if request.convert is not None else []
    for name, values in request.limits.only.items():
        texts = ",".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
        said.append(f"--only {shlex.quote(f'{name}={texts}')}")
    return " ".join(said)
