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
from autopipe.search.result import Trial
from autopipe.values import figure_text

Show = Callable[[dict[str, str]], None]


def progress(budget_seconds: float | None = None) -> events.OnEvent | None:
    """Return the listener that shows the progress in the running cell; None outside of a notebook."""
    show = cell("tuning")
    return None if show is None else Live(show, budget_seconds)


class Live:
    """Shows a search: as a line of text, and as HTML with a picture of all trials. `show` replaces the output, and
    takes the text of each kind; `clock` gives monotonic seconds.
    """

    def __init__(
        self, show: Show, budget_seconds: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._show, self._budget, self._clock = show, budget_seconds, clock
        self._began = clock()
        self._doing = "tuning"
        self._best: float | None = None
        self._ceiling: Ceiling | None = None
        self._trials: list[Trial] = []

    def __call__(self, event: events.Event) -> None:
        if self._heard(event):
            seconds = self._clock() - self._began
            self._show({"text/plain": self._line(seconds), "text/html": self._html(seconds)})

    def _heard(self, event: events.Event) -> bool:
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
                return False
        return True

    def _line(self, seconds: float) -> str:
        best = "" if self._best is None else f", best so far {figure_text(self._best)} images/s"
        return f"{self._doing} ({seconds:.0f} s{self._whole()}{best})"

    def _whole(self) -> str:
        return "" if self._budget is None else f" of {self._budget:.0f} s"

    def _html(self, seconds: float) -> str:
        best = "" if self._best is None else f"<b>{figure_text(self._best)} images/s</b> at best, "
        drawn = ""
        if self._trials:
            drawn = plots.draw_history(self._trials, self._ceiling).render()
        return page.framed(f"<p>{best}{seconds:.0f} s{self._whole()}. {html.escape(self._doing)}</p>{drawn}")
