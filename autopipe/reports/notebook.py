"""Shows the progress of `ap.tune` in a notebook: one output that is redrawn, without widgets.

It holds the time and the current step, the best so far, and every trial. The command line has its own display.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable

from autopipe.measure.facts import Ceiling
from autopipe.reports import page, plots
from autopipe.reports.terminal import cell
from autopipe.search import result as events
from autopipe.search.conclusion import trial
from autopipe.values import figure_text

Show = Callable[[dict[str, str]], None]


def progress(budget_seconds: float | None = None) -> events.OnEvent | None:
    """Return the listener that shows the progress in the running cell; None outside of a notebook."""
    show = cell("tuning")
    return None if show is None else Live(show, budget_seconds)


class Live:
    """Shows a search as text and as HTML with a picture of all trials, by `show`; `clock` gives monotonic seconds."""

    def __init__(
        self, show: Show, budget_seconds: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._show, self._budget, self._clock = show, budget_seconds, clock
        self._began = clock()
        self._doing = "tuning"
        self._best: float | None = None
        self._ceiling: Ceiling | None = None
        self._trials: list[events.Trial] = []

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.Waiting():
                self._doing = "waiting for another tune on this machine"
            case Ceiling():
                self._ceiling = self._ceiling or event
            case events.TrialStarted():
                which = "confirmation" if event.origin.asker is events.Asker.PROOF else f"trial {event.number + 1}"
                self._doing = f"{which}: {event.config.short()}"
            case events.TrialFinished():
                self._best = self._best if event.best is None else event.best
                self._trials.append(trial(event.origin, event.config, event.outcome))
            case events.ConfirmationStarted():
                self._doing = "confirmation: the best few and the baselines, by turns"
            case events.Stop():
                self._doing = event.message
            case _:
                return
        took = f"{self._clock() - self._began:.0f} s" + ("" if self._budget is None else f" of {self._budget:.0f} s")
        best = "" if self._best is None else f"{figure_text(self._best)} images/s"
        plain = f"{self._doing} ({took}{f', best so far {best}' if best else ''})"
        drawn = plots.draw_history(self._trials, self._ceiling).render() if self._trials else ""
        said = f"{f'<b>{best}</b> at best, ' if best else ''}{took}. {html.escape(self._doing)}"
        self._show({"text/plain": plain, "text/html": page.framed(f"<p>{said}</p>{drawn}")})
