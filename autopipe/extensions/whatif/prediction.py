"""Predicts another machine by the cost model, from measurements on the machine of an artifact.

Arithmetic on an artifact's content; nothing is measured here. A prediction is corrected by the predictions that the
same study has checked, and its range is as wide as their errors. Beyond twice the measured values, a note says so.

    step(N) = t(B/N) + max(0, 2 (N-1)/N * gradient bytes / bandwidth - what overlaps)

is the time of a step of N devices that share a batch of B samples: each computes its part, then they exchange gradients
around a ring, in which each sends and receives 2 (N-1)/N of their bytes (Patarasu and Yuan, J. Parallel Distrib.
Comput. 69, 2009).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import pydantic

from autopipe import again
from autopipe.artifact import artifact as files
from autopipe.artifact import pick
from autopipe.errors import ArtifactError
from autopipe.hardware.machine import size_text
from autopipe.measure import bottleneck as bottlenecks
from autopipe.measure import costs as cost_model
from autopipe.measure import fingerprint
from autopipe.measure.facts import Ceiling, ReadCosts, ReadRung
from autopipe.pipeline.config import Kept, PipelineConfig
from autopipe.search.result import Result
from autopipe.values import Estimate, Value, figure_text, milliseconds_text

_EVIDENCE = 8  # configurations that predictions are compared with, the fastest
_LEAST_ERROR = 0.05
_FEW_PAIRS_ERROR = 0.15  # if there are too few measurements
_FEW_PAIRS = 3
_TURNS_ERROR = 0.2  # of what threads wait for each other, which differs by that from one second to the next


HIDDEN_SHARE = 1 / 2
"""Of the exchange, at most: gradients become known one after the other, and the last wait for the whole of it."""
HIDDEN_STEP_SHARE = 1 / 3
"""Of the computation, at most: half of the backward pass, which is two thirds of a step. With both, the published
efficiencies of Horovod are met within four points (tests/extensions/whatif/test_prediction.py)."""

_LEAST_FIXED = 0.05  # of a step: two readings of a model alone differ by less than this


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
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

_ASSUMED = dataclasses.replace(INTERCONNECTS["pcie3"], source=f"assumed: {INTERCONNECTS['pcie3'].source}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements of a study."""

    ceiling: Ceiling  # each part on its own
    batch_size: int  # samples a batch
    winner: PipelineConfig  # the configuration that was chosen
    pairs: Sequence[tuple[PipelineConfig, float]]  # configurations and their images/s, the winner's among them
    cache_bytes: int | None = None  # of a cache of all samples; None if unknown
    memory_bytes: int | None = None  # of the machine; None if unknown
    devices: Mapping[int, float] = dataclasses.field(default_factory=dict)  # images/s of the model alone on so many
    doubled_images_per_second: float | None = None  # of the model alone with twice the batch; None if not measured
    interconnect: Interconnect = _ASSUMED


_Factor: TypeAlias = Callable[[PipelineConfig], float]  # from the prediction of a configuration to its measurement


def _way(config: PipelineConfig) -> Hashable:
    return config.loader.kind, config.kept.form, config.kept.in_memory, config.finish


def correction(measured: Measured) -> tuple[_Factor, float]:
    """Return the factor for each way of feeding that was measured, for any other the winner's, which was proved; and
    how far off predictions are after that, as a ratio.
    """
    logs: dict[Hashable, list[float]] = {}
    for config, rate in measured.pairs:
        if rate > 0:
            logs.setdefault(_way(config), []).append(math.log(rate / predict(config, measured.ceiling)))
    centres = {way: fmean(each) for way, each in logs.items()}
    off = [each - centres[way] for way, those in logs.items() if len(those) > 1 for each in those]
    error = math.expm1(math.sqrt(fmean([each**2 for each in off]))) if off else 0.0
    proved = centres.get(_way(measured.winner), 0.0)
    error = max(error, _LEAST_ERROR if len(off) >= _FEW_PAIRS else _FEW_PAIRS_ERROR)
    return lambda config: math.exp(centres.get(_way(config), proved)), error


