"""The request of a tune, as its profile keeps it, and the settings by which a retune repeats it."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from autopipe.errors import ConfigError, SpaceError, shortened
from autopipe.hardware import gpu
from autopipe.pipeline.config import Value
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.search import library
from autopipe.search.request import Request, SimulatedStep
from autopipe.search.settings import Settings

TRIALS: Final = 0.5
"""A retune's share of a tune's trials: the known configurations come first."""
BUDGET: Final = 0.75
"""A retune's share of a tune's time."""

_LIMITS: Final = {"memory_bytes": "max_memory_bytes", "workers": "max_workers", "cpu_percent": "max_cpu_percent"}
_PLAIN: Final = ("convert", "epochs", "page_cache", "isolation", "virtual_devices", "hosts", "seed")

_OPTIONS: Final = {
    "space": "--space {}",
    "max_memory_bytes": "--max-memory {}B",
    "max_workers": "--max-workers {}",
    "max_cpu_percent": "--max-cpu {:g}",
    "epochs": "--epochs {}",
    "simulate": "--simulate-step {}",
    "virtual_devices": "--virtual-devices {}",
    "hosts": "--hosts {}",
    "page_cache": "--page-cache {}",
    "isolation": "--isolation {}",
    "seed": "--seed {}",
}


_SEEDS: Final = 2**32  # as many as NumPy and Optuna take


def require(settings: Settings) -> None:
    """Refuse an impossible seed or baseline, with a ConfigError, before a child is started."""
    seed: Any = settings.seed  # a user may write anything
    if not isinstance(seed, numbers.Integral) or not 0 <= int(seed) < _SEEDS:
        raise ConfigError(f"`seed` must be a whole number from 0 to {_SEEDS - 1}, but got {shortened(seed)}.")
    if settings.baseline is not None and not all(settings.baseline.rpartition(":")):
        raise ConfigError(
            f"`baseline` must name a function of your own, but got {shortened(settings.baseline)}.",
            hint="Write `bench.py:make_dataset` or `package.module:make_dataset`. Usual pipelines are compared with "
            "in any case.",
        )


def kept(settings: Settings, *, retune: bool = False) -> Request:
    """Return the request that a profile keeps. A retune has a share of a tune's trials and time."""
    simulated = settings.simulate
    trials, budget = (TRIALS, BUDGET) if retune else (1.0, 1.0)
    return Request(
        space=settings.space if settings.space in library.names() else str(Path(settings.space).absolute()),
        only={name: tuple(values) for name, values in settings.limits.only.items()},
        trials=round(settings.trials / trials),
        budget_seconds=None if settings.budget_seconds is None else settings.budget_seconds / budget,
        simulate=None
        if simulated is None
        else SimulatedStep(step_seconds=simulated.step_seconds, batch_size=simulated.batch_size),
        **{name: getattr(settings.limits, limit) for limit, name in _LIMITS.items()},
        **{name: getattr(settings, name) for name in _PLAIN},
    )


def again(request: Request, settings: Settings, given: Collection[str], folder: Path) -> Settings:
    """Return the settings of a retune: those of the tune, except for the ones that are given now.

    Virtual devices in the environment count as given: a training there will have as many. `settings` are those of the
    command, with the defaults of a retune; `given` names the fields of `Settings` and `Limits` to take from it.
    `folder` is the artefact's. Raises SpaceError if the file of the tune's search space is gone.
    """
    known = {
        "space": request.space if "space" in given else _space(request.space, folder),
        "trials": max(1, math.ceil(request.trials * TRIALS)),
        "budget_seconds": None if request.budget_seconds is None else request.budget_seconds * BUDGET,
        "simulate": rehearsal(request).simulate,
        **{name: getattr(request, name) for name in _PLAIN},
        "virtual_devices": gpu.asked() or request.virtual_devices,
    }
    limits = {limit: getattr(request, name) for limit, name in _LIMITS.items()}
    changed = dataclasses.replace(
        settings.limits,
        only={**request.only, **settings.limits.only},
        **{name: value for name, value in limits.items() if name not in given},
    )
    return dataclasses.replace(
        settings, limits=changed, **{name: value for name, value in known.items() if name not in given}
    )


def rehearsal(request: Request) -> Settings:
    """Return settings with the simulated hardware of a tune: an accelerator, virtual devices, hosts."""
    simulated = request.simulate
    return Settings(
        simulate=None if simulated is None else SimulatedAccelerator(simulated.step_seconds, simulated.batch_size),
        virtual_devices=request.virtual_devices,
        hosts=request.hosts,
    )


def _space(space: str, folder: Path) -> str:
    if space in library.names() or Path(space).is_file():
        return space
    if (beside := folder / Path(space).name).is_file():
        return str(beside)
    raise SpaceError(
        f"The profile was made with the search space `{space}`, which is not there any more.",
        hint="Name it, or another one, with --space.",
    )


def written(settings: Settings) -> str:
    """Return the options of a search that differ from the defaults, as on a command line; "" if none does."""
    request, usual = kept(settings), Request()
    said = [
        text.format(value.text if isinstance(value, SimulatedStep) else value)
        for name, text in _OPTIONS.items()
        if (value := getattr(request, name)) != getattr(usual, name)
    ]
    said += ["--convert" if request.convert else "--no-convert"] if request.convert is not None else []
    said += [f"--only {name}={','.join(map(_text, values))}" for name, values in request.only.items()]
    return " ".join(said)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
