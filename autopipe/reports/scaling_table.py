"""Whether more devices pay, as two tables and a verdict, and as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autopipe.core.scaling import Row, Scaling
from autopipe.hardware.memory import size_text
from autopipe.reports import labelled, wording


def render(found: Scaling) -> RenderableType:
    """Return what `autopipe scale` prints."""
    known = found.measured
    strong = _table(f"Strong scaling: all share a batch of {known.batch_size}", found.strong, virtual=found.virtual)
    weak = _table(f"Weak scaling: each gets a batch of {known.batch_size}", found.weak, virtual=found.virtual)
    fed = known.fed_images_per_second
    loader = f"{wording.rate(fed)} images/s from {wording.count(known.cores, 'core')}"
    link = f"{known.interconnect.bytes_per_second / 1e9:,.3g} GB/s ({known.interconnect.source})"
    lines = [
        ("Weights", f"{size_text(known.gradient_bytes)} of gradients a step, over {link}"),
        ("Input", f"{loader}, {known.cache}" if math.isfinite(fed) else "unknown"),
        ("Verdict", found.verdict),
    ]
    lines += [("Note", f"{note[:1].upper()}{note[1:]}.") for note in found.notes]
    if found.virtual:
        said = "Virtual devices are parts of this machine's CPU: they rehearse, and say nothing of GPUs."
        lines.append(("Note", said))
    return Group(strong, Text(), weak, Text(), labelled.table(lines))


def _table(title: str, rows: Sequence[Row], *, virtual: bool) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("devices")
    for name in ("step", "exchange", "images/s", "speedup", "efficiency"):
        table.add_column(name, justify="right")
    table.add_column("limited by")
    table.add_column("")
    for row in rows:
        table.add_row(
            f"{row.devices}{' virtual' if virtual and row.devices > 1 else ''}",
            wording.milliseconds(row.step_seconds),
            wording.milliseconds(row.exchange_seconds),
            wording.rate(row.images_per_second),
            f"{row.speedup:.2f}x",
            f"{row.efficiency:.0%}",
            row.limit.value if row.devices > 1 or row.limit.value == "input" else "",
            "measured" if row.measured else "predicted",
        )
    return table


def document(found: Scaling) -> dict[str, Any]:
    """Return the document that `autopipe scale --json` prints.

    Keys: `strong` and `weak` (a row for each number of devices: seconds of a step and of the exchange that shows in it,
    images/s, efficiency, speedup, limit, the cores that feeding takes, whether it was measured), `batch_size`,
    `step_seconds` (of one device, by its samples), `gradient_bytes`, `interconnect`, `fed_images_per_second` (None
    where it is not known), `virtual`, `verdict`, `notes`.
    """
    known, fed = found.measured, found.measured.fed_images_per_second
    return {
        "strong": [dataclasses.asdict(row) for row in found.strong],
        "weak": [dataclasses.asdict(row) for row in found.weak],
        "batch_size": known.batch_size,
        "step_seconds": {str(samples): seconds for samples, seconds in sorted(known.step_seconds.items())},
        "gradient_bytes": known.gradient_bytes,
        "interconnect": dataclasses.asdict(known.interconnect),
        "fed_images_per_second": fed if math.isfinite(fed) else None,
        "virtual": found.virtual,
        "verdict": found.verdict,
        "notes": list(found.notes),
    }