_FAR = 2.0  # times the measured values
_ALL_CORES = 0.7  # of the cores: a model that takes more is taken to grow with them
_SOME_CORES = 0.3  # of the cores: a model that takes less hardly needs more
_TIE = 0.02
_FOR_A_CACHE = 0.8  # of the memory; the rest is the training's and the system's


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The changes of the machine; None for no change."""

    cores: float | None = None  # usable ones
    step_seconds: float | None = None  # of the model for a batch, on an accelerator that takes nothing of the cores
    devices: int | None = None  # that share a batch
    interconnect: Interconnect | None = None  # between them
    read_latency_seconds: float | None = None  # of one read with no other beside it
    batch_size: int | None = None  # samples a batch
    storage_factor: float = 1.0  # how many times as fast the storage is, latency and bandwidth
    # usable memory, which a cache of all samples may take if it fits and pays
    memory_bytes: float | None = None


class Buy(Value):
    """The gain of one more of something; `cache_bytes` is the size of a cache of all samples."""

    what: str
    images_per_second: float
    gain: float
    cache_bytes: int | None = None


class WhatIf(Value):
    """The prediction of a machine."""

    images_per_second: Estimate  # of `config`, the best configuration, with its range
    config: PipelineConfig
    limit: float = pydantic.Field(ge=0)  # the most that it can reach there
    limit_kind: str  # the part that sets the limit
    sentence: str  # the same in words
    model_images_per_second: float = pydantic.Field(gt=0)  # the model alone
    # by how much predictions were off in the study, as a ratio: 0.1 is 10 % up or down
    error: float = pydantic.Field(ge=0)
    pairs: int = pydantic.Field(ge=0)  # how many predictions that rests on
    buys: tuple[Buy, ...] = ()  # gains of one more of something, the largest first
    notes: tuple[str, ...] = ()  # assumptions, and the distance from the measurements


def read(artifact: Path) -> Measured:
    """Read the measurements of the nearest profile; raises ArtifactError if it keeps no costs."""
    profile = pick.pick(files.read(artifact), fingerprint.detect(), name=str(artifact)).profile
    found = profile.result
    if found.ceiling is None or not found.ceiling.op_costs:
        hint = f"They are measured by: {again.autopipe('retune', artifact)}"
        loaders = (each.config.get("loader") for each in found.baselines)
        if any(isinstance(loader, dict) and loader.get("kind") == "wrapped" for loader in loaders):
            hint = "The ops of a wrapped dataset cannot be told apart: only a workload of ops can be predicted."
        said = f"Predictions need what each op costs, which the profile in `{artifact}` does not keep."
        raise ArtifactError(said, hint=hint)
    winner = pick.config_of(profile)
    known = [(config, rate) for each, rate in found.measured() for config in pick.readable([each])]
    ours = [pair for pair in known if not pair[0].loader.is_foreign]
    pairs = [(winner, profile.winner.images_per_second.value)]
    pairs += [(config, rate) for config, rate in ours[:_EVIDENCE] if config != winner]
    return Measured(
        ceiling=found.ceiling,
        batch_size=profile.workload.batch_size,
        winner=winner,
        pairs=pairs,
        cache_bytes=found.cache_bytes,
        memory_bytes=profile.hardware.memory_bytes,
        devices={each.devices: each.model_images_per_second or 0.0 for each in found.devices},
        doubled_images_per_second=found.doubled_images_per_second,
        interconnect=_between(found, found.ceiling.gradient_bytes or 0),
    )


def _between(found: Result, gradient_bytes: int) -> Interconnect:
    for each in sorted(found.devices, key=lambda each: -each.devices):
        if each.exchange_seconds and gradient_bytes:
            rate = _sent_bytes(each.devices, gradient_bytes) / each.exchange_seconds
            return Interconnect(bytes_per_second=rate, source=f"measured between {each.devices} devices")
    return _ASSUMED


def what_if(measured: Measured, machine: Machine) -> WhatIf:
    """Predict a machine from measurements on another one."""
    (factor, off), ceiling = correction(measured), moved(measured, machine)
    config, rate = best(measured, ceiling, machine, factor)
    found = cost_model.bounds(ceiling, config)
    takes_turns = found.limits[0].kind is cost_model.Kind.PYTHON_LOCK
    error = max(off, _TURNS_ERROR) if takes_turns else off
    low, high = rate / (1 + error), min(rate * (1 + error), max(rate, found.model_images_per_second))
    most = max(rate, found.images_per_second)
    limit = bottlenecks.bottleneck(found, most)
    return WhatIf(
        images_per_second=Estimate(value=rate, low=low, high=high),
        config=config,
        limit=most,
        limit_kind="unknown" if limit.limit is None else str(limit.limit.kind),
        sentence=limit.sentence,
        model_images_per_second=found.model_images_per_second,
        error=error,
        pairs=len(measured.pairs),
        buys=tuple(_buys(measured, machine, rate, factor)),
        notes=tuple(_notes(measured, machine, ceiling)),
    )


def moved(measured: Measured, machine: Machine) -> Ceiling:
    """Return the ceiling of each part on its own there."""
    was = measured.ceiling
    cores = machine.cores or was.cores or 1.0
    alone, busy = _model(measured, machine, cores)
    latency = machine.read_latency_seconds
    reads = None if was.reads is None else _reads(was.reads, latency, machine.storage_factor)
    wait = None if reads is None or (latency is None and machine.storage_factor == 1) else reads.wait_seconds
    disk = was.read_bytes_per_second
    return was.model_copy(
        update={
            "cores": cores,
            "model_images_per_second": Estimate(value=alone, low=alone, high=alone),
            "model_core_seconds_per_image": busy,
            "op_costs": tuple(
                op.model_copy(update={"wait_seconds_per_image": wait})
                if wait is not None and op.name == cost_model.READ
                else op
                for op in was.op_costs
            ),
            "reads": reads,
            "read_bytes_per_second": None if disk is None else disk * machine.storage_factor,
            "bound_images_per_second": None,
        }
    )


def _model(measured: Measured, machine: Machine, cores: float) -> tuple[float, float]:
    was = measured.ceiling
    alone, busy = _alone(measured), was.model_core_seconds_per_image
    devices = machine.devices or was.devices
    if machine.step_seconds is not None:
        batch = machine.batch_size or measured.batch_size
        return batch / (_step(measured, machine, machine.step_seconds, devices)), 0.0
    taken, had = alone * busy, was.cores or cores
    if taken > _ALL_CORES * had:
        alone *= cores / had  # it computes on the cores, and on all of them
    elif busy > 0:
        alone = min(alone, cores / busy)
    if devices == was.devices:
        return alone, busy
    if known := _measured_on(measured, devices):
        return alone * known / measured.devices[was.devices], busy
    step = measured.batch_size / alone
    exchange = _exchange(measured, measured.interconnect, was.devices)
    own = min(step - HIDDEN_SHARE * exchange, (step - exchange) / (1 - HIDDEN_STEP_SHARE))  # `_step`, solved for it
    return measured.batch_size / _step(measured, machine, max(own, 1e-9) * was.devices, devices), busy


def _measured_on(measured: Measured, devices: int) -> float | None:
    """Return images/s of the model alone on so many devices; None unless that was measured on these and those used."""
    return measured.devices.get(devices) if measured.devices.get(measured.ceiling.devices) else None


def _step(measured: Measured, machine: Machine, of_one: float, devices: int) -> float:
    fixed, doubled = 0.0, measured.doubled_images_per_second
    if machine.step_seconds is None and doubled is not None and measured.ceiling.devices == 1:
        # What a smaller batch takes, too, from steps with the batch and with twice of it.
        share = 2 - 2 * measured.ceiling.model_images_per_second.value / doubled
        fixed = min(share, 1.0) * of_one if share > _LEAST_FIXED else 0.0
    own = fixed + (of_one - fixed) / devices
    exchange = _exchange(measured, machine.interconnect or measured.interconnect, devices)
    return own + exchange - min(HIDDEN_SHARE * exchange, HIDDEN_STEP_SHARE * own)


def _exchange(measured: Measured, between: Interconnect, devices: int) -> float:
    return _sent_bytes(devices, measured.ceiling.gradient_bytes or 0) / between.bytes_per_second


def _sent_bytes(devices: int, gradient_bytes: int) -> float:
    return 2 * (devices - 1) / devices * gradient_bytes


def _alone(measured: Measured) -> float:
    return max(measured.ceiling.model_images_per_second.value, *(rate for _, rate in measured.pairs), 0.0)


def _reads(was: ReadCosts, latency_seconds: float | None, factor: float) -> ReadCosts:
    latency = (was.latency_seconds if latency_seconds is None else latency_seconds) / factor
    latency = max(latency, was.cpu_seconds, 1e-9)
    best = was.best_images_per_second * factor
    rungs = tuple(
        ReadRung(at_once=rung.at_once, images_per_second=min(rung.at_once / latency, best)) for rung in was.rungs
    )
    return was.model_copy(update={"latency_seconds": latency, "rungs": rungs if was.saturated else rungs[:1]})


def best(measured: Measured, ceiling: Ceiling, machine: Machine, factor_of: _Factor) -> tuple[PipelineConfig, float]:
    """Return the configuration with the highest predicted images/s, and that rate; of equals the cheapest."""
    rates = {}
    for config in _candidates(measured, ceiling, machine):
        factor = factor_of(config)
        most = cost_model.bounds(ceiling, config).images_per_second * max(1.0, factor)  # of costs that were too high
        rates[config] = min(factor * predict(config, ceiling), most, model_rate(config, ceiling))

    def price(config: PipelineConfig) -> tuple[bool, int, int]:
        return config.kept.in_memory, config.loader.worker_count() or 0, config.loader.reads_at_once() or 0

    most = max(rates.values())
    cheapest = min((config for config, rate in rates.items() if rate >= (1 - _TIE) * most), key=price)
    return cheapest, rates[cheapest]


def _candidates(measured: Measured, ceiling: Ceiling, machine: Machine) -> Iterator[PipelineConfig]:
    """Yield the measured configurations, each with all useful numbers of workers and reads at a time there."""
    ops, cores, reads = ceiling.op_costs, ceiling.cores, ceiling.reads
    counts = {cost_model.workers_at_once(ops, cores, reading=reading) for reading in (True, False)}
    ahead = {0}
    if reads is not None and reads.waits:
        ahead.add(cost_model.reads_at_once(ops, reads, cores, ceiling.model_images_per_second.value))
    seen = dict.fromkeys([measured.winner, *(config for config, _ in measured.pairs)])
    also = {True: {"memory"}, False: {"none"}, None: set[str]()}[_has_room(measured, machine.memory_bytes)]
    in_memory = {config.kept.memory for config in seen} | also  # all that were measured may be cached
    for config, count, many, keep in itertools.product(seen, sorted(counts), sorted(ahead), sorted(in_memory)):
        cache = Kept.of(keep)
        if not cache.in_memory or _has_room(measured, machine.memory_bytes, cache.part) is not False:
            knobs = {"workers": count, "read_ahead": many}
            update = {name: knobs[name] for name in knobs.keys() & type(config.loader).model_fields.keys()}
            there = config.model_copy(update={"loader": config.loader.model_copy(update=update)})
            yield there.keeping(in_memory=cache.in_memory, encoded=cache.encoded, part=cache.part)


def _has_room(measured: Measured, memory_bytes: float | None, fraction: float = 1.0) -> bool | None:
    if memory_bytes == math.inf:
        return True
    if measured.cache_bytes is None or memory_bytes is None:
        return None
    return fraction * measured.cache_bytes <= _FOR_A_CACHE * memory_bytes


# -------------------- the rate that a configuration should make
# It is wrong by factors, of which `correction` has those that a study has measured. A search does not use it.

_SHARPNESS = {True: 8.0, False: 3.0}  # closeness of the whole to the slowest part: with and without a queue


def predict(config: PipelineConfig, ceiling: Ceiling) -> float:
    """Predict the steady images/s: a p-norm of the parts' times; a queue hides all but the slowest."""
    costs, loader = ceiling, config.loader
    does = cost_model.work(config, costs)
    cores, count, reads = costs.cores or 1.0, loader.worker_count(), cost_model.reads_rate(config, does, costs)
    spared = cost_model.depth(config, costs) > 0 and does.cached < 1
    copied = (does.cached + (1 - does.cached) * spared) * costs.sent_bytes("device")
    busy = (does.core_seconds + copied * cost_model.COPY_SECONDS) * loader.work_factor
    busy += does.sent_bytes * cost_model.COPY_SECONDS
    busy = max(0.0 if loader.keeps_on_device else busy, 1e-9)
    here = max(cost_model.received_core_seconds(does), 1e-9) if loader.works_elsewhere else busy
    each = busy + does.op_wait_seconds + cost_model.worker_read_seconds(config, does)
    made = min((cores if count is None else max(1, count)) / each, cost_model.cores_of_workers(config, costs) / busy)
    joined = [model_rate(config, ceiling), cores / (here + costs.model_core_seconds_per_image), made]
    if reads is not None and loader.reads_ahead():
        joined.append(reads)
    elif reads is not None:  # the workers' own reads are in their time already
        joined[-1] = min(made, reads)
    held = cost_model.lock_seconds(does.paid, cost_model.turns(loader, cores))
    joined += [1 / held] if held > 0 and loader.shares_lock() else []
    # With a queue, core time and model time are separate limits; without one, the two wait for each other.
    buffered = loader.buffered_batches()
    sharpness = _SHARPNESS[buffered is None or buffered - (count or 0) > 1]
    slowest = math.pow(sum(math.pow(rate, -sharpness) for rate in joined), -1 / sharpness)
    if config.device_prefetch == 0:  # the step waits for its batch to arrive
        slowest = 1 / (1 / slowest + transfer_seconds(config, ceiling))
    return slowest


