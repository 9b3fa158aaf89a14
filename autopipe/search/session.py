"""A running search: it runs the next trial, records it, reports it, and holds the state of the search.

`autopipe.search.study`, the race, the sampler and `confirmation` choose the trials and their order. The model alone is
measured here as well, in its usual setup first. The last section finds the fewest devices that take what a loader
makes, and the settings that make the model alone faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import optuna

from autopipe.errors import ConfigError
from autopipe.measure import costs
from autopipe.measure.bottleneck import leaves_cores_idle
from autopipe.measure.facts import Ceiling, Facts
from autopipe.measure.outcome import FailureKind, Measurement, TrialFailure
from autopipe.measure.stats import EQUAL, Pooled, Reading, log_variance, median
from autopipe.pipeline.config import ModelSetup, PipelineConfig, SettingValue
from autopipe.search import feasible
from autopipe.search.measurer import Baseline, Measurer
from autopipe.search.record import Point, Record, TrialRow, merged, note, suggest, taken
from autopipe.search.result import WORTH, AskedBy, Asker, OnEvent, Raced, TrialFinished, TrialStarted
from autopipe.search.settings import Settings
from autopipe.search.space import from_config, to_config

SLACK = 0.05  # of the budget, by which a confirmation may exceed it

Measured = TypeVar("Measured")


@dataclass(eq=False)
class Session:
    """A search while it runs."""

    trimmed: feasible.Trimmed
    measurer: Measurer
    facts: Facts
    settings: Settings
    record: Record
    on_event: OnEvent
    ceilings: Sequence[Ceiling] = ()
    left_out: dict[str, int] = field(default_factory=dict)  # settings that were not tried, by the reason
    ceiling_seconds: float = 0.0
    baselines: Sequence[Baseline] = ()  # that the winner has to beat
    is_out_of_time: bool = False  # a trial was cut, and another one would be as well
    _pooled: tuple[int, Pooled] | None = None  # after so many trials
    _costs: Ceiling | None = None
    _points: dict[str, Point] = field(default_factory=dict)
    _gathered: set[int] = field(default_factory=set)  # the trials whose measurements `_points` holds

    def __post_init__(self) -> None:
        settings, rows = self.settings, self.record.rows()
        self.raced = {PipelineConfig.model_validate(each.config).key(): each for each in self.record.raced()}
        self._began = settings.clock() if settings.began is None else settings.began
        self.starting_seconds = settings.clock() - self._began  # of the trials' process, and of the workload in it
        self._earlier = sum(row.seconds for row in rows)
        self._failed_before = {row.number for row in rows if isinstance(row.outcome, TrialFailure)}

    def know_ceilings(self, ceilings: Sequence[Ceiling]) -> None:
        """Take up new ceilings, and what they tell of useful parallelism if they hold op costs."""
        self.ceilings = ceilings
        self._gathered.clear()  # one-time costs, and with them values, may become known
        self._pooled = None
        known = self._costs = costs.known(ceilings, self.facts) if any(each.op_costs for each in ceilings) else None
        if known is not None:
            model = self.highest_ceiling().model_images_per_second.value
            self.facts = replace(
                self.facts,
                model_device_bytes=max(each.device_bytes or 0 for each in ceilings),
                reads_at_once=costs.reads_at_once(known.op_costs, known.reads, known.cores, model),
                workers_at_once=costs.workers_at_once(known.op_costs, known.cores, model),
            )

    # ------------------------------------------------------------ state

    @property
    def races_loaders(self) -> bool:
        """True if loaders can be compared without the model: it is on other hardware, or a dataset has none."""
        workload = self.facts.workload
        return self.facts.accelerator and bool(self.ceilings) and (workload.wrapped is None or workload.reads_alone)

    def waits(self) -> bool:
        """True if the best training waits half of its time and leaves cores idle: loaders have room beside it."""
        best = self.best()
        if best is None or not self.ceilings:
            return False
        last = best.measurements[-1]
        return last.data_wait_share >= 0.5 and bool(leaves_cores_idle(last.resources, self.facts.cores))

    @property
    def required(self) -> set[str]:
        """The keys of the baselines that have to be beaten."""
        return {each.config.key() for each in self.baselines if each.required}

    @property
    def names(self) -> dict[str, str]:
        return {each.config.key(): each.name for each in self.baselines}

    def seconds(self) -> float:
        """Return the time spent, earlier sessions' trials included."""
        return self._earlier + self.settings.clock() - self._began

    def seconds_left(self, *, proving: bool = False) -> float:
        """Return the remaining budget, at least 0; infinite without one. A proof may exceed it by 5 %."""
        budget = self.settings.budget_seconds
        if budget is None:
            return math.inf
        searching = max(0.0, budget - self.settings.end_seconds)
        return max(0.0, (1.0 + SLACK * proving) * searching - self.seconds())

    def _limit(self, origin: AskedBy, key: str = "") -> float:
        """Tell the measurer the time limit of the next measurement, and return it in seconds. What the result needs
        (the first of ours, a required baseline) has a minute at least; other baselines have half of what is left, then
        a third, as a proof is worth more than one more comparison.
        """
        if self.settings.budget_seconds is None:
            self.measurer.allow(None)
            return math.inf
        left = self.seconds_left(proving=origin.asker is Asker.PROOF)
        needed = key in self.required or (origin.asker is not Asker.BASELINE and self.best() is None)
        needed = needed and not self.is_out_of_time
        is_first = self.points().keys().isdisjoint(self.names)
        share = 1.0 if origin.asker is not Asker.BASELINE else 1 / 2 if is_first else 1 / 3
        allowed = max(left, 60.0) if needed else share * left
        self.measurer.allow(allowed)
        return allowed

    def is_short(self) -> bool:
        return self.seconds_left() < 2 * self.trial_seconds()

    def tried(self) -> set[str]:
        return {row.key for row in self.ended_rows()}

    def ended_rows(self) -> list[TrialRow]:
        """Return the trials of the search that ended, without those of the confirmation run."""
        return [row for row in self.record.rows() if row.block is None and row.outcome is not None]

    def beyond_baselines(self) -> bool:
        return any(row.origin.asker is not Asker.BASELINE for row in self.ended_rows())

    def points(self) -> dict[str, Point]:
        ran = [(row, row.outcome) for row in self.record.rows() if isinstance(row.outcome, Measurement)]
        for key in {row.key: None for row, _ in ran if row.number not in self._gathered}:
            rows = [row for row, _ in ran if row.key == key]
            measurements = tuple(outcome for row, outcome in ran if row.key == key)
            config, estimate = rows[0].config, merged(measurements)
            self._points[key] = Point(
                config=config,
                key=key,
                measurements=measurements,
                estimate=estimate,
                value=self.score(config, measurements, estimate.value),
                feasible=all(map(self.kept_limits, rows)) and self.allowed(config),
            )
        self._gathered.update(row.number for row, _ in ran)
        return self._points

    def why_not(self, config: PipelineConfig) -> str | None:
        named, loader = "loader" in self.facts.limits.only, config.loader
        ops = next((each.op_costs for each in self.ceilings if each.op_costs), None)
        is_native = ops is not None and not costs.python_ops(ops)  # the library makes all of a sample
        if is_native and not (named or loader.shares_lock() or loader.works_elsewhere):
            return f"loader {loader.kind}: no op is Python, so that threads do not wait for each other"
        return feasible.why_not(config, self.facts)

    def allowed(self, config: PipelineConfig) -> bool:
        """True if the user's limits allow it; a configuration not worth a trial may still win if it had one."""
        return feasible.why_not(config, self.facts.with_pointless) is None

    def kept_limits(self, row: TrialRow) -> bool:
        """True if a trial kept the limits of this search; it may have been told under other ones."""
        return not isinstance(row.outcome, Measurement) or (self._excess_bytes(row.config, row.outcome) or 0) <= 0

    def best(self) -> Point | None:
        points = [point for point in self.points().values() if point.feasible]
        return max(points, key=lambda point: (point.value, point.key), default=None)

    def worth(self, config: PipelineConfig) -> float | None:
        point = self.points().get(config.key())
        return point.value if point is not None and point.feasible else None

    def pooled(self) -> Pooled:
        """Return what all measurements so far tell together, in terms of the objective."""
        measured = [(row, row.outcome) for row in self.record.rows() if isinstance(row.outcome, Measurement)]
        if self._pooled is None or self._pooled[0] != len(measured):
            readings, points = list[tuple[str, Reading]](), self.points()
            for row, outcome in measured:
                rate = outcome.images_per_second
                value = self.score(row.config, points[row.key].measurements, rate.value)
                # The score varies less than the rate, in relation, as one-time costs are a part of its time.
                variance = log_variance(rate) * (value / rate.value) ** 2
                readings.append((row.key, Reading(math.log(value), variance, row.block)))
            self._pooled = len(measured), Pooled(readings)
        return self._pooled[1]

    def trial_seconds(self) -> float:
        """Return what a trial takes without the start of a process and compilation, in seconds; 0 before the first."""
        took = [row.running_seconds for row in self.record.rows() if row.outcome is not None]
        return median(took) if took else 0.0

    def score(self, config: PipelineConfig, measurements: Sequence[Measurement], rate: float) -> float:
        """Return the objective: the rate or, if the training's length is known, that over all of it."""
        if self.settings.epochs is None or rate <= 0:
            return rate
        images = self.settings.epochs * self.facts.workload.samples
        return images / (self.once_seconds(config, measurements) + images / rate)

    def once_seconds(self, config: PipelineConfig, measurements: Sequence[Measurement]) -> float:
        """Return what is paid once, in seconds, measured or else predicted: conversion, cache, and the first batch."""
        count, convert, fill = self.facts.workload.samples, 0.0, 0.0
        if self._costs is not None:
            convert, fill = costs.one_time_seconds(config, self._costs, count)
        if written := [each.conversion for each in measurements if each.conversion is not None]:
            convert = median([costs.conversion_seconds(each, count).value for each in written])
        if fills := [each.cache_fill_seconds for each in measurements if each.cache_fill_seconds is not None]:
            fill = median(fills)
        return convert + fill + (median([each.first_batch_seconds for each in measurements]) if measurements else 0.0)

    def highest_ceiling(self) -> Ceiling:
        """Return the highest ceiling of all setups that were measured; requires a ceiling."""
        return max(self.ceilings, key=lambda each: each.model_images_per_second.value)

    def ceiling(self, setup: ModelSetup) -> Ceiling | None:
        return next((each for each in self.ceilings if each.setup == setup), None)

    def timed(self, measure: Callable[[], Measured]) -> Measured:
        self._limit(AskedBy(Asker.RACE))
        began = self.settings.clock()
        measured = measure()
        self.ceiling_seconds += self.settings.clock() - began
        return measured

    def loader_alone(self, config: PipelineConfig) -> float | None:
        """Return what a loader makes without a model, measured now or in an earlier session; None if it failed."""
        key = config.key()
        if key not in self.raced:
            rate = self.timed(lambda: self.measurer.loader_alone(config))
            if rate is None:
                return None
            self.raced[key] = Raced(config=config.model_dump(mode="json"), images_per_second=rate)
            self.record.keep_raced(self.raced.values())
            self.on_event(self.raced[key])
        return self.score(config, (), self.raced[key].images_per_second)

    def known_alone(self, setup: ModelSetup) -> float | None:
        """Return images/s of the model alone in a setup, measured if it was not; None if it cannot run."""
        known = self.ceiling(setup)
        if known is None and self.look_again(setup, again=False) is not None:
            known = self.ceiling(setup)
        return None if known is None else known.model_images_per_second.value

    def look_again(self, setup: ModelSetup, *, again: bool = True) -> Ceiling | None:
        """Measure the model alone in a setup; the highest reading counts. Without `again`, that of a trial will do."""
        reading = self.timed(lambda: self.measurer.model_alone(setup, again=again))
        if reading is None:
            return None
        known = self.ceiling(setup)
        if known is None:
            found = reading.with_loader_of(self.ceilings[0]) if self.ceilings else reading
        elif reading.model_images_per_second.value > known.model_images_per_second.value:
            names = ("model_images_per_second", "model_core_seconds_per_image", "warnings")  # what is of the model
            found = known.model_copy(update={name: getattr(reading, name) for name in names})
        else:
            return reading
        all_of_them = [found if each is known else each for each in self.ceilings] + [found] * (known is None)
        self.record.keep_ceilings(all_of_them)
        self.know_ceilings(all_of_them)
        self.tell(found)
        return reading

    def tell(self, ceiling: Ceiling) -> None:
        """Tell of a ceiling, but for that of a dataset without a model, whose steps take no time."""
        if not self.facts.workload.reads_alone:
            self.on_event(ceiling)

    # ------------------------------------------------------------ trials

    def raced_by_trial(self, config: PipelineConfig) -> float | None:
        """Run one trial of a race, unless it ran before; return what all measurements make, None if it failed."""
        self.run_each([(config, AskedBy(Asker.RACE))])
        return self.worth(config)

    def run_config(self, config: PipelineConfig, origin: AskedBy) -> None:
        """Run one trial of `config`, after those that wait."""
        self.record.enqueue(self.trimmed.asked, config, origin=origin)
        while self.record.waiting():
            self.run_next()

    def run_each(
        self, asked: Iterable[tuple[PipelineConfig, AskedBy]], over: Callable[[], object] = lambda: None
    ) -> None:
        """Run trials with reasons, without repetitions, until the search is `over`; baselines that failed run again."""
        for config, origin in asked:
            if over():
                return
            key, last = config.key(), {row.key: row for row in self.ended_rows()}
            again = origin.asker is Asker.BASELINE and key in last and last[key].number in self._failed_before
            if again or key not in self.tried():
                self.run_config(config, origin)

    def run_next(self) -> None:
        """Run the trial that is enqueued, or else the sampler's choice."""
        trial = self.record.study.ask()
        try:
            asked = self._what(trial)
            if asked is not None:
                self._measure(trial, *asked)
        except BaseException:  # the study must not hold a trial
            self.record.give_up(trial)
            raise

    def _what(self, trial: optuna.Trial) -> tuple[PipelineConfig, AskedBy] | None:
        attributes = trial.user_attrs
        if "config" in attributes:
            config = PipelineConfig.model_validate(attributes["config"])
            note(self.trimmed.asked, trial, from_config(config))
            return config, AskedBy.parse(str(attributes["origin"]))
        try:
            config = to_config(suggest(self.trimmed.asked, trial))
            reason = feasible.why_not(config, self.facts)
        except ConfigError as error:
            reason = error.message
        if reason is not None:
            self.record.refuse(trial, reason)
            return None
        if config.key() in self.tried():
            self.record.repeat(trial, self.worth(config))
            return None
        origin = AskedBy(Asker.SAMPLER, "tpe")
        self.record.describe(trial, config, origin=origin)
        return config, origin

    def _measure(self, trial: optuna.Trial, config: PipelineConfig, origin: AskedBy) -> None:
        settings, best = self.settings, self.best()
        left = None if settings.budget_seconds is None else self.seconds_left()
        self.on_event(TrialStarted(number=trial.number, origin=origin, config=config, seconds_left=left))
        proving = origin.asker is Asker.PROOF
        # A one-time cost can make up for a lower rate and the other way round: then nothing is cut short.
        hopeless = None if best is None or proving or settings.epochs is not None else best.estimate.low
        allowed = self._limit(origin, config.key())
        before = settings.clock()
        outcome = self.measurer.measure(config, proof=proving, must_reach=hopeless)
        value = excess = None
        if isinstance(outcome, Measurement):
            known = self.points().get(config.key())
            measurements = [*(known.measurements if known else ()), outcome]
            value = self.score(config, measurements, merged(measurements).value)
            excess = self._excess_bytes(config, outcome)
        seconds = settings.clock() - before
        if isinstance(outcome, TrialFailure) and outcome.kind is FailureKind.INTERRUPTED and seconds >= allowed:
            self.record.give_up(trial)  # it was cut, and says nothing of the configuration
            self.is_out_of_time = self.seconds_left() == 0.0
        else:
            self.record.tell(trial, outcome, value=value, excess_bytes=excess, seconds=seconds)
        top = None if (now := self.best()) is None else now.value
        self.on_event(
            TrialFinished(number=trial.number, origin=origin, config=config, outcome=outcome, value=value, best=top)
        )

    def _excess_bytes(self, config: PipelineConfig, measured: Measurement) -> int | None:
        """Return the bytes beyond the user's limit, as Optuna's constraint: above zero is too much; None without."""
        took, most = taken(measured, config, self.facts.workload).peak_rss_bytes, self.facts.limits.memory_bytes
        return None if took is None or most is None else took - most


