"""A measurer made of arithmetic: loaders, queue, cores and model as rates, with noise. No hardware needed.

It knows things that the cost model (`predict`) does not: how each loader scales, what oversubscription costs, what each
machine is like (`quirks`). So a search over it is a search, and yet exact, seeded and done in milliseconds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pydantic

from autopipe.measure.facts import Ceiling, Facts, OpCost
from autopipe.measure.outcome import FailureKind, Measurement, Phase, Resources, TrialFailure
from autopipe.pipeline.config import LoaderConfig, ModelSetup, PipelineConfig
from autopipe.search.measurer import Baseline
from autopipe.search.space import Params, from_config, to_config
from autopipe.values import Estimate
from tests.fakes.facts import facts, measurement

_SECONDS, _WINDOWS = {False: 2.5, True: 2.0}, {False: 12, True: 10}  # of a trial, and of a proof
_TRANSFER = 6e9  # bytes a second to the device
_FACTOR = {"threads": 1.0, "processes": 1.0, "tfdata": 1.3, "keras": 1.8, "elsewhere": 1.0}


class KerasLoader(LoaderConfig):
    """One with Keras's knobs. Nothing opens it."""

    kind: Literal["keras"] = "keras"
    work_factor: ClassVar[float] = 1.9
    skips_bad_samples: ClassVar[bool] = False
    workers: int = pydantic.Field(default=1, ge=1, le=1024)
    use_multiprocessing: bool = False
    max_queue_size: int = pydantic.Field(default=10, ge=1, le=1024)

    def worker_count(self) -> int:
        return self.workers

    def buffered_batches(self) -> int:
        return 1 if self.workers == 1 else self.max_queue_size + 2