def model_rate(config: PipelineConfig, ceiling: Ceiling) -> float:
    """Return images/s of the model alone, scaled linearly to the configuration's devices."""
    return ceiling.model_images_per_second.value / ceiling.devices * config.devices


def transfer_seconds(config: PipelineConfig, ceiling: Ceiling) -> float:
    """Return seconds to send an image to the device, in proportion to its bytes."""
    took = ceiling.transfer_seconds_per_image or 0.0
    if config.loader.keeps_on_device or config.finish == ceiling.finish:
        return 0.0 if config.loader.keeps_on_device else took
    return took / max(1, ceiling.sent_bytes(ceiling.finish)) * ceiling.sent_bytes(config.finish)


def _buys(measured: Measured, machine: Machine, rate: float, factor: _Factor) -> list[Buy]:
    cores = machine.cores or measured.ceiling.cores or 1.0
    devices = machine.devices or measured.ceiling.devices
    has_room = _has_room(measured, measured.memory_bytes if machine.memory_bytes is None else machine.memory_bytes)
    cache = "a cache of all samples, for which there is room" if has_room else "memory for all samples"
    offers = {
        f"{2 * cores:g} cores instead of {cores:g}": {"cores": 2 * cores},
        cache: {"memory_bytes": math.inf},
        "a storage twice as fast": {"storage_factor": 2 * machine.storage_factor},
        f"{2 * devices} devices instead of {devices}": {"devices": 2 * devices},
    }
    found = []
    for what, change in offers.items():
        there = dataclasses.replace(machine, **change)  # type: ignore[arg-type]  # each has its own type
        reached = best(measured, moved(measured, there), there, factor)[1]
        held = measured.cache_bytes if what == cache else None
        found.append(Buy(what=what, images_per_second=reached, gain=max(0.0, reached - rate), cache_bytes=held))
    return sorted(found, key=lambda buy: -buy.gain)


