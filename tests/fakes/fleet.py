"""Machines that nobody here has, and trials on them by arithmetic: a fleet in one process, without any framework.

What is replaced is what looks at the machine, and the child process that runs trials; all the rest is as users have it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import pytest

from autopipe.hardware import gpu, machine
from autopipe.hardware.gpu import Gpu
from autopipe.hardware.machine import Cpu, Machine, Memory
from autopipe.measure.facts import Ceiling, Description
from autopipe.measure.outcome import LoaderRate, Measurement, TrialFailure
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.search import lock, searching
from autopipe.values import Estimate, JsonObject
from tests.fakes.facts import DESCRIBED, measurement
from tests.fakes.profiles import GIB
from tests.fakes.surface import Surface

BASELINE_RATE = 300.0  # images/s of other people's code, on each machine
_VERSIONS = {"autopipe": "0.1.0", "tensorflow": "2.21.0", "opencv": "4.10.0", "numpy": "2.1.0", "optuna": "4.5.0"}


def imaginary(*, cores: int = 4, gpus: int = 0, keras: str = "3.15.0") -> Machine:
    """Return a machine with so many cores and cards, and that version of Keras."""
    system = {"os": "Imaginary Linux 1", "kernel": "Linux 6.8.0", "python": "3.11.7"}
    return Machine(
        cpu=Cpu(model="Imaginary 9000", cores=cores, logical_cores=cores),
        memory=Memory(usable_bytes=64 * GIB, available_bytes=60 * GIB),
        gpus=(Gpu(name="Imaginary GPU", memory_bytes=80 * GIB, driver="600.1"),) * gpus,
        versions={**_VERSIONS, "keras": keras},
        **system,
    )


@dataclass
class Trials:
    """Plays `TrialRunner`: trials on a surface."""

    surface: Surface
    accelerators: int = 0  # how many the workload's backend sees
    on_describe: Callable[[], None] = lambda: None  # when a command has begun
    on_measure: Callable[[], None] = lambda: None  # at each trial
    pid: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self) -> None:
        """Nothing runs, so that nothing has to be started or ended."""

    start = close = begin

    def loader(self, config: PipelineConfig, options: JsonObject) -> LoaderRate:
        """Run a loader without a model."""
        rate = self.surface.loader_alone(config)
        return LoaderRate(images_per_second=Estimate(value=rate, low=rate, high=rate))

    def describe(self) -> Description:
        self.on_describe()
        changes = {"backend": gpu.keras_backend(), "accelerators": self.accelerators, "fixed_bytes": 10**6}
        return DESCRIBED.model_copy(update=changes)

    def ceiling(self, setup: ModelSetup, options: JsonObject | None = None) -> Ceiling:
        return self.surface.model_alone(setup)

    def measure(self, config: PipelineConfig, options: JsonObject) -> Measurement | TrialFailure:
        self.on_measure()
        if config.loader.is_foreign:
            return measurement(config, [BASELINE_RATE] * 12, batch_size=32)
        return self.surface.measure(config)


@dataclass
class Fleet:
    """The machines, on one of which everything runs; `at` goes to another one."""

    patch: pytest.MonkeyPatch
    trials: Trials = field(default_factory=lambda: Trials(Surface()))

    def __post_init__(self) -> None:
        for name in ("runner_for", "foreign_runner"):
            self.patch.setattr(searching, name, lambda *_, **__: self.trials)
        for module in (searching, lock):
            self.patch.setattr(module, "MEASURING", f"autopipe-test-{os.getpid()}")

    def at(self, here: Machine, surface: Surface) -> None:
        """Let this process run on a machine from now on."""
        self.patch.setattr(machine, "detect", lambda *_: here)
        self.trials = Trials(surface, accelerators=len(here.gpus))
