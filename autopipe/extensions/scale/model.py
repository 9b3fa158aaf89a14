"""Does another device pay? Predicts the gain of more devices from measurements on the present ones.

    step(N) = t(B/N) + max(0, 2 (N-1)/N * gradient bytes / bandwidth - what overlaps)

is the time of a step of N devices that share a batch of B samples: each computes its part, then they exchange gradients
around a ring, in which each sends and receives 2 (N-1)/N of their bytes (Patarasu and Yuan, J. Parallel Distrib.
Comput. 69, 2009). The loader's speed is an upper bound. `scale` measures the terms in processes of trials: one device
trains on batches of every size that a part of the workload's can have; several train together if they are present.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autopipe.errors import ConfigError
from autopipe.hardware import gpu, machine
from autopipe.measure.facts import Ceiling, OpCost
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import CACHE_SHARE, ModelSetup
from autopipe.search.measurer import succeeded
from autopipe.search.searching import description, devices_of, refuse_in_trial, runner_for
from autopipe.search.settings import Settings
from autopipe.values import JsonObject
from autopipe.workload.workload import Workload

HIDDEN_SHARE = 1 / 2
"""Of the exchange, at most: gradients become known one after the other, and the last wait for the whole of it."""
HIDDEN_STEP_SHARE = 1 / 3
"""Of the computation, at most: half of the backward pass, which is two thirds of a step. With both, the published
efficiencies of Horovod are met within four points (tests/extensions/scale/test_scale.py)."""

WORTH = 1.05  # times the rate of fewer devices: less is not worth a device


class Limit(enum.StrEnum):
    """The limit that keeps N devices from being N times as fast as one."""

    COMPUTE = "compute"  # a smaller part of a batch takes more than its share of the time
    EXCHANGE = "weight exchange"
    INPUT = "input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interconnect:
    """The connection between devices."""

    bytes_per_second: float  # that a device sends while it receives as much: the "bus bandwidth" of nccl-tests
    source: str  # the origin of the figure


INTERCONNECTS: Mapping[str, Interconnect] = {
    "10gbe": Interconnect(bytes_per_second=1.25e9, source="10 Gbit/s, its line rate"),
    "25gbe": Interconnect(bytes_per_second=3.125e9, source="25 Gbit/s, its line rate"),
    "100gbe": Interconnect(bytes_per_second=12.5e9, source="100 Gbit/s, its line rate"),
    "pcie3": Interconnect(bytes_per_second=12e9, source="PCIe 3.0 x16: 15.75 GB/s less a quarter for its protocol"),
    "pcie4": Interconnect(bytes_per_second=24e9, source="PCIe 4.0 x16: 31.5 GB/s less a quarter for its protocol"),
    "nvlink-a100": Interconnect(
        bytes_per_second=200e9, source="all_reduce_perf on 8 A100, NVIDIA/nccl-tests issue 149"
    ),
    "nvlink-h100": Interconnect(bytes_per_second=370e9, source="the ring on H100, NVIDIA/nccl-tests issue 212"),
}
"""By name, what `--interconnect` takes."""

USUAL = "pcie3"
"""What is assumed where there is one device only and nothing else was said: the slowest between cards of one host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements of a workload's training, and assumptions."""

    batch_size: int  # the workload's, over all devices
    step_seconds: Mapping[int, float]  # of one device without any exchange, by its samples
    gradient_bytes: int  # exchanged by devices each step
    interconnect: Interconnect  # the connection between them
    # seconds of a step that was measured on several devices, by (devices, samples over all of them)
    together: Mapping[tuple[int, int], float] = field(default_factory=dict)
    loader_core_seconds: float = 0.0  # for an image; 0 if unknown
    cached: bool = False  # whether that is with all samples in a cache in memory
    model_core_seconds: float = 0.0  # that an image costs the cores while the model trains
    cores: float = 1.0  # that both share
    shared: bool = False  # whether the devices share one processor, as virtual ones do

    @property
    def fed_images_per_second(self) -> float:
        """The rate that the cores can feed; infinite if unknown."""
        busy = self.loader_core_seconds + self.model_core_seconds
        return self.cores / busy if self.loader_core_seconds > 0 else math.inf

    @property
    def cache(self) -> str:
        return f"{'with' if self.cached else 'without'} a cache"

    def compute_seconds(self, samples: int) -> float:
        """Return one device's time for so many samples, on a line through the measurements on both sides.

        Below the smallest measurement it returns that one's time: small steps cost their start.
        """
        known = sorted(self.step_seconds)
        if samples <= known[0]:
            return self.step_seconds[known[0]]
        low = max(each for each in known if each <= samples)
        high = min((each for each in known if each >= samples), default=low)
        if high == low:
            return self.step_seconds[low] * samples / low
        part = (samples - low) / (high - low)
        return self.step_seconds[low] * (1 - part) + self.step_seconds[high] * part


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The prediction or measurement of a number of devices."""

    devices: int
    batch_size: int  # samples over all of them
    step_seconds: float  # of a step that never waits for data
    exchange_seconds: float  # the part of it that the exchange of gradients adds
    images_per_second: float  # with the loader's limit
    efficiency: float  # that over as many times the rate of one device that never waits; 1 is perfect
    speedup: float  # that over the rate of one device
    limit: Limit  # the reason why it is not perfect
    cores: float  # that feeding the devices takes, if they are never to wait
    measured: bool  # whether the step was measured, and not predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Whether more devices pay."""

    strong: tuple[Row, ...]  # rows of which all share the workload's batch
    weak: tuple[Row, ...]  # rows in which each device gets a whole batch of that size
    verdict: str  # in a sentence
    measured: Measured  # the source of the rows
    virtual: bool = False  # whether devices are virtual: parts of the CPU
    notes: tuple[str, ...] = ()  # missing measurements, with reasons