def _notes(measured: Measured, machine: Machine, ceiling: Ceiling) -> Iterator[str]:
    was = measured.ceiling
    ratios = {
        "cores": (ceiling.cores or 1.0) / (was.cores or 1.0),
        "the model's rate": ceiling.model_images_per_second.value / _alone(measured),
        "the batch": (machine.batch_size or measured.batch_size) / measured.batch_size,
    }
    if ceiling.reads is not None and was.reads is not None:
        ratios["a read's latency"] = ceiling.reads.latency_seconds / was.reads.latency_seconds
    for name, ratio in ratios.items():
        factor = max(ratio, 1 / ratio)
        if factor > _FAR * 1.001:
            yield f"Far from what was measured: {name} by a factor of {figure_text(factor)}. Take it as a direction."
    taken, had = _alone(measured) * was.model_core_seconds_per_image, was.cores or 1.0
    if machine.step_seconds is None and (machine.cores or had) > had and _SOME_CORES < taken / had <= _ALL_CORES:
        yield f"The model took {taken:.1f} of {had:g} cores, and is taken to be no faster with more. See --step."
    if machine.step_seconds is not None:
        yield "The model is taken to run beside the cores, as on an accelerator, and to take nothing of them."
    yield from _on_devices(measured, machine)
    if machine.batch_size is not None and machine.step_seconds is None:
        yield "The model is taken to do as many images/s with the other batch; --step says otherwise."
    if machine.read_latency_seconds is not None and was.reads is None:
        yield "Reads were not measured in this study, so their latency changes nothing here."
    if machine.memory_bytes is not None and measured.cache_bytes is None:
        yield "What all samples take in memory is not known here, so more or less of it changes nothing."


def _on_devices(measured: Measured, machine: Machine) -> Iterator[str]:
    was, batch = measured.ceiling, machine.batch_size or measured.batch_size
    devices = machine.devices or was.devices
    if batch % devices:
        yield f"{devices} devices cannot share a batch of {batch} evenly."
    if devices == 1 or (machine.step_seconds is None and (devices == was.devices or _measured_on(measured, devices))):
        return
    between = machine.interconnect or measured.interconnect
    if was.gradient_bytes is None:
        yield "The exchange of gradients is left out: this profile does not keep their size. `autopipe retune` does."
    elif was.gradient_bytes:
        took = milliseconds_text(_exchange(measured, between, devices))
        yield (
            f"The {devices} devices exchange {size_text(was.gradient_bytes)} of gradients a step. That takes {took} at "
            f"{between.bytes_per_second / 1e9:,.3g} GB/s ({between.source}). At most half of it overlaps."
        )
    if machine.step_seconds is not None or measured.doubled_images_per_second is None:
        yield "A device is taken to compute its part of a batch in that part of the time; small parts take longer."
