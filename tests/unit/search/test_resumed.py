"""Searches that Ctrl-C ends in any phase, and studies that are gone on with by another request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from autopipe.errors import TrialError
from autopipe.measure.facts import Ceiling, Limits
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.pipeline.config import ModelSetup, Params, PipelineConfig, to_config
from autopipe.pipeline.space import Space
from autopipe.search import library
from autopipe.search.measurer import Baseline
from autopipe.search.record import TPE
from autopipe.search.result import Reason
from autopipe.search.trials import BudgetPlanned, Event, SearchStopped, StudyOpened
from tests.fakes.surface import Surface
from tests.unit.search.conftest import loader_bound, run, some

LITTLE = Limits(memory_bytes=3 * 2**30)


@pytest.mark.parametrize("limited", ["the first", "the second"])
def test_what_was_measured_is_held_to_the_limits_of_today(space: Space, url: str, limited: str) -> None:
    before, today = (LITTLE, Limits()) if limited == "the first" else (Limits(), LITTLE)
    asked: dict[str, Any] = {"trials": 7, "budget_seconds": None, "blocks": (0, 0)}
    first = run(space, loader_bound(quirks=1), url, limits=before, **asked)
    surface = loader_bound(quirks=1)
    second = run(space, surface, url, limits=today, **asked)
    for ended, limits in ((first, before), (second, today)):
        memory = surface.resources(some(ended.best_config)).peak_rss_bytes or 0
        assert (memory <= 3 * 2**30) == (limits is LITTLE)
        assert bool(ended.result.over_limits) == (limits is LITTLE)
    assert limited == "the first" or surface.measured == []


def test_a_study_whose_time_is_used_up_keeps_what_it_proved_and_says_so_only_at_the_end(space: Space, url: str) -> None:
    """It has compared more than two: that there is no time for two configurations is not told."""
    first = run(space, loader_bound(quirks=2), url, budget_seconds=60.0)
    told, again = list[Event](), loader_bound(quirks=2)
    second = run(space, again, url, told=told, budget_seconds=sum(row.seconds for row in first.rows))
    assert first.result.proved
    assert second.result.proved
    assert second.best_config == first.best_config
    assert again.measured == []
    assert not [event for event in told if isinstance(event, BudgetPlanned)]
    (stopped,) = [event.stop for event in told if isinstance(event, SearchStopped)]
    assert stopped.reason is Reason.TIME


def test_a_bug_in_the_measurer_is_not_swallowed_and_leaves_no_trial_running(space: Space, url: str) -> None:
    class Broken(Surface):
        def before(self, config: PipelineConfig, proof: bool) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(space, Broken(), url)
    ended = run(space, Surface(quirks=1), url)
    assert ended.rows[0].outcome is None


def test_more_trials_go_on_where_the_study_ended(space: Space, url: str) -> None:
    first = run(space, loader_bound(quirks=2), url, trials=8, budget_seconds=None, sampler=TPE)
    surface = loader_bound(quirks=2, seed=1)
    second = run(space, surface, url, trials=14, budget_seconds=None, patience=99, sampler=TPE)
    searched = [row.key for row in second.rows if row.block is None]
    assert len(searched) == len(set(searched)) == 14
    assert [row.key for row in second.rows[: len(first.rows)]] == [row.key for row in first.rows]
    assert second.result.proved


def test_trials_that_the_user_enqueued_run_first(space: Space, url: str) -> None:
    first = run(space, loader_bound(), url, trials=1, blocks=(0, 0))
    wish: Params = {"loader": "processes", "processes.workers": 3, "processes.queue_size": 8}
    rest: Params = {"keep": "none", "finish": "device", "device_prefetch": 2, "devices": 1}
    first.study.enqueue_trial({**wish, **rest})
    surface = loader_bound()
    run(space, surface, url, trials=4, blocks=(0, 0))
    assert surface.measured[0][0] == to_config({**wish, **rest}).key()


def test_another_space_is_refused(space: Space, url: str) -> None:
    run(space, Surface(), url, trials=2)
    quick, surface = library.load("quick", {"cores": 4, "gpus": 0}), Surface()
    for other, said in (
        (space.only("loader", ["threads"]), r"space: loader 'threads, processes, tfdata, keras' there, 'threads' he"),
        (quick, r"space: loader '.*, and \d+ more\."),
    ):
        with pytest.raises(TrialError, match="something else: " + said):
            run(other, surface, url, trials=2)
    assert surface.measured == []


# ---------------------------------------------------------------- Ctrl-C

Moment = Literal["baselines", "ceilings", "first trial", "second trial", "third trial", "proof", "late in the proof"]
NOTHING = "Interrupted before anything to use was measured."
SO_FAR = "Interrupted: this is the best so far."
BLOCKS_RUN = 5
"""The trials of a proof that have run late in it: two blocks."""


@dataclass(kw_only=True)
class Impatient(Surface):
    """Somebody presses Ctrl-C at one moment."""

    quirks: int = 1
    model_rate: float = 60_000.0
    pressed: Moment

    def baselines(self) -> Sequence[Baseline]:
        self._press_if("baselines")
        return super().baselines()

    def ceilings(self, setups: Sequence[ModelSetup]) -> Sequence[Ceiling]:
        self._press_if("ceilings")
        return super().ceilings(setups)

    def before(self, config: PipelineConfig, proof: bool) -> None:
        proving = sum(done for _, done in self.measured)
        if proof:
            self._press_if("late in the proof" if proving == BLOCKS_RUN else "proof")
        else:
            self._press_if({0: "first trial", 1: "second trial", 2: "third trial"}.get(len(self.measured)))

    def _press_if(self, now: str | None) -> None:
        if now == self.pressed:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        ("baselines", NOTHING),
        ("ceilings", NOTHING),
        ("first trial", NOTHING),
        ("second trial", SO_FAR),
        ("third trial", SO_FAR),
        ("proof", SO_FAR),
        ("late in the proof", SO_FAR),
    ],
)
def test_what_is_said_is_true_at_each_moment(space: Space, moment: Moment, said: str) -> None:
    told: list[Event] = []
    ended = run(space, Impatient(pressed=moment), told=told)
    assert ended.result.stop.reason is Reason.INTERRUPTED
    assert (ended.result.interrupted, ended.result.proved) == (True, False)
    assert (ended.best_config is None) == (said == NOTHING)
    stops = [event.stop.message for event in told if isinstance(event, SearchStopped)]
    assert stops[-1] == ended.result.stop.message == said
    assert all(trial.state.is_finished() for trial in ended.study.trials)
    assert bool(ended.result.contests) == (moment == "late in the proof")  # by the blocks that are there


def test_what_breaks_a_limit_is_not_called_the_best(space: Space) -> None:
    ended = run(space, Impatient(pressed="second trial"), limits=Limits(memory_bytes=2**30))
    assert ended.best_config is None
    assert ended.result.stop.message == NOTHING


@pytest.mark.parametrize("moment", ["baselines", "proof"])
def test_what_an_earlier_session_measured_is_the_best_so_far(space: Space, url: str, moment: Moment) -> None:
    first = run(space, Impatient(pressed="third trial"), url)
    again = run(space, Impatient(pressed=moment), url)
    assert again.best_config == first.best_config is not None
    assert again.result.stop.message == SO_FAR


@dataclass(kw_only=True)
class Broken(Surface):
    """A machine on which a baseline cannot run, and says nothing else."""

    def measure(
        self, config: PipelineConfig, *, proof: bool = False, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        found = super().measure(config, proof=proof, must_reach=must_reach)
        baselines = [each.config for each in self.baselines()]
        return (
            TrialFailure(kind=FailureKind.CRASHED, phase=Phase.MEASURE, message="no") if config in baselines else found
        )


def test_a_baseline_that_failed_is_measured_again_if_the_study_is_continued(space: Space, url: str) -> None:
    asked: dict[str, Any] = {"budget_seconds": None, "blocks": (0, 0)}
    first = run(space, Broken(model_rate=60_000.0), url, trials=6, **asked)
    assert first.result.baselines[0].failure is not None
    told = list[Event]()
    second = run(space, loader_bound(), url, told=told, trials=9, **asked)
    assert second.result.baselines[0].images_per_second is not None
    assert [event.failed for event in told if isinstance(event, StudyOpened)] == [0]
