"""What a person sees of a tune, told event by event on a terminal of 80 columns."""

from __future__ import annotations

import io
from typing import Any

import pytest
from replaying.synthetic import measurement
from rich.console import Console
from rich.status import Status

from autopipe.cli.progress import Progress
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.measure.trial import protocol
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.search import trials as events
from autopipe.search.result import LeftOut, Reason, Stop
from autopipe.search.trials import AskedBy
from autopipe.values import Estimate

CONFIG = PipelineConfig(loader=Threads(workers=2), cache="memory")


class Screen:
    """A terminal, and the progress of a tune on it."""

    def __init__(self, *, verbose: bool = False, terminal: bool = True, budget_seconds: float | None = None) -> None:
        self.now = 0.0
        self._written = io.StringIO()
        console = Console(file=self._written, width=80, force_terminal=terminal, color_system=None)
        self.progress = Progress(console, verbose=verbose, budget_seconds=budget_seconds, clock=lambda: self.now)

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


DROPS = (
    LeftOut(reason="too large", configs=1200),
    LeftOut(reason="forks", configs=24),
    LeftOut(reason="none", configs=0),
)


def test_what_was_left_out_takes_no_line_of_its_own() -> None:
    assert Screen().tell(events.SpaceTrimmed(candidates=184, left_out=DROPS)) == [
        "space     184 configurations, 1,224 left out (-v says why)"
    ]


def test_why_is_said_to_those_who_ask() -> None:
    assert Screen(verbose=True).tell(events.SpaceTrimmed(candidates=184, left_out=DROPS)) == [
        "space     184 configurations, 1,224 left out",
        "left out   1,200  too large",
        "left out      24  forks",
    ]


def ceiling(rate: float, **setup: Any) -> events.Event:
    estimate = Estimate(value=rate, low=rate, high=rate)
    found = Ceiling(model_images_per_second=estimate, model_core_seconds_per_image=0.0, **setup)
    return events.CeilingMeasured(ceiling=found)


def test_the_ceiling_is_said_once_unless_all_is_asked_for() -> None:
    told = (ceiling(1000.0), ceiling(1100.0, finish="host"))
    assert Screen().tell(*told) == ["ceiling   the model alone takes 1,000 images/s"]
    shown = Screen(verbose=True, terminal=False).tell(*told)
    assert shown[1] == "ceiling   the model alone takes 1,100 images/s, finish=host"


def planned(trials: int, needed: float) -> events.Event:
    return events.BudgetPlanned(
        budget_seconds=30.0,
        spent_seconds=12.0,
        trial_seconds=4.0,
        trials=trials,
        needed_seconds=needed,
        advised_seconds=112.0,
    )


def test_a_budget_that_is_too_short_is_told_with_one_that_is_not() -> None:
    assert " ".join(" ".join(Screen(terminal=False).tell(planned(0, 40.0))).split()) == (
        "budget 30 s are too short: comparing two configurations takes 40 s here, 12 s of it before the first trial. "
        "`--budget 2m` has time to search and to prove."
    )
    assert (
        "30 s are short: there is time for about 4 trials of 4 s." in Screen(terminal=False).tell(planned(4, 20.0))[0]
    )
    assert "for about 1 trial of 4 s." in Screen(terminal=False).tell(planned(1, 20.0))[0]
    (enough,) = Screen(terminal=False).tell(planned(20, 20.0))
    assert "20 trials" in enough
    assert "short" not in enough


def test_a_study_that_is_lost_is_told_with_the_reason() -> None:
    screen = Screen(terminal=False)
    screen.tell(events.StorageWaited(reason="it is locked", seconds=30.0))
    assert screen.live().endswith("waiting: for the study, at most 30 s: it is locked")
    assert screen.tell(events.StorageLost(reason="the disk is full")) == [
        "waiting   for the study, at most 30 s: it is locked",
        "note      The study cannot be written any more: the disk is full. The search goes on in memory.",
    ]


def test_with_whom_a_study_is_shared_is_told() -> None:
    screen = Screen(terminal=False)
    assert screen.tell(
        events.NotJoined(reasons=("`joint-1` is of machines unlike this one: usable cores: 2 there, 4 here",)),
        events.StudyJoined(name="joint-2", others=()),
        events.StudyJoined(name="joint-2", others=("one", "two")),
        events.WaitingForOthers(what="the last trials of one"),
        events.TrialGivenBack(number=6, host="two"),
    ) == [
        "note      not joined: `joint-1` is of machines unlike this one: usable cores: 2 there, 4 here",
        "joined    the study joint-2, for others to join by the same command",
        "joined    the study joint-2, with one, two",
        "waiting   the last trials of one",
        "note      trial 7 was cut off on two, and is run again",
    ]
    assert screen.live().endswith("waiting: the last trials of one")


def test_a_baseline_is_shown_by_its_name() -> None:
    assert Screen().tell(finished(measured(279.4), "baseline:Keras PyDataset")) == [
        "baseline        279 images/s  Keras PyDataset"
    ]


