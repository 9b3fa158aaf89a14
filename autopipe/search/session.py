"""A running search: it runs the next trial, records it, reports it, and holds the state of the search.

The trials and their order are chosen by `autopipe.search.study`, the sampler and `confirmation`. The model alone is
measured here as well, in as many of its setups as the time allows, and again if a reading may be too low; which setups
are worth a trial is told in `feasible`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TypeVar

import optuna

from autopipe.errors import ConfigError
from autopipe.measure import costs
from autopipe.measure.costs import Costs
from autopipe.measure.facts import Ceiling, Facts
from autopipe.measure.outcome import FailureKind, Measurement, TrialFailure
from autopipe.measure.stats import log_variance, median
from autopipe.pipeline.config import ModelSetup, PipelineConfig, from_config, to_config
from autopipe.search import feasible, surrogate, trials
from autopipe.search.measurer import Baseline, Measurer
from autopipe.search.record import Record
from autopipe.search.settings import Settings
from autopipe.search.surrogate import Features, Reading, Surrogate
from autopipe.search.trials import AskedBy, Asker, CeilingMeasured, OnEvent, Point, Row, TrialFinished, TrialStarted
from autopipe.values import Estimate

_EQUAL = 0.02  # in log units: predictions this close together count as equal
_SLACK = 0.05  # of the budget, by which a confirmation may exceed it

Measured = TypeVar("Measured")


class Session:
    """A search while it runs."""

    def __init__(
        self,
        trimmed: feasible.Trimmed,
        measurer: Measurer,
        facts: Facts,
        settings: Settings,
        record: Record,
        on_event: OnEvent,
    ) -> None:
        self.trimmed, self.measurer, self.facts, self.settings = trimmed, measurer, facts, settings
        self.record, self.on_event = record, on_event
        self.sampler = settings.sampler or surrogate.SURROGATE
        self.ceilings: Sequence[Ceiling] = ()
        self.ceiling_seconds = 0.0
        self.baselines: Sequence[Baseline] = ()  # that the winner has to beat
        self.believed: tuple[int, Surrogate] | None = None  # after so many trials
        self._features: Features | None = None
        self._costs: Costs | None = None
        self._first_costs: Costs | None = None
        self._ranked: Mapping[str, PipelineConfig] = {}
        self._ranks: dict[str, tuple[float | str, ...]] = {}
        self._points: dict[str, Point] = {}
        self._gathered: set[int] = set()  # the trials whose measurements `_points` holds
        self._began = settings.clock() if settings.began is None else settings.began
        self.starting_seconds = settings.clock() - self._began  # of the trials' process, and of the workload in it
        self._earlier = sum(row.seconds for row in record.rows())
        self._failed_before = {row.number for row in record.rows() if isinstance(row.outcome, TrialFailure)}

    def know_ceilings(self, ceilings: Sequence[Ceiling]) -> None:
        """Take up new ceilings; predictions become possible if they hold op costs.

        The first ones decide which setups of the model bring nothing: later ones must not exclude configurations that
        ran.
        """
        first, self.ceilings = not self.ceilings, ceilings
        self._gathered.clear()  # one-time costs, and with them values, may become known
        self.believed = self._features = None
        self._costs = Costs.of(ceilings, self.facts) if any(each.op_costs for each in ceilings) else None
        if self._costs is not None:
            self._first_costs = self._first_costs or self._costs
            self.facts = costs.useful(self._costs, self.facts)
        before, named = self.facts, self.facts.limits.only
        wanted = [each.model_setup for each in self.trimmed.candidates.values()]
        useless = feasible.useless(ceilings, wanted, named, self.facts.workload.batch_size) if first else {}
        self.facts, self._ranked = replace(before, pointless={**before.pointless, **useless}), {}
        self._ranks.clear()
        if self._costs is not None or useless:
            left = feasible.narrowed(self.trimmed, self.facts)
            if feasible.why_not(next(iter(left.candidates.values())), self.facts) is not None:
                # If all requested settings bring nothing by these figures, they are tried anyway.
                self.facts = replace(before.unmeasured, pointless=before.pointless)
            self.trimmed = left

    # ------------------------------------------------------------ state

    @property
    def seed(self) -> int:
        """A sampler's seed: a resumed study must not draw again what it drew before."""
        return self.settings.seed + 1_000_003 * len(self.record.rows())

    @property
    def required(self) -> set[str]:
        """The keys of the baselines that have to be beaten."""
        return {each.config.key() for each in self.baselines if each.required}

    @property
    def names(self) -> dict[str, str]:
        """The names of the baselines, by key."""
        return {each.config.key(): each.name for each in self.baselines}

    def seconds(self) -> float:
        """Return the time spent, earlier sessions' trials included."""
        return self._earlier + self.settings.clock() - self._began

    def seconds_left(self, *, proving: bool = False) -> float:
        """Return the remaining budget, at least 0; infinite without one. A proof may exceed it by 5 %."""
        budget = self.settings.search_seconds
        if budget is None:
            return math.inf
        return max(0.0, (1.0 + _SLACK * proving) * budget - self.seconds())

    def _limit(self, origin: AskedBy, key: str = "") -> float:
        """Tell the measurer the time limit of the next measurement, and return it in seconds.

        The first baseline, a required one and one other configuration have no limit: the result needs them. Another
        baseline has half of the remaining time: untried configurations are worth more than a slow comparison.
        """
        if origin.asker is Asker.BASELINE:
            needed, share = key in self.required or not self.record.rows(), 0.5
        else:
            needed, share = self.best() is None or not self.beyond_baselines(), 1.0
        no_end = self.settings.budget_seconds is None or needed
        allowed = math.inf if no_end else share * self.seconds_left(proving=origin.asker is Asker.PROOF)
        self.measurer.allow(None if no_end else allowed)
        return allowed

    def is_short(self) -> bool:
        return self.seconds_left() < 2 * self.trial_seconds()

    def tried(self) -> set[str]:
        """Return the keys of the configurations that ran."""
        return {row.key for row in self.ended_rows()}

    def search_rows(self) -> list[Row]:
        return [row for row in self.record.rows() if row.block is None]

    def ended_rows(self) -> list[Row]:
        return [row for row in self.search_rows() if row.outcome is not None]

    def beyond_baselines(self) -> bool:
        """Return True if another configuration than the baselines has run."""
        return any(row.origin.asker not in (Asker.BASELINE, Asker.AGAIN) for row in self.ended_rows())

    def points(self) -> dict[str, Point]:
        rows = [row for row in self.record.rows() if isinstance(row.outcome, Measurement)]
        for key in {row.key: None for row in rows if row.number not in self._gathered}:
            self._points[key] = self._point(key, [each for each in rows if each.key == key])
        self._gathered.update(row.number for row in rows)
        return self._points

    def _point(self, key: str, rows: Sequence[Row]) -> Point:
        measurements = tuple(row.outcome for row in rows if isinstance(row.outcome, Measurement))
        estimate = trials.merged(measurements)
        return Point(
            config=rows[0].config,
            key=key,
            measurements=measurements,
            estimate=estimate,
            value=self.score(rows[0].config, measurements, estimate.value),
            feasible=all(map(self.kept_limits, rows)) and self.allowed(rows[0].config),
        )

    def allowed(self, config: PipelineConfig) -> bool:
        """True if the user's limits allow it; a configuration not worth a trial may still win if it had one."""
        return feasible.why_not(config, self.facts.unmeasured) is None

    def kept_limits(self, row: Row) -> bool:
        """True if a trial kept the limits of this search; it may have been told under other ones."""
        if not isinstance(row.outcome, Measurement):
            return True
        return all(excess <= 0 for excess in self._excesses(row.config, row.outcome).values())

    def best(self) -> Point | None:
        points = [point for point in self.points().values() if point.feasible]
        return max(points, key=lambda point: (point.value, point.key), default=None)

    def worth(self) -> dict[str, float | None]:
        """Return the value of each tried configuration, by key; None if it failed or breaks a limit."""
        failed = {row.key: None for row in self.record.rows() if isinstance(row.outcome, TrialFailure)}
        return {**failed, **{key: each.value if each.feasible else None for key, each in self.points().items()}}

    def surrogate(self) -> Surrogate:
        """Return the surrogate of all measurements so far, over all candidates, in terms of the objective."""
        measured = [(row, row.outcome) for row in self.record.rows() if isinstance(row.outcome, Measurement)]
        if self.believed is None or self.believed[0] != len(measured):
            points = self.points()
            configs = {**self.trimmed.candidates, **{key: each.config for key, each in points.items()}}
            if self._features is None or not configs.keys() <= self._features.configs.keys():
                self._features = Features(configs, self.facts.cores, self.trend, before=self._features)
            readings = [(row.key, self._reading(row, outcome)) for row, outcome in measured]
            before = None if self.believed is None else self.believed[1]
            self.believed = len(measured), Surrogate(self._features, readings, before)
        return self.believed[1]

    def _reading(self, row: Row, outcome: Measurement) -> Reading:
        rate = outcome.images_per_second
        value = self.score(row.config, self.points()[row.key].measurements, rate.value)
        # The relative variance of the score is less than that of the rate, as one-time costs are a part of its time.
        return Reading(math.log(value), log_variance(rate) * (value / rate.value) ** 2, row.block)

    def trend(self, config: PipelineConfig) -> float:
        """Return the logarithm of a configuration's prediction by the first ceilings; 0 if there is none.

        A reading that is corrected later is of one setup only, and would set it apart from the others.
        """
        known = self._first_costs
        return 0.0 if known is None else math.log(self._promise(config, known))

    def trial_seconds(self) -> float:
        took = [row.seconds for row in self.record.rows() if row.outcome is not None]
        return median(took) if took else 0.0

    def next_seconds(self, usual_seconds: float = 0.0, count: int = 1) -> float:
        """Return the expected duration of each of the next `count` trials, with the reads for their caches.

        Of the trials so far these reads are taken off. `usual_seconds` is the duration of a trial before the first one.
        """
        ended = [row for row in self.record.rows() if row.outcome is not None]
        took = [max(0.0, row.seconds - self.reading_seconds(row.config)) for row in ended]
        tried = self.tried()
        untried = (config for key, config in self.ranked().items() if key not in tried)
        reading = [self.reading_seconds(each) for each in itertools.islice(untried, count)]
        return (median(took) if took else usual_seconds) + (fmean(reading) if reading else 0.0)

    def reading_seconds(self, config: PipelineConfig) -> float:
        """Return the predicted time in which a trial reads the samples of its cache, before it measures."""
        return 0.0 if self._costs is None else costs.trial_reading_seconds(config, self._costs, self.facts.workload)

    def ranked(self) -> Mapping[str, PipelineConfig]:
        """Return the candidates by key, the best prediction first; of equal ones by a rule of thumb: whose cache is
        filled sooner, no conversion, threads, a worker a core, the most batches ahead.
        """
        if not self._ranked:
            self._ranked = dict(sorted(self.trimmed.candidates.items(), key=self._rank))
        return self._ranked

    def _rank(self, candidate: tuple[str, PipelineConfig]) -> tuple[float | str, ...]:
        key, config = candidate
        if key not in self._ranks:
            near = -round(math.log(self.promise(config)) / _EQUAL) if self.can_predict else 0
            loader, cores = config.loader, self.facts.cores
            spare = abs((loader.worker_count() or cores) - cores)
            ahead = (loader.buffered_batches() or 0) + config.device_prefetch
            self._ranks[key] = near, self.reading_seconds(config), config.kept.converts, loader.rank, spare, -ahead, key
        return self._ranks[key]

    def score(self, config: PipelineConfig, measurements: Sequence[Measurement], rate: float) -> float:
        if self.settings.epochs is None or rate <= 0:
            return rate
        return trials.score(rate, self.once_seconds(config, measurements), self._images)

    def once_seconds(self, config: PipelineConfig, measurements: Sequence[Measurement]) -> float:
        """Return the one-time costs of a configuration in seconds: measured, else predicted."""
        count = self.facts.workload.samples
        predicted = (0.0, 0.0) if self._costs is None else costs.one_time_seconds(config, self._costs, count)
        return trials.one_time_seconds(measurements, predicted, count)

    def predicted(self, config: PipelineConfig) -> float | None:
        return None if self._costs is None else costs.predict(config, self._costs)

    def promise(self, config: PipelineConfig, rate: float | None = None) -> float:
        """Return the prediction, or `rate`, in terms of the objective; requires predictions."""
        assert self._costs is not None
        return self._promise(config, self._costs, rate)

    def _promise(self, config: PipelineConfig, known: Costs, rate: float | None = None) -> float:
        rate = costs.predict(config, known) if rate is None else rate
        if self.settings.epochs is None:
            return rate
        once = sum(costs.one_time_seconds(config, known, self.facts.workload.samples))
        return trials.score(rate, once, self._images)

    @property
    def _images(self) -> int:
        """The images of the whole training; 0 if its length is not known."""
        return (self.settings.epochs or 0) * self.facts.workload.samples

    @property
    def can_predict(self) -> bool:
        return self._costs is not None

    def highest_ceiling(self) -> Ceiling:
        """Return the highest ceiling of those setups that are still tried; requires a ceiling."""
        worth = [each for each in self.ceilings if not feasible.hopeless(each.setup, self.facts.pointless)]
        return max(worth or self.ceilings, key=lambda each: each.model_images_per_second.value)

    def ceiling(self, config: PipelineConfig) -> Ceiling | None:
        return next((each for each in self.ceilings if each.setup == config.model_setup), None)

    def timed(self, measure: Callable[[], Measured]) -> Measured:
        """Return a measurement beside the trials; its time counts as measuring."""
        self._limit(AskedBy(Asker.AGAIN, "ceiling"))
        began = self.settings.clock()
        measured = measure()
        self.ceiling_seconds += self.settings.clock() - began
        return measured

    def alone(self, setup: ModelSetup, *, again: bool = True) -> Ceiling | None:
        return self.timed(lambda: self.measurer.model_alone(setup, again=again))

    def know(self, config: PipelineConfig) -> None:
        """Measure the setup of a configuration that has just run, if there was no time for it at the start."""
        if self.ceilings and self.ceiling(config) is None:
            self.look_again(config, again=False)

    def look_again(self, config: PipelineConfig, *, again: bool = True) -> Ceiling | None:
        """Measure the model alone once more, in the setup of `config`, and return this reading.

        Other load can only lower a ceiling, so the search uses the highest reading.
        """
        reading = self.alone(config.model_setup, again=again)
        if reading is None:
            return None
        known = self.ceiling(config)
        found = _higher(known, reading) if known is not None else reading
        if known is None and self.ceilings:
            found = reading.with_loader_of(self.ceilings[0])
        if found is known:
            return reading
        all_of_them = [found if each is known else each for each in self.ceilings]
        all_of_them += [found] if known is None else []
        self.record.keep_ceilings(all_of_them)
        self.know_ceilings(all_of_them)
        self.on_event(CeilingMeasured(ceiling=found))
        return reading

    # ------------------------------------------------------------ trials

    def run_config(self, config: PipelineConfig, origin: AskedBy) -> None:
        """Run one trial of `config`, after those that wait."""
        self.record.enqueue(self.trimmed.space, config, origin=origin, predicted=self.predicted(config))
        while self.record.waiting():
            self.run_next()

    def run_each(
        self, asked: Iterable[tuple[PipelineConfig, AskedBy]], over: Callable[[], object] = lambda: None
    ) -> None:
        """Run the trials that have a reason of their own, without repetitions, until the search is `over`.

        A baseline that failed in an earlier session runs again: its cause may be gone.
        """
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
            surrogate.note(self.trimmed.space, trial, from_config(config))
            return config, AskedBy.parse(str(attributes["origin"]))
        try:
            config = to_config(surrogate.suggest(self.trimmed.space, trial))
            reason = feasible.why_not(config, self.facts)
        except ConfigError as error:
            reason = error.message
        if reason is not None:
            self.record.refuse(trial, reason)
            return None
        origin = AskedBy(Asker.SAMPLER, self.sampler.name)
        self.record.describe(trial, config, origin=origin, predicted=self.predicted(config))
        return config, origin

    def _measure(self, trial: optuna.Trial, config: PipelineConfig, origin: AskedBy) -> None:
        settings, best = self.settings, self.best()
        left = None if settings.budget_seconds is None else self.seconds_left()
        predicted = self.predicted(config)
        self.on_event(
            TrialStarted(number=trial.number, origin=origin, config=config, predicted=predicted, seconds_left=left)
        )
        proving = origin.asker is Asker.PROOF
        # A one-time cost can make up for a lower rate and the other way round: then nothing is cut short.
        hopeless = None if best is None or proving or settings.epochs is not None else best.estimate.low
        allowed = self._limit(origin, config.key())
        before = settings.clock()
        outcome = self.measurer.measure(config, proof=proving, must_reach=hopeless)
        value, constraints = self._judged(config, outcome)
        seconds = settings.clock() - before
        if isinstance(outcome, TrialFailure) and outcome.kind is FailureKind.INTERRUPTED and seconds >= allowed:
            self.record.give_up(trial)  # it was cut, and says nothing of the configuration
        else:
            self.record.tell(trial, outcome, value=value, constraints=constraints, seconds=seconds)
        now = self.best()
        self.on_event(
            TrialFinished(
                number=trial.number,
                origin=origin,
                config=config,
                outcome=outcome,
                value=value,
                best=None if now is None else now.value,
            )
        )

    def _judged(
        self, config: PipelineConfig, outcome: Measurement | TrialFailure
    ) -> tuple[float | None, dict[str, float]]:
        if isinstance(outcome, TrialFailure):
            return None, {}
        known = self.points().get(config.key())
        measurements = [*(known.measurements if known else ()), outcome]
        value = self.score(config, measurements, trials.merged(measurements).value)
        return value, self._excesses(config, outcome)

    def _excesses(self, config: PipelineConfig, measured: Measurement) -> dict[str, float]:
        return trials.excesses(trials.taken(measured, config, self.facts.workload), self.facts.limits)


