"""The budget of a search, and what ends it: time or trials, the model as the limit, and no more gain."""

from __future__ import annotations

import math

from autopipe.measure.bottleneck import MODEL_SHARE
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FEWEST_STEPS, StopRule
from autopipe.measure.stats import EQUAL, REPEATABILITY, log_variance
from autopipe.search import confirmation
from autopipe.search.measurer import MOST_OF_OTHERS
from autopipe.search.record import Point
from autopipe.search.result import BudgetPlanned, Reason, Stop
from autopipe.search.session import Session
from autopipe.values import Estimate


def no_gain_stop(before: Estimate, now: Estimate, *, patience: int) -> Stop | None:
    """Return a stop if the best `now` is not above the interval of the best `before` the last `patience` trials.

    A best with one window has no interval, and rules out no gain.
    """
    if not before.has_interval or now.value > before.high:
        return None
    message = f"The last {patience} trials were not significantly faster than the best."
    return Stop(reason=Reason.NO_GAIN, message=message)


def _scored(session: Session, point: Point) -> Estimate:
    return point.estimate.mapped(lambda rate: session.score(point.config, point.measurements, rate))


def needed_share(rate: Estimate, ceiling: Ceiling, share: float) -> float:
    """Return the share of the ceiling at which nothing is left to gain: `share`, or less on an unsteady machine.

    Two figures within `REPEATABILITY` standard deviations of one count as the same, but at most 2 % are given away.
    """
    variance = max(map(log_variance, (rate, ceiling.model_images_per_second)))
    return max(share - (1.0 - EQUAL), min(share, 1.0 - REPEATABILITY * math.sqrt(variance)))


def ceiling_stop(rate: Estimate, ceiling: Ceiling, *, share: float) -> Stop | None:
    """Return a stop if the best, at `rate` images/s, leaves nothing to gain below the model alone."""
    if rate.value < share * ceiling.model_images_per_second.value:
        return None
    # Without figures: the confirmation run measures them again.
    message = "The best reaches the rate of the model alone: the model is the limit, and no loader can be faster."
    return Stop(reason=Reason.CEILING, message=message)


