"""The progress of a tune on the terminal: a live line while trials run, and a plain line for what is worth keeping.

All of it goes to stderr; stdout carries data.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from autopipe.api.searching import Watcher
from autopipe.core.outcome import Measurement
from autopipe.hardware.machine import Machine
from autopipe.report import wording
from autopipe.search import events
from autopipe.search.feasible import Drop
from autopipe.trial import protocol

_DROPS_SHOWN = 6
_LABEL = 10  # columns
_UNSTABLE = "Figures marked ~ vary by more than 3 %: something else may be using this machine. The proof allows for it."


class Progress:
    """Tells a person what a tune is doing. A context manager.

    Args:
        console: where to.
        verbose: whether every trial gets a line, and not only baselines, failures and each new best.
        clock: monotonic seconds.

    Attributes:
        watcher: what a tune has to tell.
    """

    def __init__(self, console: Console, *, verbose: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._verbose = verbose
        self._clock = clock
        self._began = clock()
        self._ends: float | None = None
        self._best: float | None = None
        self._doing = "importing the workload and its framework"
        self._detail = ""
        self._said_unstable = False
        self._noted: set[str] = set()
        self._status = Status(self, console=console)
        self.watcher = Watcher(on_machine=self._machine, on_search=self._search, on_trial=self._trial)

    def __rich__(self) -> Text:
        """Return the live line; drawn several times a second, so that its clock runs."""
        now = self._clock()
        left = "" if self._ends is None else f", {max(0.0, self._ends - now):.0f} s left"
        best = "" if self._best is None else f"best {self._best:,.0f} images/s"
        parts = (f"{now - self._began:.0f} s{left}", best, self._doing, self._detail)
        return Text(" | ".join(filter(None, parts)), no_wrap=True, overflow="ellipsis")

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()

    def say(self, label: str, text: str, *, one_line: bool = False) -> None:
        """Print a line that stays; on a terminal long ones are wrapped below the text, or cut."""
        line = f"{label:<{_LABEL}}{text}"
        if self._console.is_terminal and not one_line:
            line = textwrap.fill(line, self._console.width, subsequent_indent=" " * _LABEL, break_on_hyphens=False)
        cut = self._console.is_terminal and one_line
        self._console.print(
            Text(line, no_wrap=True, overflow="ellipsis"), soft_wrap=not cut, no_wrap=cut, highlight=False
        )

    def _machine(self, machine: Machine) -> None:
        self.say("machine", machine.one_line())

    def _search(self, event: events.Event) -> None:
        match event:
            case events.WaitingForMachine():
                self.say("waiting", f"another tune is measuring on this machine ({event.holder})")
            case events.SpaceTrimmed():
                self.say("space", f"{event.candidates:,} configurations")
                self._left_out([drop for drop in event.drops if drop.configs])
            case events.StudyOpened():
                self._opened(event)
            case events.StorageWaited() | events.StorageLost():
                self._storage(event)
            case events.CeilingMeasured():
                rate = event.ceiling.model_images_per_second
                self.say(
                    "ceiling", f"the model alone takes {rate.value:,.0f} images/s ({rate.low:,.0f} to {rate.high:,.0f})"
                )
            case events.TrialStarted():
                self._started(event)
            case events.TrialFinished():
                self._finished(event)
            case events.ProofStarted():
                fewest, most = event.blocks
                self.say(
                    "proof", f"{len(event.configs)} configurations against each other, in {fewest} to {most} rounds"
                )
            case events.SearchStopped():
                self.say("stopped", event.stop.message)

    def _opened(self, event: events.StudyOpened) -> None:
        self._doing = "measuring what the model alone can take"
        if event.resumed:
            lost = f"; {event.lost} that were cut off count as failed" if event.lost else ""
            self.say("resumed", f"{event.resumed} trials of this study are there already{lost}")

    def _storage(self, event: events.StorageWaited | events.StorageLost) -> None:
        if isinstance(event, events.StorageWaited):
            self._doing, self._detail = f"waiting for the study: {event.reason}", ""
            self.say("waiting", f"for the study, at most {event.seconds:.0f} s: {event.reason}")
        else:
            self.say("note", f"The study cannot be written any more: {event.reason}. The search goes on in memory.")

    def _left_out(self, drops: list[Drop]) -> None:
        if not drops:
            return
        total = sum(drop.configs for drop in drops)
        if len(drops) == 1:
            self.say("left out", f"{total:,} configurations: {drops[0].reason}")
            return
        self.say("left out", f"{total:,} configurations:")
        shown = drops if self._verbose else drops[:_DROPS_SHOWN]
        for drop in shown:
            self.say("", f"{drop.configs:>6,}  {drop.reason}", one_line=True)
        if len(drops) > len(shown):
            self.say("", f"        and {len(drops) - len(shown)} more reasons (-v shows them)")

    def _started(self, event: events.TrialStarted) -> None:
        self._ends = None if event.seconds_left is None else self._clock() + event.seconds_left
        what = "proof" if event.origin.startswith("proof:") else f"trial {event.number + 1}"
        self._doing, self._detail = f"{what}: {wording.short(event.config)}", ""

    def _finished(self, event: events.TrialFinished) -> None:
        outcome = event.outcome
        kind, _, detail = event.origin.partition(":")
        better = self._best is None or (event.best is not None and event.best > self._best)
        self._best = event.best if event.best is not None else self._best
        config = wording.short(event.config)
        if not isinstance(outcome, Measurement):
            self.say("failed", f"{detail if kind == 'baseline' else config}: {wording.failed(outcome)}", one_line=True)
        elif kind == "baseline":
            self._rate("baseline", outcome, detail)
        elif self._verbose:
            whence = f"round {int(detail) + 1}" if kind == "proof" else event.origin
            self._rate("proof" if kind == "proof" else "trial", outcome, f"{config}  ({whence})")
        elif better and kind != "proof":
            self._rate("best", outcome, config)

    def _rate(self, label: str, outcome: Measurement, what: str) -> None:
        if not outcome.stable and not self._said_unstable:
            self._said_unstable = True
            self.say("note", _UNSTABLE)
        mark = " " if outcome.stable else "~"
        self.say(label, f"{mark}{outcome.images_per_second.value:>8,.0f} images/s  {what}", one_line=True)

    def _trial(self, event: protocol.Event) -> None:
        if isinstance(event, protocol.PhaseBegan):
            self._detail = str(event.phase).replace("_", " ")
        elif isinstance(event, protocol.Progress):
            self._detail = f"{event.images_per_second:,.0f} images/s"
        elif isinstance(event, protocol.Log) and event.text not in self._noted:  # each child that starts says it again
            self._noted.add(event.text)
            self.say("note", event.text)
