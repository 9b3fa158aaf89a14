"""What a short look at a workload's samples tells, and the first round of a race: loaders alone, in this process.

It is taken beside a running training, or before one that begins without a tune, so it takes less than a second and
leaves out what would disturb: many reads at a time, and other processes. What one process allows is in the round
itself: where more threads make hardly more, and an op is Python, its lock is the limit, and other processes are not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from typing import Final

from autopipe.errors import AutopipeError, ConfigError
from autopipe.hardware import machine
from autopipe.measure import costs, op_costs
from autopipe.measure.facts import Description, Facts, Impossible, OpCost, ReadCosts, ReadRung
from autopipe.pipeline import wrap
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.config import Kept, PipelineConfig
from autopipe.search import feasible
from autopipe.search import space as spaces
from autopipe.search.race import Measure, Race
from autopipe.search.space import Space, of_wrapped
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import spread
from autopipe.workload.data.source import Subset
from autopipe.workload.op import Plan
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload

_MAY_CHANGE: Final = ("loader", "keep")  # settings, of the latter what is kept in memory; the others are compiled in


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The costs of a workload, by a short look at some of its samples."""

    ops: tuple[OpCost, ...]
    reads: ReadCosts
    facts: Facts
    workload: Workload | None = None  # which configurations must be able to feed
    alone: Measure = lambda config: None  # a loader without a model, in this process

    @classmethod
    def at(cls, workload: Workload, plan: Plan) -> Look:
        """Read 8 to 32 samples and run their ops, for 0.25 s. The training may go on meanwhile."""
        mean_bytes = data_source.mean_bytes(workload.data)
        indices = spread(len(workload.data), 32)
        ops, _ = op_costs.op_costs(workload, plan, indices, seconds=0.15)
        ops = op_costs.as_made(ops, workload, plan, indices, seconds=0.1)
        latency = max(ops[0].wall_seconds_per_image, 1e-7)
        alone = ReadRung(at_once=1, images_per_second=1 / latency)
        reads = ReadCosts(
            latency_seconds=latency, cpu_seconds=ops[0].seconds_per_image, rungs=(alone,), bytes_per_image=mean_bytes
        )
        return cls(
            ops=ops,
            reads=reads,
            facts=_facts(workload, plan, mean_bytes),
            workload=workload,
            alone=lambda config: _alone(workload, plan, config, latency + sum(op.seconds_per_image for op in ops)),
        )

    def race(
        self,
        measure: Measure,
        over: Callable[[], bool],
        *,
        now: PipelineConfig | None = None,
        allowed: Callable[[PipelineConfig], bool] = lambda config: True,
    ) -> Race:
        """Return a race of loaders and of what they keep in memory, instead of `now`, of which all else stays. None: of
        those to begin with, whose caches may take a quarter of the free memory, as the model may not wait at all.
        """
        free, devices = machine.detect_memory().available_bytes // 4, 1
        if now is not None:  # its cache has taken some of the memory already
            taken = (costs.cache_bytes(now, self.facts.workload) or 0) - MemoryCache.unfilled_bytes()
            free, devices = machine.detect_memory().available_bytes + max(0, taken), now.devices
        reads = costs.reads_at_once(self.ops, self.reads, machine.core_time())
        facts = dataclasses.replace(self.facts, memory_bytes=free, gpus=devices, reads_at_once=reads)
        kind = None if now is None else now.loader.kind
        is_native = not costs.python_ops(self.ops)

        def may_run(config: PipelineConfig) -> bool:
            loader, whole = config.loader, settled(config, now)
            if is_native and loader.kind != kind and not loader.shares_lock():  # its threads do not wait for each other
                return False
            if loader.works_elsewhere or loader.pixels_differ() is not None:  # from those of the others, to the bit
                return False
            try:
                if self.workload is not None:
                    wrap.require_feedable(self.workload, whole, (0, 1))
            except ConfigError:
                return False
            return feasible.why_not(whole, facts) is None and allowed(whole)

        def cost(config: PipelineConfig) -> tuple[float, ...]:
            workers = config.loader.worker_count()
            memory = costs.memory_bytes(config, self.facts.workload)
            return float(facts.cores if workers is None else workers), float(memory)

        return Race(
            space=_space(facts),
            cores=facts.cores,
            reads=facts.reads_at_once,
            allowed=may_run,
            measure=lambda config: measure(settled(config, now)),
            cost=cost,
            over=over,
        )

    def first(self, measure: Measure, over: Callable[[], bool]) -> PipelineConfig:
        """Return the configuration to begin with, by a race of threads alone until it is `over`, as others import a
        framework or start processes; these are taken if many threads make hardly more than few.
        """
        usual, *others = self.race(measure, over).usuals()
        race = self.race(measure, over, allowed=lambda each: each.loader.kind == usual.loader.kind)
        if costs.python_ops(self.ops):
            race.of_workers()
        race.of_loaders()
        best = (race.best() or (usual, 0.0))[0]
        apart = [each for each in others if not each.loader.shares_lock()]
        ran = [each for each in race.table.values() if not each[0].kept.in_memory and not each[0].loader.reads_ahead()]
        made = sorted((config.loader.worker_count() or race.cores, rate) for config, rate in ran)
        if not apart or not made:
            return best
        (fewest, one), (most, all_of_them) = made[0], made[-1]
        is_limited = most > fewest and all_of_them < 0.6 * one * most / fewest
        return apart[0].model_copy(update={"keep": best.keep}) if is_limited else best


