"""The progress of a tune on the terminal: a live line while trials run, and a plain line for what is worth keeping.

All of it goes to stderr; stdout carries data.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status

from autopipe.api.tuning import Watcher
from autopipe.core.outcome import Measurement
from autopipe.hardware.machine import Machine
from autopipe.search import events
from autopipe.search.feasible import Drop
from autopipe.trial import protocol

_DROPS_SHOWN = 6


class Progress:
    """Tells a person what a tune is doing. A context manager.

    Attributes:
        watcher: what a tune has to tell.
    """

    def __init__(self, console: Console, *, verbose: bool, budget_seconds: float | None) -> None:
        self._console = console
        self._verbose = verbose
        self._budget = budget_seconds
        self._began = time.monotonic()
        self._best: float | None = None
        self._doing = "starting"
        self._status = Status("starting: importing the workload and its framework", console=console)
        self.watcher = Watcher(on_machine=self._machine, on_search=self._search, on_trial=self._trial)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()

    def _machine(self, machine: Machine) -> None:
        self._say(f"machine   {machine.one_line()}")

    def _search(self, event: events.Event) -> None:
        match event:
            case events.WaitingForMachine():
                self._say(f"waiting   another tune is measuring on this machine ({event.holder})")
            case events.SpaceTrimmed():
                self._say(f"space     {event.candidates:,} configurations{_dropped(event.drops, self._verbose)}")
            case events.StudyOpened() if event.resumed:
                self._say(f"resumed   {event.resumed} trials were there already")
            case events.CeilingMeasured():
                rate = event.ceiling.model_images_per_second
                self._say(
                    f"ceiling   the model alone takes {rate.value:,.0f} images/s ({rate.low:,.0f} to {rate.high:,.0f})"
                )
            case events.TrialStarted():
                self._doing = f"trial {event.number} ({event.origin}): {event.config.one_line()}"
                self._update()
            case events.TrialFinished():
                self._finished(event)
            case events.ProofStarted():
                self._say(f"proof     {len(event.configs)} configurations against each other, in blocks")
            case events.SearchStopped():
                self._say(f"stopped   {event.stop.message}")
            case _:
                pass

    def _finished(self, event: events.TrialFinished) -> None:
        self._best = event.best if event.best is not None else self._best
        outcome = event.outcome
        baseline = event.origin.startswith("baseline:")
        if isinstance(outcome, Measurement):
            rate = outcome.images_per_second
            mark = "" if outcome.stable else "  (unstable)"
            text = f"{rate.value:>9,.0f} images/s  {event.config.one_line()}{mark}"
        else:
            text = f"   failed: {outcome.kind} in {outcome.phase}: {outcome.message}  {event.config.one_line()}"
        if baseline:
            self._say(f"baseline {text}  [{event.origin.partition(':')[2]}]")
        elif self._verbose or not isinstance(outcome, Measurement):
            self._say(f"trial    {text}  [{event.origin}]")
        self._update()

    def _trial(self, event: protocol.Event) -> None:
        if isinstance(event, protocol.PhaseBegan):
            self._update(str(event.phase).replace("_", " "))
        elif isinstance(event, protocol.Progress):
            self._update(f"{event.images_per_second:,.0f} images/s")
        elif isinstance(event, protocol.Log):
            self._say(event.text)

    def _update(self, detail: str = "") -> None:
        spent = time.monotonic() - self._began
        left = "" if self._budget is None else f", {max(0.0, self._budget - spent):.0f} s left"
        best = "" if self._best is None else f"best {self._best:,.0f} images/s | "
        self._status.update(_escaped(f"{best}{self._doing} {detail} [{spent:.0f} s{left}]"))

    def _say(self, text: str) -> None:
        self._console.print(_escaped(text), soft_wrap=True, highlight=False)


def _dropped(drops: tuple[Drop, ...], verbose: bool) -> str:
    if not drops:
        return ""
    shown = drops if verbose else drops[:_DROPS_SHOWN]
    lines = "".join(f"\n          left out: {drop.configs:,} configurations: {drop.reason}" for drop in shown)
    more = len(drops) - len(shown)
    return lines + (f"\n          and {more} more (-v shows them)" if more else "")


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
