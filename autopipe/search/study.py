"""The search from beginning to end: ceilings, baselines, seeds, sampler, proof; resumable after a crash at any moment.

This is the order of things and nothing else: what is tried, when it ends and who wins is decided in the modules beside.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from contextlib import nullcontext

from optuna.samplers import RandomSampler

from autopipe.core.config import PipelineConfig
from autopipe.core.facts import Facts
from autopipe.core.space import Space
from autopipe.search import conclusion, confirm, lock, proof, seeds, stopping
from autopipe.search.events import (
    CeilingMeasured,
    Event,
    OnEvent,
    SearchStopped,
    SpaceTrimmed,
    StorageLost,
    StorageWaited,
    StudyOpened,
    WaitingForMachine,
)
from autopipe.search.feasible import Trimmed, trim
from autopipe.search.measurer import Baseline, Measurer
from autopipe.search.record import open_record
from autopipe.search.result import SearchResult
from autopipe.search.samplers import Outlook
from autopipe.search.session import Point, Session
from autopipe.search.settings import Settings
from autopipe.search.stopping import Reason, Stop
from autopipe.search.storage import Patience

__all__ = ["run", "search", "space_digest"]

_REFUSED_IN_A_ROW = 200  # an Optuna sampler that finds nothing that can run has, to all purposes, nothing left

_MOST_PATIENCE_SECONDS = 60.0
_PATIENCE_SHARE = 0.25


def _ignore(event: Event) -> None:
    """Tell nobody."""


def space_digest(space: Space) -> str:
    """Return a digest of what a space may try: a study goes on only with the same."""
    return hashlib.sha256(repr(space.parameters).encode()).hexdigest()[:16]


def run(
    space: Space,
    measurer: Measurer,
    facts: Facts,
    settings: Settings,
    storage_url: str | None = None,
    on_event: OnEvent = _ignore,
) -> SearchResult:
    """Find the fastest configuration of a space, and prove it.

    A study that is there already is gone on with. Ctrl-C ends the search; what was found so far is returned.

    Args:
        space: what may be tried.
        measurer: runs the trials.
        facts: what is known about machine and workload.
        settings: how to search.
        storage_url: where the study is kept, e.g. `sqlite:///study.db`, or any other Optuna storage; None: in memory.
        on_event: is told what happens; see `autopipe.search.events`.

    Returns:
        The best configuration with its evidence. `best_config` is None if no configuration could be measured.

    Raises:
        SpaceError: nothing in the space can run here.
        TrialError: the study is of another workload, machine or space, or its storage cannot be used.
    """
    return search(trim(space, facts, settings.limits), measurer, facts, settings, storage_url, on_event)


def search(
    trimmed: Trimmed,
    measurer: Measurer,
    facts: Facts,
    settings: Settings,
    storage_url: str | None = None,
    on_event: OnEvent = _ignore,
) -> SearchResult:
    """Do what `run` does, on a space that has been trimmed already."""
    on_event(SpaceTrimmed(candidates=len(trimmed.candidates), drops=trimmed.drops))
    queue = nullcontext() if settings.lock is None else lock.held(settings.lock, lambda who: on_event(_waits(who)))
    with queue:
        record, lost = open_record(
            storage_url,
            settings.study_name,
            sampler=RandomSampler(seed=settings.seed),  # until the ceilings are known
            digests={**settings.digests, "space": space_digest(trimmed.space)},
            fresh=settings.fresh,
            patience=_patience(settings, on_event),
            on_lost=lambda reason: on_event(StorageLost(reason=reason)),
        )
        session = Session(trimmed, measurer, facts, settings, record, on_event)
        on_event(StudyOpened(name=settings.study_name, resumed=len(record.rows()), lost=lost))
        try:
            return _Search(session).run()
        finally:
            record.settle()


def _waits(who: str) -> Event:
    return WaitingForMachine(holder=who)


def _patience(settings: Settings, on_event: OnEvent) -> Patience:
    """Return how long a locked storage is waited for: a part of the budget, so that the search still has the rest."""
    seconds = _MOST_PATIENCE_SECONDS
    if settings.budget_seconds is not None:
        seconds = min(seconds, settings.budget_seconds * _PATIENCE_SHARE)
    return Patience(seconds=seconds, on_wait=lambda reason: on_event(StorageWaited(reason=reason, seconds=seconds)))


class _Search:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._settings = session.settings
        self._baselines: Sequence[Baseline] = ()
        self._interrupted = False

    def run(self) -> SearchResult:
        entered: list[confirm.Contender] = []
        try:
            stop = self._search()
            self._session.on_event(SearchStopped(stop=stop))
            if self._settings.blocks[1] > 0 and self._session.best() is not None and not self._nothing_to_prove(stop):
                entered = proof.contenders(self._session, self._baselines)
                proof.prove(self._session, entered)
        except KeyboardInterrupt:
            self._interrupted = True
            stop = Stop(reason=Reason.INTERRUPTED, message="Interrupted: this is the best so far.")
            self._session.on_event(SearchStopped(stop=stop))
        proved = proof.judge(self._session, entered) if entered else None
        return conclusion.result(self._session, self._baselines, stop, proved, interrupted=self._interrupted)

    def _search(self) -> Stop:
        self._baselines = tuple(self._session.measurer.baselines())
        self._measure_ceilings()
        while self._session.record.waiting():  # left by a process that died, or enqueued by the user
            self._session.run_next()
        self._run_baselines()
        if (stop := self._at_ceiling(baselines_only=True)) is not None:
            return stop
        self._run_known()
        self._run_seeds()
        refused = 0
        while (stop := self._over()) is None:
            before = len(self._session.record.rows())
            self._session.run_next()
            refused = refused + 1 if len(self._session.record.rows()) == before else 0
            if refused >= _REFUSED_IN_A_ROW:
                name = self._settings.sampler.name
                return Stop(
                    reason=Reason.EXHAUSTED,
                    message=f"`{name}` finds nothing more that can run: {refused} refusals in a row.",
                )
        return stop

    # ------------------------------------------------------------ before the sampler

    def _measure_ceilings(self) -> None:
        session = self._session
        ceilings = session.record.ceilings()
        if not ceilings:
            setups = session.setups(self._baselines)
            ceilings = list(session.timed(lambda: session.measurer.ceilings(setups)))
            session.record.keep_ceilings(ceilings)
        for ceiling in ceilings:
            session.on_event(CeilingMeasured(ceiling=ceiling))
        session.know_ceilings(ceilings)
        session.record.study.sampler = self._settings.sampler.create(self._outlook())

    def _outlook(self) -> Outlook:
        session = self._session
        return Outlook(
            space=session.trimmed.space,
            candidates=session.trimmed.candidates,
            cores=session.facts.cores,
            predict=session.promise if session.can_predict and self._settings.seeding else None,
            # A study that is gone on with must not draw again what it drew before.
            seed=self._settings.seed + 1_000_003 * len(session.record.rows()),
        )

    def _run_baselines(self) -> None:
        for baseline in self._baselines if self._settings.seeding else ():
            self._run_unless_done(baseline.config, f"baseline:{baseline.name}")

    def _run_known(self) -> None:
        for config in self._settings.known:
            if self._over() is not None:
                return
            if self._session.allowed(config):
                self._run_unless_done(config, "known")

    def _run_seeds(self) -> None:
        session = self._session
        if not self._settings.seeding or self._knows_better():
            return
        promise = (lambda each: session.promise(each.config)) if session.can_predict else None
        for seed in seeds.seeds(session.trimmed.candidates, session.facts.cores, promise):
            if self._over() is not None:
                return
            self._run_unless_done(seed.candidate.config, seed.origin)

    def _knows_better(self) -> bool:
        """Whether something that did well elsewhere runs here: it says more than predictions do.

        The sampler goes on from the predictions all the same. Replayed retunes are nearer to the best without these
        seeds (docs/search.md).
        """
        known = {config.key() for config in self._settings.known}
        return any(row.key in known and row.value is not None for row in self._session.search_rows())

    def _run_unless_done(self, config: PipelineConfig, origin: str) -> None:
        done = {row.key for row in self._session.search_rows() if row.outcome is not None}
        if config.key() not in done:
            self._session.run_config(config, origin)

    # ------------------------------------------------------------ the end

    def _over(self) -> Stop | None:
        """Return why the search is over, or None.

        What seems to be at the ceiling is measured once more before that, and so is the ceiling.
        """
        settings, standing = self._settings, self._session.standing()
        in_proof = (settings.contenders + len(self._baselines)) * settings.blocks[0]
        return (
            self._at_ceiling(baselines_only=False)
            or stopping.budget_stop(
                standing,
                trials=settings.trials,
                budget_seconds=settings.budget_seconds,
                reserve_seconds=min((1 + in_proof) * self._session.trial_seconds(), self._most_for_proof()),
            )
            or stopping.no_gain_stop(standing, patience=settings.patience)
        )

    def _most_for_proof(self) -> float:
        """Return how much of the time the proof may keep from the search; with less it makes do with two blocks."""
        return math.inf if self._settings.budget_seconds is None else self._settings.budget_seconds * 2 / 3

    def _at_ceiling(self, *, baselines_only: bool) -> Stop | None:
        points = self._session.points()
        named = [(f"The baseline {each.name}", points.get(each.config.key())) for each in self._baselines]
        share = self._settings.ceiling_share
        if not baselines_only:
            named, share = [("The best", self._session.best())], self._settings.reached_share
        for what, point in named:
            if point is None or not point.feasible or self._ceiling_stop(what, point, share) is None:
                continue
            if len(point.measurements) < 2:  # one lucky run does not end a search
                self._session.run_config(point.config, "again:ceiling")
                point = self._session.points()[point.key]
                if len(point.measurements) < 2 or not point.feasible:
                    continue
            self._session.look_again_at_ceiling(point.config)
            stop = self._ceiling_stop(what, point, share)
            if stop is not None:
                return stop
        return None

    def _ceiling_stop(self, what: str, point: Point, share: float) -> Stop | None:
        """Return a stop if nothing is left to gain, in this setup of the model or in any other that was measured."""
        if self._session.ceiling(point.config) is None:
            return None
        highest = max(self._session.ceilings, key=lambda each: each.model_images_per_second.value)
        return stopping.ceiling_stop(point.estimate, highest, share=share, what=what)

    def _nothing_to_prove(self, stop: Stop) -> bool:
        """Whether a baseline is at the ceiling before anything else was tried."""
        tried = {row.origin.partition(":")[0] for row in self._session.search_rows()}
        return stop.reason is Reason.CEILING and tried <= {"baseline", "again"}