# -------------------- the model alone

# The start of a process, so often, must fit into the time that is left, to try a setup that needs another one: more
# devices, which may gain their number, and another order of channels, which gains little and may have to go back.
_RESTARTS = {"devices": 3.0, "finish": 4.0, "channels": 8.0}
_NO_TIME = "there was no time to measure the model alone with it"


def first_ceiling(session: Session) -> Ceiling:
    """Measure the model alone in its usual setup, or in the first that the space has, with the loader's ops."""
    usual, others = ModelSetup(), dict[str, Any]()
    for name in usual._fields:
        if (values := values_of(session, name)) and getattr(usual, name) not in values:
            others[name] = values[0]
    return session.timed(lambda: session.measurer.ceiling(usual._replace(**others)))


def devices_for(session: Session, wanted: float) -> int:
    """Return the fewest devices on which the model takes `wanted` images/s, or all that it can. Each number needs a
    process, so only those are measured that could ideally be enough, or do the same with fewer.
    """
    usual, most = session.ceilings[0], 0.9  # of the ideal, that more devices come to: they exchange gradients
    known = {usual.setup.devices: usual.model_images_per_second.value}
    best = usual.setup.devices
    counts = [each for each in values_of(session, "devices") if isinstance(each, int) and each > best]

    def measured(count: int, and_back: int = 0) -> float:  # one more start, if it is not enough
        if session.seconds_left() < (_RESTARTS["devices"] + and_back) * session.starting_seconds:
            session.left_out[f"devices {count}: {_NO_TIME}"] = 1
            return 0.0
        known[count] = session.known_alone(usual.setup._replace(devices=count)) or 0.0
        return known[count]

    for count in counts:
        if known[best] >= wanted:
            break
        if most * known[best] / best * count < wanted and count != counts[-1]:
            continue
        if (rate := measured(count)) < WORTH * known[best]:
            if rate > 0:
                session.left_out[f"devices {count}: the model alone is {rate / known[best]:.2f} times as fast"] = 1
            break
        best = count
    for count in sorted((each for each in counts if each < best and each not in known), reverse=True):
        enough, shared = EQUAL * min(wanted, known[best]), most if known[best] >= wanted else 1.0
        nearest = max(each for each in known if each < count)
        if shared * known[nearest] / nearest * count < enough or measured(count, and_back=1) < enough:
            break
        best = count
    return best


