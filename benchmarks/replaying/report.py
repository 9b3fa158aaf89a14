"""How samplers did on a recorded table, as text and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from replaying.search import Comparison

_SHOWN = (5, 10, 15, 25, 50, 100)


def render(compared: Sequence[Comparison]) -> Table:
    """Return what `benchmarks/replay.py` prints: how far below the table's best a search is after so many trials."""
    trials = len(compared[0].median) if compared else 0
    columns = [count for count in _SHOWN if count < trials] + [trials]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("sampler")
    for count in columns:
        table.add_column(f"after {count}", justify="right")
    for each in compared:
        table.add_row(each.sampler, *(f"{each.median[n - 1]:.1%} ({each.worst[n - 1]:.1%})" for n in columns))
    return table


def winners(regrets: Sequence[float]) -> str:
    """Return in a sentence how far below the table's best the winners of whole searches are."""
    middle, mean, worst = np.median(regrets), np.mean(regrets), np.quantile(regrets, 0.9)
    return (
        f"\nWinners of a proof are {middle:.1%} below the best (median; mean {mean:.1%}, 90th percentile {worst:.1%})."
    )


def document(compared: Sequence[Comparison]) -> dict[str, Any]:
    """Return what `benchmarks/replay.py --json` prints: for each sampler, `median` and `worst` by trial."""
    return {each.sampler: {"median": list(each.median), "worst": list(each.worst)} for each in compared}
