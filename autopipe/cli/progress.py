"""Shows a tune on the terminal: a live line while trials run, and plain lines that stay. In a file, the live line is a
plain one, twice a minute. Writes to stderr only.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FailureKind, Measurement
from autopipe.measure.trial import child
from autopipe.pipeline.config import PipelineConfig
from autopipe.reports import terminal, wording
from autopipe.search import result as events
from autopipe.search.result import Asker
from autopipe.search.searching import Watcher, once
from autopipe.search.settings import Settings, as_options

_ENOUGH_TRIALS = 8  # with fewer, a search is hardly one
_LABEL = 10  # columns
_SILENT_SECONDS = 30.0  # in a log


class Progress:
    """Shows the progress of a tune; with `verbose` every trial gets a line, and `~` marks a rate that varies by more
    than 3 %. `budget_seconds` are of the whole tune; None for no limit.
    """

    def __init__(
        self,
        *,
        verbose: bool,
        budget_seconds: float | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console = console or terminal.Console(stderr=True)
        self._verbose, self._clock = verbose, clock
        self._began = self._said = clock()
        self._ends = None if budget_seconds is None else self._began + budget_seconds
        self._best: float | None = None
        self._doing, self._detail = "importing the workload and its framework", ""
        self._waiting_since: float | None = None
        self._said_ceiling, self._confirming = False, (1, 0)
        self._remark = once(lambda remark: self.say("note", remark.text))
        self._status = Status(self, console=console)
        self.watcher = Watcher(  # the listeners of a tune
            on_machine=lambda machine: self.say("machine", machine.one_line()),
            on_request=self._request,
            on_search=self._search,
            on_trial=self._trial,
        )

    def __rich__(self) -> Text:
        now = self._clock()
        left = "" if self._ends is None else f", {max(0.0, self._ends - now):.0f} s left"
        best = "" if self._best is None else f"best {wording.rate(self._best)} images/s"
        parts = (f"{now - self._began:.0f} s{left}", best, self._doing, self._detail)
        return Text(" | ".join(filter(None, parts)), no_wrap=True, overflow="ellipsis")

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._status.stop()

    def say(self, label: str, text: str, *, one_line: bool = False) -> None:
        self._said = self._clock()
        line = f"{label:<{_LABEL}}{text}"
        if self._console.is_terminal and not one_line:
            line = textwrap.fill(line, self._console.width, subsequent_indent=" " * _LABEL, break_on_hyphens=False)
        cut = self._console.is_terminal and one_line
        self._console.print(
            Text(line, no_wrap=True, overflow="ellipsis"), soft_wrap=not cut, no_wrap=cut, highlight=False
        )

    def _request(self, settings: Settings) -> None:
        self._ends = None if settings.budget_seconds is None else self._began + settings.budget_seconds
        if said := as_options(settings):
            self.say("as before", said)

    def _search(self, event: events.Event) -> None:  # noqa: C901  a case for each kind of event
        match event:
            case events.Waiting():
                what = f"{event.why} measures on this machine; the wait is at most {event.seconds:.0f} s"
                self._waiting_since = self._clock()  # it does not count against the budget
                self._doing, self._detail = f"waiting: {what}", ""
                self.say("waiting", what)
            case events.StudyOpened():
                self._opened(event)
            case events.SpaceTrimmed():
                self._space(event)
            case Ceiling():
                if self._verbose or not self._said_ceiling:
                    setup = wording.setup(event.setup) if self._verbose else ""
                    rate = wording.rate(event.model_images_per_second.value)
                    self.say("ceiling", f"the model alone takes {rate} images/s{setup and f', {setup}'}")
                self._said_ceiling = True
            case events.Raced():
                config = PipelineConfig.model_validate(event.config).short()
                self._doing, self._detail = f"race of loaders: {config}", ""
                if self._verbose:
                    self.say("loader", f"{wording.rate(event.images_per_second):>9} images/s  {config}", one_line=True)
            case events.BudgetPlanned():
                self.say("budget", _budget(event))
            case events.StorageLost():
                said = f"The study cannot be written any more: {event.reason}. The search goes on in memory."
                self.say("note", said)
            case events.TrialStarted():
                self._started(event)
            case events.TrialFinished():
                self._finished(event)
            case events.Stop():
                self.say("stopped", event.message)
            case events.ConfirmationStarted():
                configs, (fewest, most) = wording.count(len(event.configs), "configuration"), event.blocks
                self.say("confirm", f"{configs} by turns, in {fewest} to {most} rounds")
                self._confirming = (len(event.configs), 0)

    def _opened(self, event: events.StudyOpened) -> None:
        if event.resumed:
            failed = f"; {event.failed} failed, and `--fresh` tries them again" if event.failed else ""
            self.say("resumed", f"this study has {wording.count(event.resumed, 'trial')} already{failed}")
        if self._ends is not None and self._waiting_since is not None:
            self._ends += self._clock() - self._waiting_since
        self._doing = "measuring the model alone"

    def _space(self, event: events.SpaceTrimmed) -> None:
        drops = {reason: configs for reason, configs in event.left_out.items() if configs}
        total = sum(drops.values())
        why = "" if not drops or self._verbose else " (-v says why)"
        left_out = f", {total:,} left out{why}" if drops else ""
        self.say("space", f"{event.candidates:,} configurations{left_out}")
        for reason, configs in drops.items() if self._verbose else ():
            self.say("left out", f"{configs:>6,}  {reason}", one_line=True)

    def _started(self, event: events.TrialStarted) -> None:
        self._ends = None if event.seconds_left is None else self._clock() + event.seconds_left
        what = f"trial {event.number + 1}"
        if event.origin.asker is Asker.PROOF:
            others, done = self._confirming
            self._confirming = (others, done + 1)
            what = f"confirmation, round {done // others + 1}, {done % others + 1} of {others}"
        self._doing, self._detail = f"{what}: {event.config.short()}", ""
        if not self._console.is_terminal and self._clock() - self._said >= _SILENT_SECONDS:
            self.say("so far", self.__rich__().plain)

    def _finished(self, event: events.TrialFinished) -> None:
        outcome, config = event.outcome, event.config.short()
        asker, detail = event.origin.asker, event.origin.detail
        is_proof = asker is Asker.PROOF  # it measures again the value by which the best was chosen
        better = event.best is not None and (self._best is None or event.best > self._best)
        if event.best is not None and not is_proof:
            self._best = event.best
        if not isinstance(outcome, Measurement):
            what = detail if asker is Asker.BASELINE else config
            label = "cut" if outcome.kind is FailureKind.INTERRUPTED else "failed"
            self.say(label, f"{what}: {wording.failed(outcome)}", one_line=True)
        elif asker is Asker.BASELINE:
            self._rate("baseline", outcome, detail)
        elif self._verbose:
            whence = f"round {int(detail) + 1}" if is_proof else str(event.origin)
            self._rate("confirm" if is_proof else "trial", outcome, f"{config}  ({whence})")
        elif better and not is_proof:
            self._rate("best", outcome, config)

    def _rate(self, label: str, outcome: Measurement, what: str) -> None:
        mark = "~" if self._verbose and not outcome.stable else " "
        self.say(label, f"{mark}{wording.rate(outcome.images_per_second.value):>8} images/s  {what}", one_line=True)

    def _trial(self, event: child.Event) -> None:
        if isinstance(event, child.PhaseBegan):
            self._detail = str(event.phase).replace("_", " ")
        elif isinstance(event, child.Progress):
            self._detail = f"{wording.rate(event.images_per_second)} images/s"
        else:
            self._remark(event)


def _budget(event: events.BudgetPlanned) -> str:
    budget, trial = wording.seconds(event.budget_seconds), wording.seconds(event.trial_seconds)
    advice = f"`--budget {wording.budget(event.advised_seconds)}` has time to search and to prove."
    if event.needed_seconds > event.budget_seconds:
        needed, spent = wording.seconds(event.needed_seconds), wording.seconds(event.spent_seconds)
        return (
            f"{budget} are too short: comparing two configurations takes {needed} here, {spent} of it before the first "
            f"trial. {advice}"
        )
    fits = f"there is time for about {wording.count(event.trials, 'trial')} of {trial}."
    return f"{budget} are short: {fits} {advice}" if event.trials < _ENOUGH_TRIALS else f"{budget}: {fits}"