def setup_for(session: Session, setup: ModelSetup) -> ModelSetup:
    """Return a setup with the settings that make the model alone faster; of each the last value, which gains most."""
    usual = session.known_alone(setup)
    for name in ("finish", "channels", "steps_per_execution") if usual is not None else ():
        assert usual is not None
        others = [each for each in values_of(session, name) if each != getattr(setup, name)]
        step = session.facts.workload.batch_size / usual
        # Several steps a call are for short ones: a call takes some tenths of a millisecond.
        if not others or (name == "steps_per_execution" and step > 0.01):
            continue
        if name in _RESTARTS and session.seconds_left() < _RESTARTS[name] * session.starting_seconds:
            session.left_out[f"{name} {others[-1]}: {_NO_TIME}"] = 1
            continue
        change: dict[str, Any] = {name: others[-1]}
        rate = session.known_alone(setup._replace(**change))
        if rate is not None and EQUAL * rate >= usual:
            setup, usual = setup._replace(**change), rate
        elif rate is not None:
            why = f"the model alone is no faster with it: {rate / usual:.2f} times the rate"
            session.left_out[f"{name} {others[-1]}: {why}"] = 1
    return setup


def values_of(session: Session, name: str) -> list[SettingValue]:
    """Return the values of a setting of the model's setup that can be tried, in the space's order."""
    values = next((each.values for each in session.trimmed.space if each.name == name), ())
    return [each for each in values if next(feasible.useless(name, each, session.facts), None) is None]