def test_each_new_best_is_shown_and_what_is_slower_only_when_asked_for() -> None:
    told = (finished(measured(100.0), best=100.0), finished(measured(90.0), best=100.0))
    assert Screen().tell(finished(measured(1000.0), best=None)) == []  # it exceeds a limit
    assert Screen().tell(*told) == ["best            100 images/s  threads(workers=2) cache=memory"]
    assert len(Screen(verbose=True).tell(*told)) == 2


def test_a_failed_trial_is_one_line_however_long_its_message() -> None:
    failure = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.MEASURE, message="It died.\n" + 50 * "of something ")
    (line,) = Screen().tell(finished(failure))
    assert line.startswith("failed    threads(workers=2) cache=memory: crashed in measure: It died. of")
    assert len(line) == 80


def test_without_a_terminal_nothing_is_cut() -> None:
    failure = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.MEASURE, message=10 * "of something ")
    (line,) = Screen(terminal=False).tell(finished(failure))
    assert line.endswith("of something")


def test_what_varies_is_marked_for_those_who_ask() -> None:
    told = finished(measured(100.0, stable=False))
    assert "~" in Screen(verbose=True).tell(told)[0]
    assert "~" not in Screen().tell(told)[0]


def test_the_best_stays_as_it_is_while_it_is_proved() -> None:
    screen = Screen()
    screen.tell(finished(measured(100.0), best=100.0), finished(measured(80.0), "proof:1", best=90.0))
    assert "best 100 images/s" in screen.live()


def test_what_the_child_warns_of_is_said_once_however_many_start() -> None:
    screen = Screen()
    for _ in range(2):
        screen.progress.watcher.on_trial(protocol.Log(text="Only one image is in `cat`."))
    assert screen.lines() == ["note      Only one image is in `cat`."]


def test_long_sentences_are_wrapped_below_their_text() -> None:
    shown = Screen().tell(events.SearchStopped(stop=Stop(reason=Reason.TIME, message=12 * "the time is up ")))
    assert shown[0].startswith("stopped   the time")
    assert all(line.startswith(" " * 10) for line in shown[1:])
    assert max(map(len, shown)) <= 80


def test_brackets_in_a_message_are_no_markup() -> None:
    shown = Screen().tell(events.SearchStopped(stop=Stop(reason=Reason.TIME, message="see [red]this[/red]")))
    assert shown == ["stopped   see [red]this[/red]"]


def test_the_live_line_has_the_time_left_the_best_so_far_and_what_is_going_on() -> None:
    screen = Screen()
    screen.tell(finished(measured(100.0)))
    screen.tell(
        events.TrialStarted(
            number=3, origin=AskedBy.parse("surrogate"), config=CONFIG, predicted=None, seconds_left=60.0
        )
    )
    screen.progress.watcher.on_trial(protocol.PhaseBegan(phase=Phase.FIRST_BATCH))
    screen.now = 20.0
    assert screen.live() == (
        "20 s, 40 s left | best 100 images/s | trial 4: threads(workers=2) cache=memory | first batch"
    )


def test_waiting_for_another_tune_is_told_and_takes_nothing_of_the_budget() -> None:
    screen = Screen(budget_seconds=60.0)
    screen.tell(events.WaitingForMachine(holder="process 7", seconds=120.0))
    screen.now = 100.0
    assert screen.live().endswith("waiting: process 7 measures on this machine; the wait is at most 120 s")
    screen.tell(events.StudyOpened(name="autopipe", resumed=0, lost=0))
    assert screen.live().startswith("100 s, 60 s left")


def test_in_a_proof_the_live_line_counts() -> None:
    screen = Screen()
    screen.tell(events.ConfirmationStarted(configs=(CONFIG, CONFIG), blocks=(2, 3)))
    for number in range(3):
        screen.tell(
            events.TrialStarted(
                number=number, origin=AskedBy.parse("proof:0"), config=CONFIG, predicted=None, seconds_left=9.0
            )
        )
    assert "confirmation, round 2, 1 of 2: threads(workers=2)" in screen.live()


def test_the_live_line_stays_one_line() -> None:
    written = io.StringIO()
    screen = Screen()
    screen.tell(
        events.TrialStarted(number=3, origin=AskedBy.parse("x"), config=CONFIG, predicted=None, seconds_left=60.0)
    )
    Console(file=written, width=40).print(Status(screen.progress).renderable)
    assert len(written.getvalue().splitlines()) == 1


@pytest.mark.parametrize(
    ("resumed", "said"),
    [
        (1, "resumed this study has 1 trial already; cut off, and counted as failed: 1"),
        (12, "resumed this study has 12 trials already; cut off, and counted as failed: 1"),
    ],
)
def test_going_on_with_a_study_is_said(resumed: int, said: str) -> None:
    shown = Screen().tell(events.StudyOpened(name="autopipe", resumed=resumed, lost=1))
    assert " ".join(" ".join(shown).split()) == said
