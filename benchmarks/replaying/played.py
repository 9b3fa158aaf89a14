"""Machines that are played: a rate for every configuration of a space, by arithmetic, behind the `Measurer`.

The rate is the least of what the model takes on its devices, what the workers make on the cores, what the storage gives
and what Python's lock lets through. The cost model knows these parts, as measuring would tell it. What it does not know
is a factor of its own for each value of each setting, and a small one for each configuration: that is left to a search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from autopipe.measure import costs
from autopipe.measure.costs import Costs
from autopipe.measure.facts import Ceiling, Description, Facts, OpCost, ReadCosts, ReadRung
from autopipe.measure.outcome import Measurement, TrialFailure
from autopipe.pipeline.config import ModelSetup, Params, PipelineConfig, Value, from_config, to_config
from autopipe.pipeline.space import Space
from autopipe.search import library
from autopipe.search.feasible import Trimmed, narrowed, trim
from autopipe.search.measurer import Baseline
from autopipe.values import Estimate
from autopipe.workload import digests
from tests.fakes.measurements import measurement

SPACE = """
schema_version: 1
parameters:
  loader: [threads, processes, tfdata]
  threads.workers: {range: [1, cores*2], log: true, when: {loader: threads}}
  threads.queue_size: {choices: [2, 8], when: {loader: threads}}
  processes.workers: {range: [1, cores+1], log: true, when: {loader: processes}}
  processes.queue_size: {choices: [2, 8], when: {loader: processes}}
  tfdata.num_parallel_calls: {choices: [auto, cores, cores*2, 16], when: {loader: tfdata}}
  tfdata.prefetch: {choices: [auto, 4], when: {loader: tfdata}}
  keep: [none, memory, tfrecord, tfrecord+memory, array, array+memory]
  finish: [device, host]
  device_prefetch: [0, 2]
  devices: [1, 2, 4, 8]
"""
_SPREAD = {True: 0.04, False: 0.12}  # of the logarithms of factors: of a number's values, and of a word's
_OWN_SPREAD = 0.01
_WINDOWS, _WINDOW_NOISE, _RUN_NOISE = 12, 0.02, 0.005
_SAMPLES, _COMPACT_BYTES = 500_000, 150_528


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of machine."""

    name: str
    cores: int
    gpus: int
    memory_share: float  # of the samples as a cache holds them


KINDS: Final = (
    Kind(name="2/0", cores=2, gpus=0, memory_share=4.0),
    Kind(name="16/1", cores=16, gpus=1, memory_share=4.0),
    Kind(name="32/4", cores=32, gpus=4, memory_share=4.0),
    Kind(name="64/4 beyond memory", cores=64, gpus=4, memory_share=0.6),
    Kind(name="64/4", cores=64, gpus=4, memory_share=4.0),
    Kind(name="128/8", cores=128, gpus=8, memory_share=4.0),
)


