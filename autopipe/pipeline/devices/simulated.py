"""A stand-in for an accelerator that this machine does not have: a model whose step only takes time.

Usable as the model of a workload, so that a CPU machine can find the loader that such a device needs. The time is spent
asleep, so that the loader has the cores, as beside a real device. No framework is imported here.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, Final

from autopipe.errors import ConfigError


@dataclasses.dataclass(frozen=True, slots=True)
class SimulatedAccelerator:
    """A model that takes batches and does nothing with them, for the time of a step of the real one.

    Like a real device it works beside the host: the host may prepare one step while another runs. Metrics are read, and
    epochs end, when the step is over. Evaluation and prediction take as long as training.

    Examples:
        ```python
        workload = ap.Workload(data=..., ops=[...], batch_size=400, model=ap.SimulatedAccelerator(step_seconds=0.224))
        ```

    Attributes:
        step_seconds: how long a step takes; on several devices, each takes this for its part of a batch.
        batch_size: for how many samples; other batches take in proportion. None: any batch takes `step_seconds`.
    """

    step_seconds: float
    batch_size: int | None = None

    def __post_init__(self) -> None:
        is_number = isinstance(self.step_seconds, int | float)
        if not (is_number and math.isfinite(self.step_seconds) and self.step_seconds > 0):
            raise ConfigError(f"`step_seconds` must be a positive number, but got step_seconds={self.step_seconds!r}.")
        if self.batch_size is not None and not (isinstance(self.batch_size, int) and self.batch_size >= 1):
            raise ConfigError(f"`batch_size` must be at least 1, but got batch_size={self.batch_size!r}.")

    def seconds(self, samples: int) -> float:
        return self.step_seconds if self.batch_size is None else self.step_seconds * (samples / self.batch_size)

    def utilisation(self, images_per_second: float, batch_size: int) -> float:
        """Return MLPerf Storage's accelerator utilisation: the part of the time that it computes, 0 to 1."""
        return min(1.0, images_per_second * self.seconds(batch_size) / batch_size)

    def __call__(self) -> Any:
        from autopipe.pipeline.devices.model import SimulatedModel

        return SimulatedModel(self.step_seconds, self.batch_size)


NO_MODEL: Final = SimulatedAccelerator(1e-6)
"""It takes no time: what is measured with it is the loader."""


@dataclasses.dataclass
class Timeline:
    """The busy times of the simulated device. Steps follow each other without a gap if the host is in time."""

    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    free_at: float = -math.inf

    def start(self, seconds: float) -> float:
        """Start a step of `seconds` after the one before it. Wait for its start, and return when it will end."""
        begins = max(self.clock(), self.free_at)
        self.wait_until(self.free_at)
        self.free_at = begins + seconds  # from the deadline, not from when the sleep returned: errors do not add up
        return self.free_at

    def wait_until(self, moment: float) -> None:
        while (left := moment - self.clock()) > 0:
            self.sleep(left)
