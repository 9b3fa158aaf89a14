"""The race: one setting of a configuration after the other, by short measurements, until nothing is left to gain.

Where an accelerator trains, loaders run alone, half a second each, in the process that is there: no compilation, no
other process, and no filling of a whole cache. A loader that makes more than the model takes is enough, and the
cheapest of those is taken. Where the model shares the cores with the loader, the same race is run by trials of the
model. A setting that was not measured to be faster is not taken.

Nothing here predicts a rate. What loaders share of Python's lock, of hyperthreads or of the memory is in the machine,
and so in the table of what was measured. The last section prepares the race of a training without a tune.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from autopipe.errors import AutopipeError, ConfigError
from autopipe.hardware import machine
from autopipe.measure import costs, op_costs
from autopipe.measure.facts import Description, Facts, Impossible, OpCost, ReadCosts, ReadRung
from autopipe.measure.stats import EQUAL
from autopipe.pipeline import wrap
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.config import LOADERS, Kept, ModelSetup, PipelineConfig, SettingValue
from autopipe.search import feasible
from autopipe.search import space as spaces
from autopipe.search.space import Parameter, Params, Space, among, from_config, of_wrapped, to_config
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import spread
from autopipe.workload.data.source import Subset
from autopipe.workload.op import Plan
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload

Measure: TypeAlias = Callable[[PipelineConfig], float | None]
"""Measures a configuration, in images/s; None if it failed."""

_WORKERS: Final = ("workers", "num_parallel_calls")  # knobs that count workers
_READS: Final = "read_ahead"
_LONG: Final = 4  # workers for each core, of use as their ops wait: a race begins with so many or more


def usual(space: Space, cores: int, chosen: Mapping[str, SettingValue], reads: int = 1, workers: int = 1) -> Params:
    """Return `chosen` values, as far as the space has them, and for all else a worker a core, as many reads ahead and,
    where ops wait, as many threads as were measured to be of use, and the defaults.
    """
    params: Params = {}
    for parameter in space:
        if parameter.counts(params):
            wanted = chosen.get(parameter.name)
            if wanted is None or not among(wanted, parameter.values):
                wanted = _usual(parameter, cores, reads, workers)
            params[parameter.name] = wanted
    return params


def _usual(parameter: Parameter, cores: int, reads: int, workers: int) -> SettingValue:
    owner, _, knob = parameter.name.rpartition(".")
    fields = LOADERS[owner].model_fields if owner in LOADERS else PipelineConfig.model_fields
    known = fields.get(knob)
    if knob == _READS and reads > cores:
        counts = [each for each in parameter.values if isinstance(each, int)]
        return min((each for each in counts if each >= reads), default=max(counts))
    default: SettingValue | None = None if known is None or known.is_required() else known.default
    if default is not None and among(default, parameter.values):
        return default
    numbers = [each for each in parameter.values if isinstance(each, int) and not isinstance(each, bool)]
    if knob in _WORKERS and numbers:
        threads_wait = LOADERS[owner].rank == 0 and workers >= _LONG * cores
        most = workers if threads_wait else cores  # of processes, so many would take long to start
        return max((each for each in numbers if each <= most), default=min(numbers))
    if numbers and isinstance(default, int) and default > 0:
        return min(numbers, key=lambda each: abs(math.log(max(each, 0.5) / default)))
    return parameter.values[0]


@dataclass(kw_only=True)
class Race:
    """One race, and the table of what ran. `cost` orders configurations beside their rate."""

    space: Space
    cores: int
    reads: int | None = None  # at a time, that were measured to be of use; 1: they do not wait
    workers: int | None = None  # that were measured to be of use: more than the cores if samples wait
    allowed: Callable[[PipelineConfig], bool]  # it can run, and its settings may bring something
    measure: Measure
    cost: Callable[[PipelineConfig], tuple[float, ...]]
    over: Callable[[], bool]  # time is up, or nothing is left to gain
    enough: float = math.inf  # images/s: what makes more is no better
    table: dict[str, tuple[PipelineConfig, float]] = field(default_factory=dict)  # by key
    is_cut: bool = False  # the time was up before all that it compares had run
    _failed: set[str] = field(default_factory=set)

    def of_loaders(self) -> None:
        """Race loaders alone, all kinds from the beginning, as each measurement is short."""
        self._round(self.usuals())
        self._steps(self._keep, self._reads, self._workers, self._kinds, self._knobs_left)

    def of_workers(self) -> None:
        """Race numbers of workers, of the first kind that runs: only waiting limits them, or one process is meant."""
        self._first_of_all()
        if (best := self._going_on()) is not None:
            self._workers(best)

    def of_trainings(
        self, first: PipelineConfig | None = None, promising: Callable[[], PipelineConfig | None] = lambda: None
    ) -> None:
        """Race by trials of the model, from `first`, if any, and `promising`: what may gain the most comes first."""
        if first is not None:
            self._round([first])
        else:
            self._first_of_all()
        if (other := promising()) is not None:
            self._round([other])
        workers = functools.partial(self._workers, few_of_others=False)
        self._steps(self._reads, self._keep, self._kinds, workers, self._knobs_left, self._others)

    def _first_of_all(self) -> None:
        for each in self.usuals():
            self._round([each])
            self.is_cut = not self.table and self.over()
            if self.table or self.is_cut:
                return

    def usuals(self) -> list[PipelineConfig]:
        """Return the usual configuration of each kind of loader that is allowed, the usual kind first."""
        return [each for kind in self._ranked_kinds() for each in self._made({"loader": kind})]

    def _ranked_kinds(self) -> list[str]:
        return sorted(map(str, self.space["loader"].values), key=lambda kind: LOADERS[kind].rank)

    def cheaper(self, config: PipelineConfig) -> list[PipelineConfig]:
        """Return a configuration with half of its workers, and without its cache, as far as that is allowed."""
        params, found = from_config(config), list[PipelineConfig]()
        for name in self._knobs(config, _WORKERS):
            half = _number(params[name]) // 2
            few = [each for each in self.space[name].values if isinstance(each, int) and each <= half]
            found += [each for count in few[-1:] for each in self._with(config, name, count)]
        found += self._with(config, "keep", "none") if "keep" in params else []
        return [each for each in found if self.cost(each) < self.cost(config)]

    def best(self) -> tuple[PipelineConfig, float] | None:
        """Return the cheapest that makes enough, or is as good as the fastest, with its rate; None if none ran."""
        near = (each for each in self.table.values() if each[1] >= min(self.enough, EQUAL * self._top()))
        return min(near, key=lambda each: (*self.cost(each[0]), each[0].loader.rank, -each[1]), default=None)

    def ranked(self) -> list[tuple[PipelineConfig, float]]:
        """Return what ran: the best, and then the others, the fastest first."""
        best = self.best()
        others = sorted(self.table.values(), key=lambda each: -each[1])
        return [] if best is None else [best, *(each for each in others if each[0].key() != best[0].key())]

    # ------------------------------------------------------------ the settings, one after the other

    def _steps(self, *steps: Callable[[PipelineConfig], None]) -> None:
        """Compare the settings in this order, and anew beside the best as long as that is another one."""
        before = None
        while (best := self._going_on()) is not None and best != before:
            before = best
            for step in steps:
                if (best := self._going_on()) is not None:
                    step(best)

    def _going_on(self) -> PipelineConfig | None:
        best = self.best()
        if best is not None and self._is_over():
            self.is_cut = self._top() < self.enough
            return None
        return None if best is None else best[0]

    def _workers(self, best: PipelineConfig, *, few_of_others: bool = True) -> None:
        """Compare numbers of workers: parts of the cores, of the best's kind and of others if wanted; and more, as they
        gain. If reads may wait, more come first, and few do not run once those gain by waiting.
        """
        for kind in dict.fromkeys(config.loader.kind for config, _ in self.ranked()):
            fastest = self._fastest_of(kind)
            if self.table[fastest.key()][1] < 0.8 * self._top():  # workers do not make up for that
                continue
            for name in self._knobs(fastest, _WORKERS):
                numbers = sorted(each for each in self.space[name].values if isinstance(each, int))
                if self.reads is None:
                    self._more_workers(kind, name, numbers)
                if few_of_others or kind == best.loader.kind:
                    self._at_most(self._fastest_of(kind), name, self.cores)
                    if not self._waits(kind, name):
                        self._at_most(self._fastest_of(kind), name, self.cores // 4, self.cores // 2, self.cores - 1)
                self._more_workers(kind, name, numbers)

    def _at_most(self, config: PipelineConfig, name: str, *counts: int) -> None:
        """Measure the largest values of a setting that are at most these, the smallest first."""
        numbers = [each for each in self.space[name].values if isinstance(each, int)]
        picked = {max((each for each in numbers if each <= count), default=0) for count in counts} - {0}
        self._round([each for count in sorted(picked) for each in self._with(config, name, count)])

    def _more_workers(self, kind: str, name: str, numbers: Sequence[int]) -> None:
        if self.workers is not None and self.workers <= self.cores:
            return
        fastest = self._fastest_of(kind)
        last, doubled = max(self.cores, _number(from_config(fastest)[name])), list[int]()
        for number in numbers:
            if number >= 2 * last:
                doubled.append(last := number)
        self._climb(fastest, name, doubled)

    def _waits(self, kind: str, name: str) -> bool:
        """True if the fastest of a kind has more workers than cores, and makes 1.5 times as much as any with fewer."""
        ran = [each for each in self.table.values() if each[0].loader.kind == kind]
        count, top = max(((_number(from_config(config)[name]), rate) for config, rate in ran), key=lambda each: each[1])
        fewer = [rate for config, rate in ran if _number(from_config(config)[name]) < count]
        return count > self.cores and 1.5 * max(fewer, default=0.0) <= top

    def fewer(self) -> None:
        """Halve the workers of the best as long as what is left makes enough."""
        while (best := self.best()) is not None and best[1] >= self.enough:
            ran = self.table.keys() | self._failed
            fewer = [each for each in self.cheaper(best[0]) if each.key() not in ran]
            if not fewer or self.over():
                return
            self._measure(fewer[0])

    def _reads(self, best: PipelineConfig) -> None:
        """Compare numbers of reads ahead, beginning above what the workers read by themselves."""
        now = best.loader.reads_at_once() or self.cores
        if self.reads == 1 or (best.kept.in_memory and best.kept.part == 1):  # they do not wait, or all is in memory
            return
        for name in self._knobs(best, (_READS,)):
            self._climb(best, name, [each for each in self.space[name].values if _number(each) > now])

    def _keep(self, best: PipelineConfig) -> None:
        """Compare the places to keep samples; of each place, as many samples as there is room for."""
        places: dict[tuple[object, ...], PipelineConfig] = {}
        for value in next((each.values for each in self.space if each.name == "keep"), ()):
            kept = Kept.of(str(value))
            for config in self._with(best, "keep", value):
                places.setdefault((kept.form, kept.cut, kept.in_memory, kept.encoded), config)
        self._round(places.values())
        if (now := self._going_on()) is not None and now.keep != best.keep:
            for name in self._knobs(now, _WORKERS):
                self._at_most(now, name, self.cores)  # what waits may be done once

    def _kinds(self, best: PipelineConfig) -> None:
        """Compare kinds of loaders once more, by the best's settings; more workers than cores suit one kind only."""
        params = from_config(best)
        shared = {name.rpartition(".")[2]: value for name, value in params.items() if "." in name}
        shared = {name: each for name, each in shared.items() if name not in _WORKERS or _number(each) <= self.cores}
        for kind in self._ranked_kinds():
            alike = [rate for each, rate in self.table.values() if (each.loader.kind, each.keep) == (kind, best.keep)]
            if kind != best.loader.kind and max(alike, default=math.inf) >= 0.5 * self._top():
                knobs = {f"{kind}.{knob}": value for knob, value in shared.items()}
                self._round(self._made({**params, **knobs, "loader": kind}))

    def _knobs_left(self, best: PipelineConfig) -> None:
        self._each([each for each in self._knobs(best) if each.rpartition(".")[2] not in (*_WORKERS, _READS)])

    def _others(self, best: PipelineConfig) -> None:
        """Compare the values of every setting around the loader, those of the model's own speed aside."""
        done = {"loader", "keep", *(set(ModelSetup._fields) - {"finish"})}
        self._each([each.name for each in self.space if "." not in each.name and each.name not in done])

    def _each(self, names: Sequence[str]) -> None:
        for name in names:
            if (best := self._going_on()) is not None and name in from_config(best):
                self._round([each for value in self.space[name].values for each in self._with(best, name, value)])

    # ------------------------------------------------------------ measuring

    def _round(self, entrants: Iterable[PipelineConfig]) -> None:
        new = {each.key(): each for each in entrants if each.key() not in self.table and each.key() not in self._failed}
        for config in new.values():
            if self.table and self._is_over():
                self.is_cut = self._top() < self.enough
                return
            self._measure(config)

    def _measure(self, config: PipelineConfig) -> None:
        if (rate := self.measure(config)) is None:
            self._failed.add(config.key())
            self.table.pop(config.key(), None)
        else:
            self.table[config.key()] = config, rate

    def _climb(self, config: PipelineConfig, name: str, values: Sequence[SettingValue]) -> None:
        """Measure the values in their order, as long as each is faster than all before."""
        for value in values:
            before, entrants = self._top(), self._with(config, name, value)
            self._round(entrants)
            rates = [self.table[each.key()][1] for each in entrants if each.key() in self.table]
            if not rates or EQUAL * max(rates) <= before or self._is_over():
                return

    def _is_over(self) -> bool:
        return self._top() >= self.enough or self.over()

    def _top(self) -> float:
        return max((rate for _, rate in self.table.values()), default=0.0)

    def _fastest_of(self, kind: str) -> PipelineConfig:
        return max((each for each in self.table.values() if each[0].loader.kind == kind), key=lambda each: each[1])[0]

    # ------------------------------------------------------------ configurations

    def _knobs(self, config: PipelineConfig, names: Sequence[str] = ()) -> list[str]:
        """Return the loader's knobs that are in the space, or those of them with such names."""
        known = {each.name for each in self.space if "." in each.name}
        knobs = [each for each in from_config(config) if each in known]
        return [each for each in knobs if not names or each.rpartition(".")[2] in names]

    def _with(self, config: PipelineConfig, name: str, value: SettingValue) -> list[PipelineConfig]:
        return self._made({**from_config(config), name: value})

    def _made(self, chosen: Mapping[str, SettingValue]) -> list[PipelineConfig]:
        """Return the configuration of these parameters, if there is one and it is allowed."""
        reads = self.reads or 1
        waiting = 1 if reads > self.cores else self.workers or 1  # reads ahead take less than workers that wait
        for workers in dict.fromkeys((waiting, 1)):  # there may be no room for so many
            with contextlib.suppress(ConfigError):
                config = to_config(usual(self.space, self.cores, chosen, reads, workers))
                if self.allowed(config):
                    return [config]
        return []