class Played:
    """One machine of a kind, with a workload on it, drawn by a seed."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self._kind, self._seed = kind, seed
        self._noise = np.random.default_rng([seed, 1])
        self._draws: dict[str, float] = {}
        self._model = 2500.0 * math.exp(0.5 * self._drawn("model"))
        decode = 0.004 * math.exp(0.6 * self._drawn("decode"))
        augment = 0.0004 * math.exp(0.6 * self._drawn("augment"))
        lock = 0.02 * math.exp(0.8 * self._drawn("lock"))
        latency = 0.001 * math.exp(0.5 * self._drawn("latency"))
        self._ops = (
            OpCost(name="read", part="fixed", seconds_per_image=0.0001, wait_seconds_per_image=latency),
            OpCost(name="Decode", part="fixed", seconds_per_image=decode, lock_seconds_per_image=lock * decode),
            OpCost(name="Flip", part="fresh", seconds_per_image=augment, lock_seconds_per_image=lock * augment),
            OpCost(name="Rescale", part="finish", seconds_per_image=0.0002),
        )
        best = 25_000.0 * math.exp(0.5 * self._drawn("storage"))
        rungs = [ReadRung(at_once=count, images_per_second=min(best, count / latency)) for count in (1, 4, 16, 64, 256)]
        self._reads = ReadCosts(latency_seconds=latency, cpu_seconds=0.0001, rungs=tuple(rungs), bytes_per_image=1e5)
        self._costs = Costs.of(self.ceilings(_setups(kind)), self.facts())

    def facts(self) -> Facts:
        """Return what is known beforehand."""
        whole = _SAMPLES * _COMPACT_BYTES
        workload = Description(
            samples=_SAMPLES,
            batch_size=256,
            fixed_bytes=whole,
            compact_bytes=_COMPACT_BYTES,
            finished_bytes=4 * _COMPACT_BYTES,
            backend="",
            mean_bytes=1e5,
            data_digest="",
            ops="",
        )
        kind = self._kind
        memory = int(kind.memory_share * whole)
        return Facts(workload=workload, cores=kind.cores, gpus=kind.gpus, memory_bytes=memory)

    def candidates(self) -> Trimmed:
        """Return the whole space, listed, without what the costs say is of no use."""
        space: Space = library.parse(SPACE, {"cores": self._kind.cores, "gpus": self._kind.gpus})
        facts = self.facts()
        return narrowed(trim(space, facts), costs.useful(self._costs, facts))

    def rate(self, config: PipelineConfig) -> float:
        """Return the true rate of a configuration, in images/s."""
        each = costs.rates(config, self._costs)
        limits = [each.model, each.workers, each.worker_cores, each.reads, each.lock]
        kept = config.kept
        parts = {"cache": "memory" if kept.in_memory else "none", "cache_fraction": kept.part}
        parts |= {"storage": kept.form, "cut": kept.cut}
        settings = {**from_config(config), "keep": "none", **parts}.items()
        factors = sum(_SPREAD[_is_number(value)] * self._drawn(name, value) for name, value in settings)
        least = min(rate for rate in limits if rate is not None)
        return least * math.exp(factors + _OWN_SPREAD * self._drawn(sorted(settings)))

    def baselines(self) -> Sequence[Baseline]:
        """Return one thread, and tf.data as people write it."""
        plain: Params = {"finish": "host", "device_prefetch": 0}
        one = to_config({"loader": "threads", "threads.workers": 1, "threads.queue_size": 2, **plain})
        tfdata = to_config(
            {"loader": "tfdata", "tfdata.num_parallel_calls": "auto", "tfdata.prefetch": "auto", **plain}
        )
        return [Baseline(name="one", config=one), Baseline(name="tfdata", config=tfdata)]

    def ceilings(self, setups: Sequence[ModelSetup]) -> Sequence[Ceiling]:
        """Return the model alone, and the costs of ops and reads."""
        return [self.model_alone(setup) for setup in setups]

    def model_alone(self, setup: ModelSetup, *, again: bool = True) -> Ceiling:
        """Return the model alone in one setup: each doubling of the devices brings 1.9 times the rate."""
        rate = self._model * 1.9 ** math.log2(setup.devices)
        sent = _COMPACT_BYTES * (4 if setup.finish == "host" else 1)
        return Ceiling(
            model_images_per_second=Estimate(value=rate, low=0.99 * rate, high=1.01 * rate),
            model_core_seconds_per_image=0.0,
            op_costs=self._ops,
            reads=self._reads,
            cores=float(self._kind.cores),
            transfer_seconds_per_image=sent / 2e10,
            **setup._asdict(),
        )

    def allow(self, seconds: float | None) -> None:
        """Trials take no time here."""

    def measure(
        self, config: PipelineConfig, *, proof: bool = False, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        """Return a measurement around the true rate."""
        rate = self.rate(config) * math.exp(self._noise.normal(0.0, _RUN_NOISE))
        rates = rate * np.exp(self._noise.normal(0.0, _WINDOW_NOISE, _WINDOWS))
        return measurement(config, rates.tolist(), batch_size=256)

    def _drawn(self, *what: object) -> float:
        name = digests.digest(*what)
        if name not in self._draws:
            self._draws[name] = float(np.random.default_rng([self._seed, int(name, 16)]).normal())
        return self._draws[name]


def _setups(kind: Kind) -> list[ModelSetup]:
    counts = [1, *(count for count in (2, 4, 8) if count <= kind.gpus)]
    return [ModelSetup(devices=count, finish=finish) for count in counts for finish in ("device", "host")]


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