# -------------------- the model alone

_OF_THE_MODEL = ("model_images_per_second", "model_core_seconds_per_image", "warnings")
_SHARE = 1 / 8  # of the time that is left, for the model alone in another setup
_SHARE_OF_ALL = 1 / 4  # of the time that is left after the first, for all other setups
_FIRST_SHARE = 1 / 3  # of the time that is left, for the first setup with the ops and the reads
_ROUNDS, _AS_FAST = 3, 1.1  # of two setups by turns, at most; times slower, on an idle machine
_ALONE_SECONDS, _ALONE_STEPS = 3.0, 15  # of a reading, before the first: the start, and steps
_ALONE_CALLS = 4  # of several steps each, at least


def measured_ceilings(session: Session, asked: Iterable[ModelSetup]) -> list[Ceiling]:
    """Measure the usual setup of the model, and the others if that takes a small part of the time that is left.

    A model whose step takes seconds takes minutes to compile and run in each, which trials need more. What may gain the
    most comes first: the most devices, then fewer. All other settings are measured on the fastest number of devices.
    """
    clock, wanted = session.settings.clock, feasible.ordered(asked)
    began = clock()
    found = list(session.timed(lambda: session.measurer.ceilings(wanted[:1])))
    if not found:
        return []
    step, took = session.facts.workload.batch_size / found[0].model_images_per_second.value, clock() - began
    if took < _FIRST_SHARE * session.seconds_left():  # else it may have compiled for long, as it would for each setup
        took = min(took, _ALONE_SECONDS + _ALONE_STEPS * step)  # the first measured the ops and the reads, too
    all_end = clock() + _SHARE_OF_ALL * session.seconds_left()
    usual, ended = wanted[0], False

    def measure(setup: ModelSetup, share: float = _SHARE) -> None:
        nonlocal found, took, ended
        most = share * session.seconds_left()
        ended = ended or took > most or clock() + took > all_end
        if (
            ended
            or _is_hopeless(session, setup, found, wanted)
            or _ALONE_CALLS * setup.steps_per_execution * step > most
        ):
            return
        began = clock()
        other = session.alone(setup)
        took = max(took, clock() - began)
        if other is not None:
            found = _by_turns(session, [*found, other.with_loader_of(found[0])], wanted, took)

    for setup in sorted((each for each in wanted[1:] if each[1:] == usual[1:]), key=lambda each: -each.devices):
        measure(setup, _FIRST_SHARE)
    pays = [each for each in found if not _is_hopeless(session, each.setup, found, wanted)]
    fastest = max(pays or found, key=lambda each: each.model_images_per_second.value).setup.devices
    for setup in wanted[1:]:
        if setup.devices == fastest and setup[1:] != usual[1:]:
            measure(setup)
    return found


