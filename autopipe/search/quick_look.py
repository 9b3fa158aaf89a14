"""What a short look at a workload's samples tells: what they cost, and which configurations that makes promising.

It is taken beside a running training, or before one that begins without a tune, so it takes some tenths of a second
and leaves out what would disturb: many reads at a time, and threads that contend for Python's lock, but for an op of
Python that takes most of the time. So its predictions order candidates, and decide nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from autopipe.errors import ConfigError
from autopipe.hardware import machine
from autopipe.measure import costs, op_costs
from autopipe.measure.costs import Costs
from autopipe.measure.facts import Description, Facts, OpCost, ReadCosts, ReadRung
from autopipe.pipeline import wrap
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.config import Kept, ModelSetup, PipelineConfig
from autopipe.search import feasible, library
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import spread
from autopipe.workload.op import Plan
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload

_SAMPLES = 32  # that are looked at
_LOOK_SECONDS = 0.15  # at least 8 samples are looked at, however long they take
_HEAVY_SECONDS = 0.001  # of an op, and
_HEAVY_SHARE = 0.25  # of all its sample takes: it matters then whether the op holds Python's lock
_FAST: Final = 1e6  # images/s of a model of which nothing is known
_MAY_CHANGE = ("loader", "keep")  # settings, of the latter what is kept in memory; the others are compiled in
_ALIKE = 0.98  # of the highest prediction: the cheapest of these is tried
_EPOCHS = 5  # of a training that does not say how many it has
_CHEAP = 0.25  # of the memory that caches may take: before it is known whether the model waits, no cache takes more


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The costs of a workload, by a short look at some of its samples."""

    ops: tuple[OpCost, ...]
    reads: ReadCosts
    facts: Facts
    workload: Workload | None = None  # which configurations must be able to feed

    @classmethod
    def at(cls, workload: Workload, plan: Plan) -> Look:
        """Read some samples and run their ops, for some tenths of a second. The training may go on meanwhile."""
        mean_bytes = data_source.mean_bytes(workload.data)
        indices = spread(len(workload.data), _SAMPLES)
        ops, _ = op_costs.op_costs(workload, plan, indices, seconds=_LOOK_SECONDS)
        ops = op_costs.as_made(ops, workload, plan, indices)
        heavy = max(_HEAVY_SECONDS, _HEAVY_SHARE * sum(op.seconds_per_image for op in ops))
        if op_costs.contended():  # by workers of the training: their lock is what the ops seem to wait for
            ops = (ops[0], *(op.model_copy(update={"wait_seconds_per_image": 0.0}) for op in ops[1:]))
        elif any(op.seconds_per_image >= heavy and not op.native for op in ops):
            ops = op_costs.with_lock(ops, workload, plan, indices, least_seconds=heavy)
        latency = max(ops[0].wall_seconds_per_image, 1e-7)
        alone = ReadRung(at_once=1, images_per_second=1 / latency)
        reads = ReadCosts(
            latency_seconds=latency,
            cpu_seconds=ops[0].seconds_per_image,
            rungs=(alone,),
            bytes_per_image=mean_bytes,
        )
        return cls(ops=ops, reads=reads, facts=_facts(workload, plan, mean_bytes), workload=workload)

    def costs(self, setup: ModelSetup, model_rate: float = _FAST, model_core_seconds: float = 0.0) -> Costs:
        """Return the costs, with the rate of the model in its setup, in images/s."""
        described = self.facts.workload
        return Costs(
            ops=self.ops,
            model_rates={setup: model_rate},
            model_core_seconds=model_core_seconds,
            cores=machine.core_time(),
            reads=self.reads,
            bytes_per_image=described.mean_bytes,
            compact_bytes=described.compact_bytes,
            finished_bytes=described.finished_bytes,
        )

    def candidates(
        self, config: PipelineConfig | None, known: Costs, memory_share: float = 1.0
    ) -> list[PipelineConfig]:
        """Return the configurations that may take the place of `config`, which differ in loader and cache only; None:
        to begin with. A cache may take this share of the memory that caches may take.
        """
        free = int(memory_share * _free_bytes(config, self.facts))
        devices = 1 if config is None else config.devices
        facts = costs.useful(known, dataclasses.replace(self.facts, memory_bytes=free, gpus=devices))
        space = library.load("default", {"cores": facts.cores, "gpus": 1})
        others = {name: field for name, field in PipelineConfig.model_fields.items() if name not in _MAY_CHANGE}
        space = space.only("keep", [each for each in space["keep"].values if not Kept.of(str(each)).converts])
        for parameter in space:
            if parameter.name in others:
                space = space.only(parameter.name, parameter.values[:1])
        stays = {name: field.default if config is None else getattr(config, name) for name, field in others.items()}
        changed = (each.model_copy(update=stays) for each in feasible.candidates(space, facts).values())
        if config is not None:
            changed = (each.keeping(form=config.kept.form, cut=config.kept.cut) for each in changed)
        return [*{each.key(): each for each in changed if self._takes_over(each, facts)}.values()]

    def _takes_over(self, config: PipelineConfig, facts: Facts) -> bool:
        """Return True if a loader can run here and gives the batches of the others to the bit."""
        loader = config.loader
        if loader.works_elsewhere or loader.pixels_differ() is not None or feasible.why_not(config, facts) is not None:
            return False
        with contextlib.suppress(ConfigError):
            if self.workload is not None:
                wrap.require_feedable(self.workload, config, (0, 1))
            return True
        return False