@dataclass(kw_only=True)
class Surface:
    """One workload on one machine, as arithmetic. Times are core-seconds an image."""

    cores: int = 4  # usable cores
    model_rate: float = 4000.0  # images/s of the model alone
    model_core_seconds: float = 0.0  # what the model takes of the cores; 0 on an accelerator
    read_seconds: float = 0.00008  # reading a file
    decode_seconds: float = 0.0006  # the deterministic ops
    augment_seconds: float = 0.00003  # the random ones
    cast_seconds: float = 0.0001  # the cheap last ones
    compact_bytes: int = 150_528  # of one sample
    sample_count: int = 20_000  # samples an epoch
    noise: float = 0.02  # spread of a window's rate, and half of it of a whole run's, as a share
    quirks: int = 0  # seed of what is special about this machine; 0: nothing
    seed: int = 0  # of the noise
    fails: Callable[[PipelineConfig], bool] = lambda config: False  # configurations that crash
    scaling: Callable[[int], float] = lambda devices: 1.0  # by which factor so many devices train faster than one
    alone_share: Callable[[ModelSetup], float] = lambda setup: 1.0  # of its true rate, as it is read alone
    compared: Sequence[Baseline] | None = None  # baselines in place of Keras's default and tf.data's AUTOTUNE
    now: float = field(default=0.0, init=False)
    measured: list[tuple[str, bool]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def clock(self) -> float:
        """Return the surface's own time: a trial takes seconds there and none here."""
        return self.now

    def facts(self) -> Facts:
        compact, count = self.compact_bytes, self.sample_count
        sizes = {"compact_bytes": compact, "finished_bytes": 4 * compact, "fixed_bytes": count * compact}
        return facts(cores=self.cores, memory_bytes=64 * 2**30, samples=count, **sizes)

    def baselines(self) -> Sequence[Baseline]:
        """Return those that were given, or Keras's default and tf.data's AUTOTUNE."""
        if self.compared is not None:
            return self.compared
        keras = PipelineConfig(loader=KerasLoader(), finish="host", device_prefetch=0)
        tfdata: Params = {"loader": "tfdata", "tfdata.num_parallel_calls": "auto", "tfdata.prefetch": "auto"}
        automatic = to_config({**tfdata, "finish": "host", "device_prefetch": 0})
        return [Baseline(name="keras", config=keras), Baseline(name="tfdata", config=automatic)]

    def ceiling(self, setup: ModelSetup) -> Ceiling:
        """Return the model's rate, the same in each setup, and the op costs."""
        self.now += 3.0
        return self._ceiling(setup)

    def model_alone(self, setup: ModelSetup, *, again: bool = True) -> Ceiling:
        """Return the same ceiling again, in a second; or at once as a trial has read it."""
        self.now += again
        return self._ceiling(setup)

    def loader_alone(self, config: PipelineConfig) -> float:
        """Return the rate of a training by a model that takes anything."""
        self.now += 0.5
        return replace(self, model_rate=1e9, model_core_seconds=0.0).true_rate(config)

    def allow(self, seconds: float | None) -> None:
        """Trials here are as short as they are."""

    def _ceiling(self, setup: ModelSetup) -> Ceiling:
        costs = (
            OpCost(name="read", part="fixed", seconds_per_image=self.read_seconds),
            OpCost(name="Decode", part="fixed", seconds_per_image=self.decode_seconds),
            OpCost(name="RandomFlip", part="fresh", seconds_per_image=self.augment_seconds),
            OpCost(name="Rescale", part="finish", seconds_per_image=self.cast_seconds),
        )
        rate = self.model_rate * self.scaling(setup.devices) * self.alone_share(setup)
        return Ceiling(
            model_images_per_second=Estimate(value=rate, low=0.99 * rate, high=1.01 * rate),
            model_core_seconds_per_image=self.model_core_seconds,
            transfer_seconds_per_image=self._sent_bytes(setup.finish) / _TRANSFER,
            **{"op_costs": costs, "cores": float(self.cores), **setup._asdict()},
        )

    def before(self, config: PipelineConfig, proof: bool) -> TrialFailure | None:
        """Do what a test has to happen before a trial; a failure is the trial's outcome."""
        return None

    def after(self, config: PipelineConfig, proof: bool, found: Measurement) -> Measurement | TrialFailure:
        """Return the outcome of a trial, which a test may change, from its measurement."""
        return found

    def measure(
        self, config: PipelineConfig, *, proof: bool = False, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        """Draw a measurement around the true rate; end early, with fewer windows, where it cannot win."""
        if (failure := self.before(config, proof)) is not None:
            return failure
        self.measured.append((config.key(), proof))
        if self.fails(config):
            self.now += 1.0
            what: dict[str, Any] = {"kind": FailureKind.CRASHED, "phase": Phase.OPEN, "config_key": config.key()}
            return TrialFailure(config=config.model_dump(mode="json"), message="crashes on this surface", **what)
        rate = self.true_rate(config) * math.exp(self._rng.normal(0.0, self.noise / 2))
        rates = rate * np.exp(self._rng.normal(0.0, self.noise, _WINDOWS[proof]))
        share = 1.0
        if must_reach is not None and not proof and rate < 0.8 * must_reach:
            share, rates = 0.4, rates[:5]
        self.now += 0.3 + share * _SECONDS[proof]
        found = measurement(config, rates.tolist(), batch_size=32, resources=self.resources(config))
        return self.after(config, proof, found)

    def resources(self, config: PipelineConfig) -> Resources:
        workers = config.loader.worker_count() or self.cores
        cache = self.sample_count * self.compact_bytes if config.kept.in_memory else 0
        queue = (config.loader.buffered_batches() or 8) * 32 * self._sent_bytes(config.finish)
        return Resources(cpu_percent=100.0 * min(workers, self.cores), peak_rss_bytes=2**30 + cache + queue)

    def true_rate(self, config: PipelineConfig) -> float:
        model_rate = self.model_rate * self.scaling(config.devices)
        workers = config.loader.worker_count() or self.cores
        sent, quirk = self._sent_bytes(config.finish), self._quirk(config.loader.kind, 0.15)
        work = self._work(config) * _FACTOR[config.loader.kind] * (1 + quirk) + sent / 5e9
        if config.loader.kind == "keras" and workers <= 1:
            return 1 / (work + 1 / model_rate)
        contention = 0.03 + 0.04 * abs(self._quirk(f"{config.loader.kind} scaling", 1.0))
        side_by_side = min(workers, self.cores)
        parallel = side_by_side / (1 + contention * (side_by_side - 1))
        parallel *= max(0.2, 1 - 0.02 * max(0, workers - self.cores))  # switching between more workers than cores
        buffered = config.loader.buffered_batches()
        queue = 8 if buffered is None else max(1, buffered - workers)
        slowest = min(parallel / work, self.cores * 0.97 / (work + self.model_core_seconds), model_rate)
        rate = slowest * (1 - 0.1 / (1 + queue) * min(1.0, slowest / model_rate))
        if config.device_prefetch == 0:
            rate = 1 / (1 / rate + sent / _TRANSFER)
        return min(model_rate, rate * (1 + self._quirk(f"{sorted(from_config(config).items())!r}", 0.01)))

    def _sent_bytes(self, finish: str) -> int:
        return self.compact_bytes * (4 if finish == "host" else 1)

    def _work(self, config: PipelineConfig) -> float:
        work = self.augment_seconds + (self.cast_seconds if config.finish == "host" else 0.0)
        if config.kept.in_memory or config.kept.form == "array":
            return work + self.compact_bytes / 5e9
        if config.kept.form == "tfrecord":
            return work + self.decode_seconds + 0.6 * self.read_seconds
        return work + self.decode_seconds + self.read_seconds

    def _quirk(self, what: str, spread: float) -> float:
        if not self.quirks:
            return 0.0
        number = sum(ord(letter) * (at + 1) for at, letter in enumerate(what))
        return float(np.random.default_rng([self.quirks, number]).normal(0.0, spread))
