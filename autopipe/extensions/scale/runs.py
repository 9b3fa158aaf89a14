"""Measures the terms of `model`, in processes of trials: `autopipe scale` calls it.

One device trains on batches of every size that a part of the workload's can have; several train together if they are
present. Nothing here predicts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from autopipe.errors import ConfigError
from autopipe.extensions.scale import model
from autopipe.extensions.scale.model import INTERCONNECTS, USUAL, Interconnect, Measured, Scaling
from autopipe.hardware import gpu, machine
from autopipe.measure import footprint
from autopipe.measure.facts import Ceiling
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import ModelSetup
from autopipe.search.searching import description, devices_of, refuse_in_trial, runner_for
from autopipe.search.settings import Settings
from autopipe.search.trial_measurer import succeeded
from autopipe.values import JsonObject
from autopipe.workload.workload import Workload


def scale(
    workload: Workload | str,
    devices: Sequence[int],
    *,
    interconnect: Interconnect | None = None,
    settings: Settings | None = None,
) -> Scaling:
    """Measure a workload's training on the devices that are here, and predict it on more of them.

    Args:
        workload: a workload, or "train.py:workload".
        devices: the numbers of devices to report.
        interconnect: between them; None: as measured here, or the usual one between cards of one host.
        settings: a simulated accelerator, virtual devices.

    Raises:
        ConfigError: a number of devices is below 1, or none of them can share the batch.
        WorkloadError: the workload cannot be imported, or its model cannot be trained.
        NothingMeasuredError: a trial crashed, hung or took too much memory.
    """
    counts = sorted({1, *devices})
    if counts[0] < 1:
        raise ConfigError(f"`devices` must be numbers of at least 1, but got {', '.join(map(str, devices))}.")
    refuse_in_trial()
    settings = settings or Settings()
    with runner_for(workload, settings) as runner:
        described = description(runner)
        size, split = described.batch_size, described.virtual_devices > 0
        runs = _Runs(runner, size)
        whole = runs.ceiling(1, size, whole=True, exchange=True)
        alone = {size: _step(whole, size)}
        for part in sorted({size // count for count in counts if size % count == 0} - {size}, reverse=True):
            alone[part] = _step(runs.ceiling(1, part), part)
        here, reason = devices_of(described, len(gpu.detect()))
        refused = {count: why for count in counts if (why := described.against("devices", count)) is not None}
        able = [count for count in counts if 1 < count <= here and count not in refused]
        together, found = runs.together(able, interconnect)
    # As a tune would: whatever fits into memory is kept there.
    kept = described.fixed_bytes
    cached = kept is not None and kept <= footprint.CACHE_SHARE * machine.detect_memory().available_bytes
    measured = Measured(
        batch_size=size,
        step_seconds=alone,
        gradient_bytes=whole.gradient_bytes or 0,
        interconnect=found,
        together=together,
        loader_core_seconds=model.loader_core_seconds(whole.op_costs, cached=cached),
        cached=cached,
        model_core_seconds=whole.model_core_seconds_per_image,
        cores=whole.cores or 1.0,
        shared=split and settings.simulate is None,
    )
    notes = [f"{count} devices cannot share a batch of {size}" for count in counts if size % count]
    notes += [f"{count} devices are predicted: {refused[count]}" for count in counts if count in refused]
    notes += [f"more than {here} predicted: {reason}"] if here < counts[-1] else []
    return model.judge(measured, counts, virtual=split, notes=notes)


@dataclasses.dataclass(frozen=True, slots=True)
class _Runs:
    runner: TrialRunner
    batch_size: int

    def ceiling(self, devices: int, samples: int, *, whole: bool = False, exchange: bool = False) -> Ceiling:
        options: JsonObject = {"model_only": not whole, "samples": samples, "exchange": exchange}
        return succeeded(self.runner.ceiling(ModelSetup(devices=devices), options))

    def together(
        self, counts: Sequence[int], known: Interconnect | None
    ) -> tuple[dict[tuple[int, int], float], Interconnect]:
        """Return the seconds of steps of several devices, and their connection if that is not known yet."""
        steps: dict[tuple[int, int], float] = {}
        for count in counts:
            for samples in (self.batch_size * count, self.batch_size):
                if samples % count:
                    continue
                found = self.ceiling(count, samples, exchange=known is None)
                steps[count, samples] = _step(found, samples)
                if known is None and found.exchange_seconds and found.gradient_bytes:
                    rate = model.exchange_seconds(count, found.gradient_bytes, 1.0) / found.exchange_seconds
                    known = Interconnect(bytes_per_second=rate, source=f"measured here between {count} devices")
        usual = INTERCONNECTS[USUAL]
        return steps, known or dataclasses.replace(usual, source=f"assumed: {usual.source}")


def _step(ceiling: Ceiling, samples: int) -> float:
    return samples / ceiling.model_images_per_second.value