@dataclasses.dataclass(frozen=True, slots=True)
class OfDataset:
    """In the place of a look at samples, where a user's dataset makes batches: only a race tells what they cost."""

    kinds: tuple[str, ...]  # of loaders, whose workers make its batches
    alone: Measure = lambda config: None

    def race(
        self,
        measure: Measure,
        over: Callable[[], bool],
        *,
        now: PipelineConfig,
        allowed: Callable[[PipelineConfig], bool],
    ) -> Race:
        """Return a race of these loaders, in place of `now`, of which all else stays."""
        cores = machine.usable_cores()
        space = of_wrapped({}, {"cores": cores}).only("loader", self.kinds)
        return Race(
            space=Space(tuple(each for each in space if each.name in _MAY_CHANGE or "." in each.name)),
            cores=cores,
            allowed=lambda config: allowed(settled(config, now)),
            measure=lambda config: measure(settled(config, now)),
            cost=lambda config: (float(config.loader.worker_count() or cores),),
            over=over,
        )


def _facts(workload: Workload, plan: Plan, mean_bytes: float) -> Facts:
    from autopipe.measure import description  # imports Keras
    from autopipe.pipeline.devices import strategy

    accelerators, impossible = strategy.accelerators(), description.impossible_to_feed(workload, plan)
    if data_source.pieces(workload.data) is not None:
        impossible.append(Impossible(parameter="keep", value="memory", reason="the training would wait for all of it"))
    described = Description(
        samples=len(workload.data),
        mean_bytes=mean_bytes,
        ops="",
        batch_size=workload.batch_size,
        fixed_bytes=description.fixed_bytes(workload, plan),
        compact_bytes=plan.compact.bytes,
        finished_bytes=plan.finished.bytes,
        backend="",
        accelerators=accelerators,
        impossible=tuple(impossible),
        data_digest="",
    )
    return Facts(workload=described, cores=machine.usable_cores(), accelerator=accelerators > 0)


def _space(facts: Facts) -> Space:
    """Return the loaders, their knobs, and the places in memory of the usual space."""
    space = spaces.load("default", {"cores": facts.cores, "gpus": 1})
    space = space.only("keep", [each for each in space["keep"].values if not Kept.of(str(each)).converts])
    return Space(parameters=tuple(each for each in space if each.name in _MAY_CHANGE or "." in each.name))


def settled(config: PipelineConfig, now: PipelineConfig | None) -> PipelineConfig:
    """Return a configuration with all that cannot change in a training as it is `now`."""
    if now is None:
        return config
    stays = {name: getattr(now, name) for name in PipelineConfig.model_fields if name not in _MAY_CHANGE}
    return config.model_copy(update=stays).keeping(form=now.kept.form, cut=now.kept.cut)


def changeable(config: PipelineConfig) -> PipelineConfig:
    """Return what of a configuration can change in a training, as a race knows it."""
    return PipelineConfig(loader=config.loader, keep=config.kept.memory)


def _alone(workload: Workload, plan: Plan, config: PipelineConfig, seconds: float) -> float | None:
    """Measure a loader for 0.08 s, in images/s, if an image takes about so many seconds; None if it cannot run."""
    from autopipe.measure import description  # imports Keras

    size = max(1, min(workload.batch_size, int(0.01 / seconds)))
    count = int(0.1 * machine.usable_cores() / seconds) if config.kept.in_memory else 256
    data = Subset(workload.data, max(2 * size, count))
    part = dataclasses.replace(workload, data=data, batch_size=size, drop_remainder=True, bad_sample_log=os.devnull)
    with contextlib.suppress(AutopipeError):
        return description.run_alone(part, plan, config, 0.08)[0].value
    return None


def first_config(workload: Workload, clock: Callable[[], float] = time.monotonic) -> PipelineConfig:
    """Return the configuration that a training without a tune begins with, by a race of about 0.6 s."""
    if (wrapped := wrap.as_it_is(workload)) is not None:
        return wrapped
    look = Look.at(workload, make_plan(workload))
    ends = clock() + 0.6
    return look.first(look.alone, lambda: clock() >= ends)