def _is_hopeless(session: Session, setup: ModelSetup, found: list[Ceiling], wanted: Sequence[ModelSetup]) -> bool:
    facts = session.facts
    size = facts.workload.batch_size
    return feasible.hopeless(setup, feasible.useless(found, wanted, facts.limits.only, size, measuring=True))


def _by_turns(
    session: Session, found: list[Ceiling], wanted: Sequence[ModelSetup], reading_seconds: float
) -> list[Ceiling]:
    """Measure the last setup again if it seems to bring nothing, together with the one that it was compared with.

    Another process may have been busy during one of the two readings, and no trial will tell. If the machine is slower
    than before, there is another round; if it stays so, the last one gives the ratio of the two.
    """
    usual, last = feasible.rival(found), found[-1]
    if usual is None:
        return found
    known = usual.model_images_per_second.value
    for _ in range(_ROUNDS):
        too_long = 2 * reading_seconds > _SHARE * session.seconds_left()
        if too_long or not _is_hopeless(session, last.setup, found, wanted):
            break
        one, other = session.alone(usual.setup), session.alone(last.setup)
        if one is None or other is None:
            break
        slower = max(1.0, known / one.model_images_per_second.value)
        found = [*found[:-1], _higher(found[-1], _faster(other, slower))]
        if slower <= _AS_FAST:
            break
    return found


def _faster(ceiling: Ceiling, times: float) -> Ceiling:
    rate = ceiling.model_images_per_second
    values = {name: times * value for name, value in rate.model_dump().items()}
    return ceiling.model_copy(update={"model_images_per_second": Estimate(**values)})


def _higher(known: Ceiling, again: Ceiling) -> Ceiling:
    """Return a ceiling with another reading of the model in it, if that is higher."""
    if again.model_images_per_second.value <= known.model_images_per_second.value:
        return known
    return known.model_copy(update={name: getattr(again, name) for name in _OF_THE_MODEL})
