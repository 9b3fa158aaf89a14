"""Whether a tuned configuration still fits, as text and as a document."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from autopipe.reports import labelled, wording
from autopipe.tuned.check import Result, Verdict

_STYLES = {Verdict.FITS: "bold green", Verdict.STALE: "bold yellow", Verdict.DRIFTED: "bold red"}


def render(result: Result) -> Table:
    """Return what `autopipe check` prints."""
    table = labelled.table()
    table.add_row("verdict", Text(result.verdict, style=_STYLES[result.verdict]))
    for reason in result.reasons:
        table.add_row("because", reason)
    table.add_row("age", wording.count(result.age_days, "day"))
    if result.images_per_second is not None:
        table.add_row("images/s", f"{wording.rates(result.images_per_second)} now")
    if result.share is not None:
        then = "" if result.recorded_share is None else f", {result.recorded_share:.0%} when it was tuned"
        table.add_row("share of ceiling", f"{result.share:.0%} now{then}")
    return table


def document(result: Result) -> dict[str, Any]:
    """Return the document that `autopipe check --json` prints.

    Keys: `verdict` (fits, stale, drifted), `reasons`, `age_days`, `share` and `recorded_share` of the ceiling, 0 to 1,
    `images_per_second` (value, low, high).
    """
    rate = result.images_per_second
    return {
        "verdict": str(result.verdict),
        "reasons": list(result.reasons),
        "age_days": result.age_days,
        "share": result.share,
        "recorded_share": result.recorded_share,
        "images_per_second": None if rate is None else rate.model_dump(),
    }
