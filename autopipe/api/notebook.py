"""What a notebook shows while `ap.tune` runs: one line, which is written anew. The command line shows more."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from autopipe.search.events import Event, OnEvent, ProofStarted, TrialFinished, TrialStarted, WaitingForMachine

Show = Callable[[str], None]


def progress() -> OnEvent | None:
    """Return what shows the progress in the cell that runs; None where no notebook runs."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):  # a terminal has a shell, too
        return None
    import IPython.display

    display: Any = IPython.display.display  # without types
    handle = display({"text/plain": "tuning"}, raw=True, display_id=True)
    return Line(lambda text: handle.update({"text/plain": text}, raw=True))


class Line:
    """Tells in one line what a search does, how long it has run, and the best rate so far."""

    def __init__(self, show: Show, clock: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self._began = clock()
        self._best = ""

    def __call__(self, event: Event) -> None:
        """Write the line anew, if the event changes it."""
        doing = ""
        if isinstance(event, WaitingForMachine):
            doing = "waiting for another tune on this machine"
        elif isinstance(event, TrialStarted):
            proof = event.origin.startswith("proof:")
            doing = f"{'proof' if proof else f'trial {event.number}'}: {event.config.short()}"
        elif isinstance(event, ProofStarted):
            doing = "proof: the best few and the baselines, by turns"
        elif isinstance(event, TrialFinished) and event.best is not None:
            self._best = f", best so far {event.best:,.0f} images/s"
        if doing:
            self._show(f"{doing} ({self._clock() - self._began:.0f} s{self._best})")
