"""The budget of a search, and the three rules that end it: time or trials, the model as the limit, and no more gain.

A configuration that seems to be at the ceiling is measured again before a search ends, and so is the model alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autopipe.measure.bottleneck import AS_FAST
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import Measurement, TrialFailure
from autopipe.measure.stats import REPEATABILITY, log_variance
from autopipe.search import confirmation
from autopipe.search.result import Reason, Stop
from autopipe.search.session import Session
from autopipe.search.trials import AskedBy, Asker, BudgetPlanned, Point, Row
from autopipe.values import Estimate, rate_text

_CONFIRMATION_SHARE = 1 / 2  # of the time for trials, for the confirmation run
_FEWEST_TRIALS = 4  # of a confirmation run: two blocks of two
_TRIAL_SECONDS = 3.0  # of an ordinary trial, before the first has run
_TRIAL_STEPS = 4  # the fewest steps of a trial, and its start
_ADVISED_TRIALS = 10
_READINGS = 3  # of the model alone at most, while it is slower than a training that was just measured
_GIVEN_AWAY = 0.02  # of the ceiling, on an unsteady machine


def best_so_far(session: Session) -> list[Estimate | None]:
    """Return the best estimate of the objective after each trial; None before the first success.

    Interrupted trials are ignored.
    """
    best: list[Estimate | None] = []
    for row in session.ended_rows():
        here, last = _scored(session, row), best[-1] if best else None
        best.append(here if last is None or (here is not None and here.value > last.value) else last)
    return best


def _scored(session: Session, row: Row) -> Estimate | None:
    if not isinstance(row.outcome, Measurement) or not session.kept_limits(row) or not session.allowed(row.config):
        return None
    raw = row.outcome.images_per_second
    low, value, high = (session.score(row.config, [row.outcome], rate) for rate in (raw.low, raw.value, raw.high))
    return Estimate(value=value, low=low, high=high)


def no_gain_stop(best: Sequence[Estimate | None], *, patience: int) -> Stop | None:
    """Return a stop if none of the last `patience` trials is above the interval of the best before them.

    A best with one window has no interval, and rules out no gain.
    """
    if len(best) <= patience:
        return None
    before, now = best[-patience - 1], best[-1]
    if before is None or now is None or not before.has_interval or now.value > before.high:
        return None
    message = f"The last {patience} trials were not significantly faster than the best."
    return Stop(reason=Reason.NO_GAIN, message=message)


def needed_share(rate: Estimate, ceiling: Ceiling, share: float) -> float:
    """Return the share of the ceiling at which nothing is left to gain: `share`, or less on an unsteady machine.

    Two figures within `REPEATABILITY` standard deviations of one count as the same, but at most 2 % are given away.
    """
    variance = max(map(log_variance, (rate, ceiling.model_images_per_second)))
    return max(share - _GIVEN_AWAY, min(share, 1.0 - REPEATABILITY * math.sqrt(variance)))


def ceiling_stop(rate: Estimate, ceiling: Ceiling, *, share: float, what: str) -> Stop | None:
    """Return a stop if `what`, at `rate` images/s, leaves nothing to gain below the model alone."""
    top = ceiling.model_images_per_second.value
    if rate.value < share * top:
        return None
    return Stop(
        reason=Reason.CEILING,
        message=f"{what} reaches {rate_text(rate.value)} images/s, {min(1.0, rate.value / top):.0%} of the "
        f"{rate_text(top)} that the model takes when data costs nothing: the model is the limit, and no loader can be "
        "faster.",
    )


def _trials_used(allowed: int, ran: int) -> str:
    one = allowed == 1
    said = f"{allowed} {'trial was' if one else 'trials were'} allowed"
    if ran > allowed:
        return f"{said}, and {ran} have run, the baselines among them."
    return f"{said} and {'has' if one else 'have'} been used."


class Budget:
    """The budget of one search, and the rules that end it."""

    def __init__(self, session: Session) -> None:
        self._session, self._settings = session, session.settings
        self._most_for_confirmation = math.inf  # seconds
        self._looked_for = set[tuple[str, int]]()  # figures at the ceiling, after which the model alone was read again

    def plan(self) -> BudgetPlanned | None:
        """Divide the remaining time, and return the plan; None without a budget, or if it is used up already."""
        session, budget = self._session, self._settings.budget_seconds
        self._most_for_confirmation = _CONFIRMATION_SHARE * session.seconds_left()
        if budget is None or (session.record.rows() and session.is_short()):
            return None
        usual = session.ceilings[0] if session.ceilings else None
        rates = [] if usual is None else [usual.model_images_per_second, usual.loader_images_per_second]
        step = max((session.facts.workload.batch_size / each.value for each in rates if each is not None), default=0.0)
        trial = session.next_seconds(max(_TRIAL_SECONDS, _TRIAL_STEPS * step), _ADVISED_TRIALS)
        # The first baseline has a process of its own, which starts as slowly.
        starting = 0.0 if session.trial_seconds() else session.starting_seconds
        spent, left = session.seconds(), max(0.0, session.seconds_left() - starting)
        return BudgetPlanned(
            budget_seconds=budget,
            spent_seconds=spent,
            trial_seconds=trial,
            trials=int(left / trial),
            needed_seconds=spent + starting + 2 * trial + self._settings.end_seconds,
            advised_seconds=spent + starting + (_ADVISED_TRIALS + self._trials_in_confirmation()) * trial,
        )

    # ------------------------------------------------------------ the rules

    def over(self) -> Stop | None:
        return (
            self._of_the_best()
            or self.used_up()
            or no_gain_stop(best_so_far(self._session), patience=self._settings.patience)
        )

    def used_up(self) -> Stop | None:
        """Return a stop if nothing is left to try, or no trial, or no time for one more and the confirmation run.

        A search goes on until a configuration other than the baselines has run. If trials are used up, a usable
        baseline is enough; foreign code cannot be used.
        """
        session, settings, tried = self._session, self._settings, self._session.tried()
        if session.trimmed.candidates.keys() <= tried:
            return Stop(reason=Reason.EXHAUSTED, message="Every configuration that can run has been measured.")
        beyond = self._session.beyond_baselines()
        ran = len(session.ended_rows())
        if ran >= settings.trials and (beyond or session.best() is not None):
            return Stop(reason=Reason.TRIALS, message=_trials_used(settings.trials, ran))
        return self._time_up() if beyond else None

    def _time_up(self) -> Stop | None:
        session, settings, most = self._session, self._settings, self._most_for_confirmation
        if settings.budget_seconds is None:
            return None
        trial, spent = session.next_seconds(), session.seconds()
        most = min(most, session.seconds_left(proving=True))  # too little for a confirmation run does for trials
        kept = 0.0 if most < _FEWEST_TRIALS * trial else min(self._confirmation_seconds(), most)
        needed = trial + kept + settings.end_seconds
        if spent + needed < settings.budget_seconds:
            return None
        tried, whole = len(session.tried() & session.trimmed.candidates.keys()), session.trimmed.whole
        proof = self._confirmation_seconds()
        proof_text = f"; a proof needs {max(1.0, proof):.0f} s" if proof else ""
        return Stop(
            reason=Reason.TIME,
            message=f"The time for trials was up after {spent:.0f} s of {settings.budget_seconds:.0f} s: {tried:,} of "
            f"{whole:,} configurations {'was' if tried == 1 else 'were'} tried{proof_text}.",
        )

    def _confirmation_seconds(self) -> float:
        if self._settings.blocks[1] == 0:
            return 0.0
        if self._session.best() is None:
            return self._trials_in_confirmation() * self._session.trial_seconds()
        return confirmation.expected_seconds(self._session)

    def _trials_in_confirmation(self) -> int:
        theirs = sum(each.config.loader.is_foreign and not each.required for each in self._session.baselines)
        left_out = max(0, theirs - confirmation.MOST_OF_OTHERS)
        return (self._settings.finalists + len(self._session.baselines) - left_out) * self._settings.blocks[0]

    def nothing_to_confirm(self, stop: Stop) -> bool:
        """True if a baseline is at the ceiling: then only the gain over a required baseline is claimed."""
        if stop.reason is not Reason.CEILING:
            return False
        return self._theirs_is_as_fast() or not self._session.beyond_baselines()

    # ------------------------------------------------------------ at the ceiling

    def of_a_baseline(self) -> Stop | None:
        for each in self._session.baselines:
            point = self._session.points().get(each.config.key())
            stop = self._looked_at(f"The baseline {each.name}", point, self._settings.ceiling_share)
            if stop is not None:
                return stop
        return None

    def _of_the_best(self) -> Stop | None:
        """Return a stop if the best leaves nothing to gain; foreign code at the ceiling lowers the bar."""
        settings = self._settings
        share = settings.ceiling_share if self._theirs_is_there() else settings.reached_share
        return self._looked_at("The best", self._session.best(), share)

    def _theirs_is_there(self) -> bool:
        """True if foreign code is at the ceiling, so that nothing is left to gain."""
        points, share = self._session.points(), self._settings.ceiling_share
        theirs = (point for key in self._theirs() if (point := points.get(key)) is not None)
        return any(self._at_ceiling("", each, share) is not None for each in theirs)

    def _theirs(self) -> list[str]:
        return [each.config.key() for each in self._session.baselines if each.config.loader.is_foreign]

    def _theirs_is_as_fast(self) -> bool:
        """True if foreign code is at the ceiling, and the best no faster than it and the required baselines."""
        best, points = self._session.best(), self._session.points()
        if best is None or not self._theirs_is_there():
            return False
        fast = {key for key, each in points.items() if each.estimate.value >= AS_FAST * best.estimate.value}
        to_beat = self._session.required & points.keys()
        return not fast.isdisjoint(self._theirs()) and to_beat <= fast

    def _looked_at(self, what: str, point: Point | None, share: float) -> Stop | None:
        """Return a stop if a point is at the ceiling when it is measured twice, and the model alone once more."""
        if point is None or not point.feasible or self._at_ceiling(what, point, share) is None:
            return None
        if any(row.key == point.key and isinstance(row.outcome, TrialFailure) for row in self._session.search_rows()):
            return None  # it would fail again at each look
        if (before := len(point.measurements)) < 2:  # one lucky run does not end a search
            if self._session.seconds_left() < self._session.trial_seconds():
                return None  # the search ends anyway
            self._session.run_config(point.config, AskedBy(Asker.AGAIN, "ceiling"))
            point = self._session.points()[point.key]
            if len(point.measurements) == before or not point.feasible:
                return None
        return None if self._is_overtaken(point) else self._at_ceiling(what, point, share)

    def _is_overtaken(self, point: Point) -> bool:
        """Measure the model alone again, once for each figure; True if it is still slower than the figure.

        Other load can only slow the model down, so a ceiling below a training is read once more.
        """
        session, figure = self._session, (point.key, len(point.measurements))
        if figure not in self._looked_for:
            for _ in range(_READINGS if session.seconds_left() > 0.0 else 0):
                self._looked_for.add(figure)
                session.look_again(point.config)
                if not session.highest_ceiling().is_overtaken_by(point.estimate):
                    break
        return figure not in self._looked_for or session.highest_ceiling().is_overtaken_by(point.estimate)

    def _at_ceiling(self, what: str, point: Point, share: float) -> Stop | None:
        """Return a stop if nothing is left to gain, in this setup of the model or in any other that was measured.

        If one-time costs count, no candidate may promise a shorter training either.
        """
        session = self._session
        known = session.ceilings if point.config.loader.is_foreign else session.ceiling(point.config)
        if not known:
            return None
        highest = session.highest_ceiling()
        needed = needed_share(point.estimate, highest, share)
        stop = ceiling_stop(point.estimate, highest, share=needed, what=what)
        if stop is None or session.settings.epochs is None or not session.can_predict:
            return stop
        tried = session.points()
        untried = (config for key, config in session.trimmed.candidates.items() if key not in tried)
        here = session.promise(point.config, point.estimate.value)  # without the first batch, which promises lack, too
        return None if here < needed * max(map(session.promise, untried), default=0.0) else stop
