"""What a person sees of a tune, told event by event on a terminal of 80 columns."""

from __future__ import annotations

import io

import pytest
from replaying.synthetic import measurement
from rich.console import Console
from rich.status import Status

from autopipe.cli.progress import Progress
from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.loaders.threads import Threads
from autopipe.search import events
from autopipe.search.feasible import Drop
from autopipe.search.stopping import Reason, Stop
from autopipe.trial import protocol

CONFIG = PipelineConfig(loader=Threads(workers=2), cache="memory")


class Screen:
    """A terminal, and the progress of a tune on it."""

    def __init__(self, *, verbose: bool = False, terminal: bool = True) -> None:
        self.now = 0.0
        self._written = io.StringIO()
        console = Console(file=self._written, width=80, force_terminal=terminal, color_system=None)
        self.progress = Progress(console, verbose=verbose, clock=lambda: self.now)

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._written.getvalue().splitlines()]

    def tell(self, *told: events.Event) -> list[str]:
        for event in told:
            self.progress.watcher.on_search(event)
        return self.lines()

    def live(self) -> str:
        return self.progress.__rich__().plain


def finished(outcome: Measurement | TrialFailure, origin: str = "surrogate", best: float = 100.0) -> events.Event:
    return events.TrialFinished(number=0, origin=origin, config=CONFIG, outcome=outcome, value=None, best=best)


def measured(rate: float, *, stable: bool = True) -> Measurement:
    return measurement(CONFIG, [rate] * 5, batch_size=32).model_copy(update={"stable": stable})


def test_what_was_left_out_is_grouped_and_nothing_is_not_shown() -> None:
    drops = (Drop(reason="too large", configs=1200), Drop(reason="forks", configs=24), Drop(reason="none", configs=0))
    assert Screen().tell(events.SpaceTrimmed(candidates=184, drops=drops)) == [
        "space     184 configurations",
        "left out  1,224 configurations:",
        "           1,200  too large",
        "              24  forks",
    ]


def test_one_reason_takes_one_line() -> None:
    shown = Screen().tell(events.SpaceTrimmed(candidates=184, drops=(Drop(reason="forks", configs=24),)))
    assert shown[1:] == ["left out  24 configurations: forks"]


def test_many_reasons_are_cut_to_the_commonest_unless_all_are_asked_for() -> None:
    drops = tuple(Drop(reason=f"reason {number}", configs=9 - number) for number in range(8))
    told = events.SpaceTrimmed(candidates=1, drops=drops)
    assert Screen().tell(told)[-1] == "                  and 2 more reasons (-v shows them)"
    assert Screen(verbose=True).tell(told)[-1] == "               2  reason 7"


def test_a_baseline_is_shown_by_its_name() -> None:
    assert Screen().tell(finished(measured(279.4), "baseline:Keras PyDataset")) == [
        "baseline        279 images/s  Keras PyDataset"
    ]


def test_each_new_best_is_shown_and_what_is_slower_only_when_asked_for() -> None:
    told = (finished(measured(100.0), best=100.0), finished(measured(90.0), best=100.0))
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


def test_that_a_machine_is_not_quiet_is_said_once() -> None:
    shown = Screen(verbose=True).tell(*(finished(measured(100.0, stable=False)) for _ in range(3)))
    assert sum(line.startswith("note") for line in shown) == 1
    assert sum("~" in line and "images/s" in line for line in shown) == 3


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
    screen.tell(events.TrialStarted(number=3, origin="surrogate", config=CONFIG, predicted=None, seconds_left=60.0))
    screen.progress.watcher.on_trial(protocol.PhaseBegan(phase=Phase.FIRST_BATCH))
    screen.now = 20.0
    assert screen.live() == (
        "20 s, 40 s left | best 100 images/s | trial 4: threads(workers=2) cache=memory | first batch"
    )


def test_the_live_line_stays_one_line() -> None:
    written = io.StringIO()
    screen = Screen()
    screen.tell(events.TrialStarted(number=3, origin="x", config=CONFIG, predicted=None, seconds_left=60.0))
    Console(file=written, width=40).print(Status(screen.progress).renderable)
    assert len(written.getvalue().splitlines()) == 1


@pytest.mark.parametrize("resumed", [0, 12])
def test_going_on_with_a_study_is_said(resumed: int) -> None:
    shown = Screen().tell(events.StudyOpened(name="autopipe", resumed=resumed, lost=1))
    said = "resumed   12 trials of this study are there already; 1 that were cut off count as failed"
    assert " ".join(" ".join(shown).split()) == (" ".join(said.split()) if resumed else "")
