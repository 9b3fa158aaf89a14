"""A bench: one model, built and compiled for a device count and a channel order, on which trial after trial runs."""

from __future__ import annotations

from typing import Any, Literal

import keras
import numpy as np

from autopipe import assembly
from autopipe.core.finish import Finish
from autopipe.core.loader import Loader
from autopipe.core.plan import Plan
from autopipe.core.sample import Batch, SampleSpec
from autopipe.core.workload import Workload
from autopipe.devices.finish import FinishedSteps
from autopipe.devices.trainer import Trainer
from autopipe.measure.probe import Probe
from autopipe.measure.resident import ResidentLoader
from autopipe.measure.windows import Reading, StopRule

_ENDLESS = 10**9  # steps; the probe ends the training
_CEILING = StopRule(min_seconds=0.5, max_seconds=2.0)
_WARM_UP_STEPS = 4


class Bench:
    """Trains on whatever loader it is given, through the path that the user's training takes."""

    def __init__(self, workload: Workload, plan: Plan, devices: int, channels: Literal["last", "first"]) -> None:
        """Build the model and its strategy."""
        self._workload = workload
        self._plan = plan
        self.strategy, self.model = assembly.build_model(workload, devices=devices, channels=channels)
        self._steps = FinishedSteps(self.model)
        self._channels_first = channels == "first"
        self._resident: dict[str, tuple[Reading, float]] = {}

    @property
    def device_names(self) -> tuple[str, ...]:
        """The devices that train."""
        return tuple(keras.distribution.list_devices()[: self.strategy.devices]) or (keras.backend.backend(),)

    def run(self, loader: Loader, probe: Probe, device_prefetch: int) -> None:
        """Train on `loader` until the probe has seen enough. The loader stays open."""
        trainer = Trainer(
            self.model, loader, strategy=self.strategy, device_prefetch=device_prefetch, steps=self._steps
        )
        trainer.fit(epochs=1, steps_per_epoch=_ENDLESS, callbacks=[probe], verbose=0)

    def resident(self, finish: str) -> tuple[Reading, float]:
        """Return what the model does on a batch that is already there, and its processor seconds for an image.

        Measured once for each kind of finish; the first call also compiles.
        """
        if finish not in self._resident:
            loader = self._resident_loader(finish)
            probe = Probe(loader, rule=_CEILING, workers=1, skip=_WARM_UP_STEPS)
            self.run(loader, probe, 0)
            if probe.reading is None:
                raise RuntimeError("the probe of a resident batch ended without a reading")
            self._resident[finish] = (probe.reading, probe.cpu_seconds_per_image)
        return self._resident[finish]

    def _resident_loader(self, finish: str) -> ResidentLoader:
        on_host = finish == "host"
        suffix = self._plan.suffix
        left = Finish(
            ops=() if on_host else tuple(step.op for step in suffix),
            specs=() if on_host else tuple(step.before for step in suffix),
            channels_first=self._channels_first,
        )
        spec = self._plan.finished if on_host else self._plan.compact
        return ResidentLoader(_any_batch(spec, self._workload.batch_size), spec, left, _ENDLESS)


def _any_batch(spec: SampleSpec, rows: int) -> Batch:
    """Return a batch of small whole numbers, which any image, mask or label may hold."""
    generator = np.random.default_rng(0)

    def part(field: Any) -> Any:
        shape = (rows, *(field.shape or ()))
        return generator.integers(0, 2, shape).astype(field.dtype)

    return part(spec.x), None if spec.y is None else part(spec.y)