def _facts(workload: Workload, plan: Plan, mean_bytes: float) -> Facts:
    from autopipe.measure import session  # imports Keras
    from autopipe.pipeline.devices import strategy

    accelerators = strategy.accelerators()
    described = Description(
        samples=len(workload.data),
        mean_bytes=mean_bytes,
        ops="",
        batch_size=workload.batch_size,
        fixed_bytes=session.fixed_bytes(workload, plan),
        compact_bytes=plan.compact.bytes,
        finished_bytes=plan.finished.bytes,
        backend="",
        accelerators=accelerators,
        impossible=tuple(session.impossible_to_feed(workload, plan)),
        data_digest="",
    )
    return Facts(workload=described, cores=machine.usable_cores(), accelerator=accelerators > 0)


def _free_bytes(config: PipelineConfig | None, facts: Facts) -> int:
    """Return the free memory, and what a cache of `config` has taken of it already."""
    if config is None:
        return machine.detect_memory().available_bytes
    taken = (costs.cache_bytes(config, facts.workload) or 0) - MemoryCache.unfilled_bytes()
    return machine.detect_memory().available_bytes + max(0, taken)


def first_config(workload: Workload) -> PipelineConfig:
    """Return the configuration that a short look at the samples predicts to be the fastest: a start without a tune."""
    if (wrapped := wrap.as_it_is(workload)) is not None:
        return wrapped
    look = Look.at(workload, make_plan(workload))
    known = look.costs(ModelSetup())
    predicted = functools.partial(over_epochs, known=known, epochs=workload.epochs or _EPOCHS)
    return ranked(look.candidates(None, known, _CHEAP), predicted, look.facts)[0][0]


def over_epochs(config: PipelineConfig, known: Costs, epochs: int) -> float:
    """Predict the images/s over some epochs, in the first of which a cache is filled."""
    filled = costs.predict(config, known)
    if not config.kept.in_memory or epochs == 1:
        return filled
    filling = costs.predict(config.keeping(in_memory=False), known)
    return epochs / (1 / filling + (epochs - 1) / filled)


Workers: TypeAlias = tuple[str, int | None]


def workers_of(config: PipelineConfig) -> Workers:
    """Return the kind of a loader and the number of its workers."""
    return config.loader.kind, config.loader.worker_count()


def ranked(
    candidates: Iterable[PipelineConfig],
    expected: Callable[[PipelineConfig], float],
    facts: Facts,
    seen: Mapping[Workers, float] | None = None,
) -> list[tuple[PipelineConfig, float]]:
    """Return configurations with their predicted images/s, the fastest first; of those alike, the cheapest.

    `seen` is the measured rate over its prediction, by kind and number of workers. Of others it is taken to be as good
    as the best of these, and not below 1: what held them back may be their own, and more workers than cores get more
    of a busy machine.
    """
    seen = seen or {}
    usual = max([1.0, *seen.values()])
    found = [(each, expected(each) * seen.get(workers_of(each), usual)) for each in candidates]
    best = max((rate for _, rate in found), default=0.0)

    def place(pair: tuple[PipelineConfig, float]) -> tuple[float, ...]:
        config, rate = pair
        if rate < _ALIKE * best:
            return (1.0, -rate)
        workers = config.loader.worker_count()
        kept = costs.cache_bytes(config, facts.workload) or 0
        queue = config.loader.buffered_batches() or 0  # a long one hides more, and was not priced
        return (0.0, float(facts.cores if workers is None else workers), config.loader.rank, kept, -queue)

    return sorted(found, key=place)