def _number(value: SettingValue) -> int:
    return value if isinstance(value, int) else 0


# -------------------- a short look at a workload's samples, and the race of a training without a tune: in this process,
# in less than a second, without many reads at a time and other processes, which would disturb

_MAY_CHANGE: Final = ("loader", "keep")  # settings, of the latter what is kept in memory; the others are compiled in


@dataclass(frozen=True, slots=True, kw_only=True)
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
        facts = replace(self.facts, memory_bytes=free, gpus=devices, reads_at_once=reads)
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


@dataclass(frozen=True, slots=True)
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
    """Return the configuration with its loader and its memory cache alone: these can change during a training."""
    return PipelineConfig(loader=config.loader, keep=config.kept.memory)


def _alone(workload: Workload, plan: Plan, config: PipelineConfig, seconds: float) -> float | None:
    """Measure a loader for 0.08 s, in images/s, if an image takes about so many seconds; None if it cannot run."""
    from autopipe.measure import description  # imports Keras

    size = max(1, min(workload.batch_size, int(0.01 / seconds)))
    count = int(0.1 * machine.usable_cores() / seconds) if config.kept.in_memory else 256
    data = Subset(workload.data, max(2 * size, count))
    part = replace(workload, data=data, batch_size=size, drop_remainder=True, bad_sample_log=os.devnull)
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
