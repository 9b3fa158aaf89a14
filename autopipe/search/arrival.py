"""Whether a search has arrived where nothing is left to gain: at what the model takes when data costs nothing.

What seems to be there is measured once more before a search ends for it, and so is the model alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from autopipe.core.bottleneck import AS_FAST, MODEL_SHARE
from autopipe.core.ceiling import Ceiling
from autopipe.core.outcome import TrialFailure
from autopipe.search import budget, stopping
from autopipe.search.measurer import Baseline
from autopipe.search.objective import Point
from autopipe.search.origin import AskedBy, Asker
from autopipe.search.session import Session
from autopipe.search.stopping import Reason, Stop

_READINGS = 3  # of the model alone at most, while it is slower than a training that was just measured
_LOOKS = 2  # at most, at a point beside other people's code that is at the ceiling


class Arrival:
    """Looks at points of a session beside the ceiling, and has doubtful ones measured again."""

    def __init__(self, session: Session) -> None:
        self.baselines: Sequence[Baseline] = ()
        self._session = session
        self._settings = session.settings
        self._looked_for: dict[tuple[str, int], Ceiling | None] = {}  # what was read for figures at the ceiling
        self._theirs_was_there = False

    def of_a_baseline(self) -> Stop | None:
        """Return a stop if a baseline that could be used as it is leaves nothing to gain."""
        for each in self.baselines:
            point = self._session.points().get(each.config.key())
            stop = self._stop(f"The baseline {each.name}", point, self._settings.ceiling_share)
            if stop is not None:
                return stop
        return None

    def of_the_best(self) -> Stop | None:
        """Return a stop if the best leaves nothing to gain; less is enough where other people's code is there, too."""
        settings = self._settings
        share = settings.ceiling_share if self.theirs_is_there() else settings.reached_share
        return self._stop("The best", self._session.best(), share)

    def theirs_is_there(self) -> bool:
        """Whether other people's code is at the ceiling, so that nothing is left to gain.

        Once it was it stays so as long as it is near: a ceiling that is read a little higher later is of another minute
        than that code's rate.
        """
        points, share = self._session.points(), self._settings.ceiling_share
        theirs = [points.get(each.config.key()) for each in self.baselines if each.config.loader.is_foreign]
        measured = [each for each in theirs if each is not None]
        there = any(self._ceiling_stop("", each, share) is not None for each in measured)
        near = any(self._ceiling_stop("", each, MODEL_SHARE) is not None for each in measured)
        self._theirs_was_there = near and (there or self._theirs_was_there)
        return self._theirs_was_there

    def theirs_is_as_fast(self) -> bool:
        """Whether other people's code is at the ceiling, and the best no faster than it and what has to be beaten."""
        best, points = self._session.best(), self._session.points()
        if best is None or not self.theirs_is_there():
            return False

        def as_fast(baseline: Baseline) -> bool:
            point = points.get(baseline.config.key())
            return point is not None and point.estimate.value >= AS_FAST * best.estimate.value

        theirs = [each for each in self.baselines if each.config.loader.is_foreign]
        to_beat = [each for each in self.baselines if each.required and each.config.key() in points]
        return any(map(as_fast, theirs)) and all(map(as_fast, to_beat))

    def _stop(self, what: str, point: Point | None, share: float) -> Stop | None:
        if point is None or not point.feasible or not self._may_be_there(point, share):
            return None
        if any(row.key == point.key and isinstance(row.outcome, TrialFailure) for row in self._session.search_rows()):
            return None  # it would fail again at each look
        for look in range(_LOOKS if self.theirs_is_there() else 1):
            if look or len(point.measurements) < 2:  # one lucky run does not end a search
                if self._session.seconds_left() < self._session.trial_seconds():
                    return None  # the search ends anyway
                before = len(point.measurements)
                self._session.run_config(point.config, AskedBy(Asker.AGAIN, "ceiling"))
                point = self._session.points()[point.key]
                if len(point.measurements) == before or not point.feasible:
                    return None
            if self._is_overtaken(point):
                return None
            stop = self._ceiling_stop(what, point, share) or self._side_by_side(what, point, share)
            if stop is not None or self._side_by_side(what, point, MODEL_SHARE) is None:
                return stop
        return None

    def _may_be_there(self, point: Point, share: float) -> bool:
        """Whether a point seems to be at the ceiling, or could be, by what the machine does from minute to minute.

        Where other people's code is at the ceiling, so should ours be; what is read a little below it once is then read
        once more, with the model alone right after it.
        """
        if self._ceiling_stop("", point, share) is not None:
            return True
        if len(point.measurements) > 1 or point.config.loader.is_foreign or not self.theirs_is_there():
            return False
        return self._ceiling_stop("", point, MODEL_SHARE) is not None

    def _side_by_side(self, what: str, point: Point, share: float) -> Stop | None:
        """Return a stop if a point was, over all looks, at what the model took alone right after each measurement."""
        figures = enumerate((each.images_per_second for each in point.measurements), start=1)
        looks = [(rate, self._looked_for.get((point.key, number))) for number, rate in figures]
        pairs = [(rate, alone) for rate, alone in looks if alone is not None]
        if not pairs or not self.theirs_is_there():
            return None
        known, top = self._session.ceiling(point.config), self._session.highest_ceiling()
        enough = self._settings.ceiling_share * top.model_images_per_second.value
        if known is None or known.model_images_per_second.value < enough:
            return None  # another setup of the model leaves something to gain
        last, alone = pairs[-1]
        apart = fmean(math.log(rate.value / of.model_images_per_second.value) for rate, of in pairs)
        reached, needed = math.exp(apart), stopping.needed_share(last, alone, share)
        if reached < needed:
            return None
        return Stop(
            reason=Reason.CEILING,
            message=f"{what} reaches {min(1.0, reached):.0%} of what the model takes when data costs nothing, measured "
            "in turns with it: the model is the limit, and no loader can be faster.",
        )

    def _is_overtaken(self, point: Point) -> bool:
        """Measure the model alone again, for each figure at the ceiling, and return whether that is still too low.

        Whatever else runs on the machine can only slow the model down, so a ceiling below a training is read once more.
        """
        session, figure = self._session, (point.key, len(point.measurements))
        if figure not in self._looked_for:
            for _ in range(_READINGS if session.seconds_left() > 0.0 else 0):
                self._looked_for[figure] = budget.look_again_at_ceiling(session, point.config)
                if not session.highest_ceiling().is_overtaken_by(point.estimate):
                    break
        return figure not in self._looked_for or session.highest_ceiling().is_overtaken_by(point.estimate)

    def _ceiling_stop(self, what: str, point: Point, share: float) -> Stop | None:
        """Return a stop if nothing is left to gain, in this setup of the model or in any other that was measured.

        Where what is paid once counts, too, nothing that promises a shorter training may be left either.
        """
        known = self._session.ceilings if point.config.loader.is_foreign else self._session.ceiling(point.config)
        if not known:
            return None
        highest = self._session.highest_ceiling()
        needed = stopping.needed_share(point.estimate, highest, share)
        stop = stopping.ceiling_stop(point.estimate, highest, share=needed, what=what)
        return None if stop is None or self._pays_too_much_once(point, needed) else stop

    def _pays_too_much_once(self, point: Point, share: float) -> bool:
        """Whether another candidate should be well ahead of a point, by what has to be paid once."""
        session, tried = self._session, self._session.points()
        if session.settings.epochs is None or not session.can_predict:
            return False
        untried = (each.config for each in session.trimmed.candidates if each.key not in tried)
        here = session.promise(point.config, point.estimate.value)  # without the first batch, which promises lack, too
        return here < share * max(map(session.promise, untried), default=0.0)
