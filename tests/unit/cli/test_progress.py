"""What a person sees of a tune, told event by event on a terminal of 80 columns."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from rich.status import Status

from autopipe.cli.progress import Progress
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.measure.trial.child import Log, PhaseBegan
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.workers import Threads
from autopipe.search import result as events
from autopipe.search.result import AskedBy, Reason, Stop
from autopipe.values import Estimate
from tests.fakes.measurements import measurement
from tests.fakes.reports import Approved

CONFIG = PipelineConfig(loader=Threads(workers=2), keep="memory")


class Screen:
    """A terminal, and the progress of a tune on it."""

    def __init__(self, *, verbose: bool = False, terminal: bool = True, budget_seconds: float | None = None) -> None:
        self.now = 0.0
        self._written = io.StringIO()
        console = Console(file=self._written, width=80, force_terminal=terminal, color_system=None)
        self.progress = Progress(
            verbose=verbose, budget_seconds=budget_seconds, console=console, clock=lambda: self.now
        )

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._written.getvalue().splitlines()]

    def tell(self, *told: events.Event) -> list[str]:
        for event in told:
            self.progress.watcher.on_search(event)
        return self.lines()

    def live(self) -> str:
        return self.progress.__rich__().plain


def finished(
    outcome: Measurement | TrialFailure, origin: str = "surrogate", best: float | None = 100.0
) -> events.Event:
    return events.TrialFinished(
        number=0, origin=AskedBy.parse(origin), config=CONFIG, outcome=outcome, value=None, best=best
    )


def measured(rate: float, *, stable: bool = True) -> Measurement:
    return measurement(CONFIG, [rate] * 5, batch_size=32).model_copy(update={"stable": stable})


DROPS = {"too large": 1200, "forks": 24, "none": 0}


def ceiling(rate: float, **setup: Any) -> events.Event:
    estimate = Estimate(value=rate, low=rate, high=rate)
    return Ceiling(model_images_per_second=estimate, model_core_seconds_per_image=0.0, **setup)


def planned(trials: int, needed: float) -> events.Event:
    return events.BudgetPlanned(
        budget_seconds=30.0,
        spent_seconds=12.0,
        trial_seconds=4.0,
        trials=trials,
        needed_seconds=needed,
        advised_seconds=112.0,
    )


def started(origin: str = "surrogate", seconds_left: float | None = 60.0) -> events.Event:
    return events.TrialStarted(number=3, origin=AskedBy.parse(origin), config=CONFIG, seconds_left=seconds_left)


LONG = " ".join(["of something"] * 10)
CRASHED = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.MEASURE, message=f"It died.\n{LONG}")
SPACE = events.SpaceTrimmed(candidates=184, left_out=DROPS)
STOPPED = Stop(reason=Reason.TIME, message="see [red]this[/red]")  # which is no markup
TOLD: dict[str, list[events.Event]] = {
    "the space": [SPACE],
    "the ceiling": [ceiling(1000.0), ceiling(1100.0, finish="host")],
    "a baseline": [finished(measured(279.4), "baseline:Keras")],
    "the best, and one that is slower": [finished(measured(100.0)), finished(measured(90.0))],
    "a trial that exceeds a limit": [finished(measured(1000.0), best=None)],
    "a trial that is not steady": [finished(measured(100.0, stable=False))],
    "a failure": [finished(CRASHED)],
    "a lost storage": [events.StorageLost(reason="the disk is full")],
    "a study with failures": [events.StudyOpened(name="autopipe", resumed=3, failed=2)],
    "a study": [events.StudyOpened(name="autopipe", resumed=1)],
    "a budget with time for nothing": [planned(0, 40.0)],
    "a budget that is short": [planned(4, 20.0)],
    "a budget with time for one trial": [planned(1, 20.0)],
    "a budget": [planned(20, 20.0)],
    "the end": [STOPPED],
}


def test_events(approved: Approved) -> None:
    approved(
        {
            f"{name}{', verbose' * verbose}": "\n".join(Screen(verbose=verbose, terminal=False).tell(*told))
            for name, told in TOLD.items()
            for verbose in (False, True)
        }
    )


def test_on_a_terminal_sentences_are_wrapped_below_their_text_and_lines_of_figures_cut() -> None:
    shown = Screen().tell(Stop(reason=Reason.TIME, message=12 * "the time is up "))
    assert shown[0].startswith("stopped   the time")
    assert all(line.startswith(" " * 10) for line in shown[1:])
    assert max(map(len, shown)) <= 80
    (cut,) = Screen().tell(finished(CRASHED))
    assert len(cut) == 80


def test_what_the_child_warns_of_is_said_once_however_many_start() -> None:
    screen = Screen()
    for _ in range(2):
        screen.progress.watcher.on_trial(Log(text="Only one image is in `cat`."))
    assert screen.lines() == ["note      Only one image is in `cat`."]


def test_the_live_line_has_the_time_left_the_best_so_far_and_what_is_going_on() -> None:
    screen = Screen()
    screen.tell(finished(measured(100.0)), finished(measured(80.0), "proof:1", best=90.0))  # in a proof the best stays
    screen.tell(started())
    screen.progress.watcher.on_trial(PhaseBegan(phase=Phase.FIRST_BATCH))
    screen.now = 20.0
    assert screen.live() == (
        "20 s, 40 s left | best 100 images/s | trial 4: threads(workers=2) keep=memory | first batch"
    )
    written = io.StringIO()
    Console(file=written, width=40).print(Status(screen.progress).renderable)
    assert len(written.getvalue().splitlines()) == 1


def test_waiting_for_another_tune_is_told_and_takes_nothing_of_the_budget() -> None:
    screen = Screen(budget_seconds=60.0)
    screen.tell(events.Waiting(why="process 7", seconds=120.0))
    screen.now = 100.0
    assert screen.live().endswith("waiting: process 7 measures on this machine; the wait is at most 120 s")
    screen.tell(events.StudyOpened(name="autopipe", resumed=0))
    assert screen.live().startswith("100 s, 60 s left")


def test_in_a_proof_the_live_line_counts() -> None:
    screen = Screen()
    screen.tell(events.ConfirmationStarted(configs=(CONFIG, CONFIG), blocks=(2, 3)))
    screen.tell(*[started("proof:0")] * 3)
    assert "confirmation, round 2, 1 of 2: threads(workers=2)" in screen.live()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_log_has_a_line_of_what_runs_if_nothing_else_was_said(terminal: bool) -> None:
    screen = Screen(terminal=terminal, budget_seconds=100.0)
    screen.now = 20.0
    assert screen.tell(started()) == []
    screen.now = 40.0
    expected = [] if terminal else ["so far    40 s, 60 s left | trial 4: threads(workers=2) keep=memory"]
    assert screen.tell(started()) == expected
