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
    return None if show is None else live(show, budget_seconds)


def live(show: Show, budget: float | None = None, clock: Callable[[], float] = time.monotonic) -> events.OnEvent:
    """Return a listener that shows a search as text and as HTML with a picture of all trials; `budget` in seconds."""
    began, doing, best, trials = clock(), "tuning", "", list[events.Trial]()
    ceiling: Ceiling | None = None

    def on_event(event: events.Event) -> None:
        nonlocal doing, best, ceiling
        match event:
            case events.Waiting():
                doing = "waiting for another tune on this machine"
            case Ceiling():
                ceiling = ceiling or event
            case events.TrialStarted():
                which = "confirmation" if event.origin.asker is events.Asker.PROOF else f"trial {event.number + 1}"
                doing = f"{which}: {event.config.short()}"
            case events.TrialFinished():
                best = best if event.best is None else f"{figure_text(event.best)} images/s"
                trials.append(trial(event.origin, event.config, event.outcome))
            case events.ConfirmationStarted():
                doing = "confirmation: the best few and the baselines, by turns"
            case events.Stop():
                doing = event.message
            case _:
                return
        took = f"{clock() - began:.0f} s" + ("" if budget is None else f" of {budget:.0f} s")
        plain = f"{doing} ({took}{f', best so far {best}' if best else ''})"
        drawn = plots.draw_history(trials, ceiling).render() if trials else ""
        said = f"{f'<b>{best}</b> at best, ' if best else ''}{took}. {html.escape(doing)}"
        show({"text/plain": plain, "text/html": page.framed(f"<p>{said}</p>{drawn}")})

    return on_event