def loader_core_seconds(ops: Sequence[OpCost], *, cached: bool) -> float:
    """Return the cores' time for an image: with all samples in a cache, only the ops of every epoch."""
    return sum(op.seconds_per_image for op in ops if op.part == "fresh" or (op.part == "fixed" and not cached))


def judge(measured: Measured, counts: Sequence[int], *, virtual: bool = False, notes: Sequence[str] = ()) -> Scaling:
    """Return the rows of some numbers of devices; only those that divide the batch share it."""
    strong = tuple(row(measured, count) for count in counts if measured.batch_size % count == 0)
    return Scaling(
        strong=strong,
        weak=tuple(row(measured, count, weak=True) for count in counts),
        verdict=verdict(measured, strong),
        measured=measured,
        virtual=virtual,
        notes=tuple(notes),
    )


def exchange_seconds(devices: int, gradient_bytes: float, bytes_per_second: float) -> float:
    """Return the time in which a ring of devices sums up their gradients."""
    return 2 * (devices - 1) / devices * gradient_bytes / bytes_per_second


def hidden_seconds(exchange: float, compute: float) -> float:
    """Return the part of an exchange that overlaps with the computation."""
    return min(HIDDEN_SHARE * exchange, HIDDEN_STEP_SHARE * compute)


def row(measured: Measured, devices: int, *, weak: bool = False, predict: bool = False) -> Row:
    """Return the row of a number of devices; if `weak`, each gets a whole batch of the workload's size.

    `predict` ignores measurements on several devices, to compare the two.
    """
    size = measured.batch_size * devices if weak else measured.batch_size
    own = measured.compute_seconds(size // devices)
    compute = own * devices if measured.shared else own
    exchange = exchange_seconds(devices, measured.gradient_bytes, measured.interconnect.bytes_per_second)
    added = exchange - hidden_seconds(exchange, own)
    seen = None if predict else measured.together.get((devices, size))
    step = compute + added if seen is None else seen
    one = measured.batch_size / measured.compute_seconds(measured.batch_size)
    fed, trained = measured.fed_images_per_second, size / step
    rate, lost = min(trained, fed), step - size / devices / one
    limit = Limit.INPUT if fed < trained else Limit.EXCHANGE if added > max(0.5 * lost, 0) else Limit.COMPUTE
    return Row(
        devices=devices,
        batch_size=size,
        step_seconds=step,
        exchange_seconds=added,
        images_per_second=rate,
        efficiency=rate / (one * devices),
        speedup=rate / min(one, fed),
        limit=limit,
        cores=trained * (measured.loader_core_seconds + measured.model_core_seconds),
        measured=seen is not None or devices == 1,
    )


def pays_from_seconds(measured: Measured) -> float:
    """Return the seconds of a step on one device from which on a second device saves more than the exchange costs."""
    exchange = exchange_seconds(2, measured.gradient_bytes, measured.interconnect.bytes_per_second)
    return exchange * max(2 * (1 - HIDDEN_SHARE), 2 / (1 + HIDDEN_STEP_SHARE))


def verdict(measured: Measured, rows: Sequence[Row]) -> str:
    """Return a sentence on whether more devices pay, from rows of strong scaling, the one of one device first."""
    more = [each for each in rows if each.devices > 1]
    if not more:
        return "one device only: nothing to compare."
    first = more[0]
    parts = [f"{first.devices} devices: {first.speedup:.2f}x{'' if first.measured else ' (predicted)'}"]
    best = max(more, key=lambda each: each.images_per_second)
    if first.speedup < WORTH:
        parts[0] += ", which is not worth a device"
    elif best is not first:
        parts.append(f"at most {best.speedup:.2f}x, on {best.devices}")
    if not measured.shared and measured.gradient_bytes:
        least = 1e3 * pays_from_seconds(measured)
        parts.append(f"below {least:.2g} ms a step the exchange of weights costs more than a second one saves")
    starved = next((each for each in more if each.limit is Limit.INPUT), None)
    if starved is not None:
        parts.append(
            f"feeding {starved.devices} takes {math.ceil(starved.cores)} cores {measured.cache}, here are "
            f"{measured.cores:g}"
        )
    return f"{'; '.join(parts)}."


# -------------------- measuring the terms


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
        whole = _ceiling(runner, 1, size, whole=True, exchange=True)
        alone = {size: _step(whole, size)}
        for part in sorted({size // count for count in counts if size % count == 0} - {size}, reverse=True):
            alone[part] = _step(_ceiling(runner, 1, part), part)
        here, reason = devices_of(described, len(gpu.detect()))
        refused = {count: why for count in counts if (why := described.against("devices", count)) is not None}
        able = [count for count in counts if 1 < count <= here and count not in refused]
        together, found = _together(runner, size, able, interconnect)
    # As a tune would: whatever fits into memory is kept there.
    kept = described.fixed_bytes
    cached = kept is not None and kept <= CACHE_SHARE * machine.detect_memory().available_bytes
    measured = Measured(
        batch_size=size,
        step_seconds=alone,
        gradient_bytes=whole.gradient_bytes or 0,
        interconnect=found,
        together=together,
        loader_core_seconds=loader_core_seconds(whole.op_costs, cached=cached),
        cached=cached,
        model_core_seconds=whole.model_core_seconds_per_image,
        cores=whole.cores or 1.0,
        shared=split and settings.simulate is None,
    )
    notes = [f"{count} devices cannot share a batch of {size}" for count in counts if size % count]
    notes += [f"{count} devices are predicted: {refused[count]}" for count in counts if count in refused]
    notes += [f"more than {here} predicted: {reason}"] if here < counts[-1] else []
    return judge(measured, counts, virtual=split, notes=notes)


def _ceiling(
    runner: TrialRunner, devices: int, samples: int, *, whole: bool = False, exchange: bool = False
) -> Ceiling:
    options: JsonObject = {"model_only": not whole, "samples": samples, "exchange": exchange}
    return succeeded(runner.ceiling(ModelSetup(devices=devices), options))


def _together(
    runner: TrialRunner, batch_size: int, counts: Sequence[int], known: Interconnect | None
) -> tuple[dict[tuple[int, int], float], Interconnect]:
    """Return the seconds of steps of several devices, and their connection if that is not known yet."""
    steps: dict[tuple[int, int], float] = {}
    for count in counts:
        for samples in (batch_size * count, batch_size):
            if samples % count:
                continue
            found = _ceiling(runner, count, samples, exchange=known is None)
            steps[count, samples] = _step(found, samples)
            if known is None and found.exchange_seconds and found.gradient_bytes:
                rate = exchange_seconds(count, found.gradient_bytes, 1.0) / found.exchange_seconds
                known = Interconnect(bytes_per_second=rate, source=f"measured here between {count} devices")
    usual = INTERCONNECTS[USUAL]
    return steps, known or dataclasses.replace(usual, source=f"assumed: {usual.source}")


def _step(ceiling: Ceiling, samples: int) -> float:
    return samples / ceiling.model_images_per_second.value