class Budget:
    """The budget of one search, and the rules that end it."""

    def __init__(self, session: Session) -> None:
        self._session, self._settings = session, session.settings
        self._most_for_confirmation = self._race_ends = math.inf  # seconds
        self._read_again = 0  # times that the model alone was, because a training was faster

    def plan(self) -> BudgetPlanned | None:
        """Divide the remaining time, and return the plan; None without a budget, or if it is used up already."""
        session, budget = self._session, self._settings.budget_seconds
        self._most_for_confirmation = session.seconds_left() / 2
        if budget is None or (session.record.rows() and session.is_short()):
            return None
        usual = session.ceilings[0] if session.ceilings else None
        rates = [] if usual is None else [usual.model_images_per_second, usual.loader_images_per_second]
        step = max((session.facts.workload.batch_size / each.value for each in rates if each is not None), default=0.0)
        trial = session.trial_seconds() or max(StopRule().most_seconds, FEWEST_STEPS * step)
        # The first baseline has a process of its own, which takes no longer to start.
        starting = 0.0 if session.trial_seconds() else session.starting_seconds
        spent, left = session.seconds(), max(0.0, session.seconds_left() - starting)
        race = 0.3 if session.races_loaders else 0.5  # of the time that is left; a race of loaders alone needs less
        self._race_ends = spent + race * session.seconds_left()
        return BudgetPlanned(
            budget_seconds=budget,
            spent_seconds=spent,
            trial_seconds=trial,
            trials=int(left / trial),
            needed_seconds=spent + starting + 2 * trial + self._settings.end_seconds,
            advised_seconds=spent + starting + self._trials_in_confirmation() * trial / (1.0 - race),
        )

    # ------------------------------------------------------------ the rules

    def race_of_loaders_over(self) -> bool:
        return self._session.seconds() >= self._race_ends

    def race_over(self) -> bool:
        """True if a race by trials ends: its time or trials are used up, or a training reaches the model alone."""
        session = self._session
        if session.is_out_of_time or self.over() is not None:
            return True
        tried = session.tried()
        baselines = sum(each.unable is None and each.config.key() not in tried for each in session.baselines)
        used_up = len(session.ended_rows()) + baselines >= self._settings.trials
        best = session.best()
        ends = self._race_ends  # without anything better than what there is, nothing waits for a proof
        if best is not None and best.key in session.names:
            ends = session.seconds() + session.seconds_left()
        late = session.seconds() + session.trial_seconds() >= ends
        return (used_up or late) and session.beyond_baselines()

    def no_trial_left(self) -> bool:
        return len(self._session.ended_rows()) >= self._settings.trials

    def over(self) -> Stop | None:
        return self.of_the_best() or self.used_up()

    def no_gain(self) -> Stop | None:
        session, patience = self._session, self._settings.patience
        earlier = {row.key for row in session.ended_rows()[:-patience]}
        feasible = [each for each in session.points().values() if each.feasible]
        before = max((each for each in feasible if each.key in earlier), key=lambda each: each.value, default=None)
        now = session.best()
        if before is None or now is None:
            return None
        return no_gain_stop(_scored(session, before), _scored(session, now), patience=patience)

    def of_the_best(self) -> Stop | None:
        """Return a stop if the best leaves nothing to gain below the model alone; never where one-time costs count,
        as what is paid once may still be less.
        """
        session, best = self._session, self._session.best()
        reads_alone = session.facts.workload.reads_alone
        if best is None or not session.ceilings or session.settings.epochs is not None or reads_alone:
            return None
        self.reads_again()
        if session.highest_ceiling().is_overtaken_by(best.estimate):
            return None
        ceiling, rate = session.highest_ceiling(), best.estimate
        share = needed_share(rate, ceiling, self._settings.reached_share)
        return ceiling_stop(rate, ceiling, share=share)

    def seen_again(self, stop: Stop) -> Stop:
        """Return the stop as it looks after the confirmation run, in which the model alone may have made far more."""
        session, best = self._session, self._session.best()
        if stop.reason is not Reason.CEILING or best is None:
            return stop
        if best.estimate.value >= MODEL_SHARE * session.highest_ceiling().model_images_per_second.value:
            return stop
        message = (
            "The best reached the rate of the model alone, which has made more since: something slowed it down then."
        )
        return Stop(reason=Reason.NO_GAIN, message=f"{message} Tune again on a quiet machine.")

    def reads_again(self) -> bool:
        """Measure the model alone again if a training was faster, as other programs can only slow it down; True if that
        was so.
        """
        session, best, before = self._session, self._session.best(), self._read_again
        while (
            best is not None
            and session.ceilings
            and session.highest_ceiling().is_overtaken_by(best.estimate)
            and self._read_again < 3
        ):
            self._read_again += 1
            session.look_again(best.config.model_setup)
        return self._read_again > before

    def used_up(self) -> Stop | None:
        """Return a stop if there is no trial left, or no time for one more and the confirmation run.

        A search goes on until a configuration other than the baselines has run. If trials are used up, a usable
        baseline is enough; foreign code cannot be used.
        """
        session, settings = self._session, self._settings
        beyond, ran = session.beyond_baselines(), len(session.ended_rows())
        if ran >= settings.trials and (beyond or session.best() is not None):
            return Stop(reason=Reason.TRIALS, message=_trials_used(settings.trials, ran))
        return self._time_up() if beyond else None

    def _time_up(self) -> Stop | None:
        session, settings, most = self._session, self._settings, self._most_for_confirmation
        if settings.budget_seconds is None:
            return None
        trial, spent = session.trial_seconds(), session.seconds()
        most = min(most, session.seconds_left(proving=True))  # too little for a confirmation run does for trials
        kept = 0.0 if most < 2 * confirmation.ENOUGH_BLOCKS * trial else min(self.confirmation_seconds(), most)
        needed = trial + kept + settings.end_seconds
        if spent + needed < settings.budget_seconds:
            return None
        tried, proof = len(session.tried()), self.confirmation_seconds()
        proof_text = f"; a proof needs {max(1.0, proof):.0f} s" if proof else ""
        return Stop(
            reason=Reason.TIME,
            message=f"The time for trials was up after {spent:.0f} s of {settings.budget_seconds:.0f} s: {tried:,} "
            f"{'configuration was' if tried == 1 else 'configurations were'} tried{proof_text}.",
        )

    def proof_seconds(self) -> float:
        """Return the least time of a proof, by the trials so far: of ours, a rival, and one to be on the safe side."""
        return 3 * self._session.trial_seconds() * self._settings.blocks[0]

    def confirmation_seconds(self) -> float:
        if self._settings.blocks[1] == 0:
            return 0.0
        if self._session.best() is None:
            return self._trials_in_confirmation() * self._session.trial_seconds()
        return confirmation.expected_seconds(self._session)

    def _trials_in_confirmation(self) -> int:
        theirs = sum(each.config.loader.is_foreign and not each.required for each in self._session.baselines)
        others = min(theirs, MOST_OF_OTHERS) + len(self._session.baselines) - theirs
        return self._settings.blocks[0] * (self._settings.finalists + others)


def _trials_used(allowed: int, ran: int) -> str:
    one = allowed == 1
    said = f"{allowed} {'trial was' if one else 'trials were'} allowed"
    if ran > allowed:
        return f"{said}, and {ran} have run, the baselines among them."
    return f"{said} and {'has' if one else 'have'} been used."
