"""What the cost model says of another machine, as text."""

from __future__ import annotations

from rich.table import Table

from autopipe.core.whatif import WhatIf
from autopipe.hardware.memory import size_text
from autopipe.reports import labelled, wording


def render(found: WhatIf, measured: float) -> Table:
    """Return the table that `autopipe whatif` prints; `measured` is the winner's rate where it was tuned."""
    changes = found.images_per_second.value / measured
    lines = [
        ("predicted", f"{wording.rates(found.images_per_second)} images/s, {wording.times(changes)} what was measured"),
        ("best there", found.config.short()),
        ("model alone", f"{wording.rate(found.model_images_per_second)} images/s"),
        ("limit", f"{wording.rate(found.limit)} images/s ({found.limit_kind}): {found.sentence}"),
        (
            "range",
            f"{found.error:.0%} up and down, by {found.pairs} predictions of this study beside what was measured",
        ),
    ]
    for number, buy in enumerate(found.buys):
        gain = f"+{wording.rate(buy.gain)} images/s" if buy.gain >= 0.01 * measured else "nothing"
        size = "" if buy.cache_bytes is None else f" ({size_text(buy.cache_bytes)})"
        lines.append(("would bring" if number == 0 else "", f"{buy.what}{size}: {gain}"))
    return labelled.table([*lines, *(("note", note) for note in found.notes)])
