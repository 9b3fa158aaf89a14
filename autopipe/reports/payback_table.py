"""What converted forms cost and when they pay, as a table for a terminal and as plain values for the JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from autopipe.hardware.memory import size_text
from autopipe.reports import wording
from autopipe.search.conversions import Payback

_MINUTE = 60.0
_LONG_SECONDS = 90.0


def table(rows: Sequence[Payback]) -> Table:
    """Return one line of at most 80 columns for each storage form and cut that was tried."""
    shown = Table(title=None, show_edge=False, pad_edge=False, box=None, header_style="bold")
    shown.add_column("kept as, after", no_wrap=True)
    for column in ("images/s", "to convert", "on disk", "free", "saved an\nepoch", "epochs\nto pay"):
        shown.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        shown.add_row(
            f"{row.config.storage}, {wording.count(row.cut, 'op')}",
            wording.rate(row.rate.value),
            _interval(row.convert_seconds.low, row.convert_seconds.high),
            size_text(row.bytes),
            "" if row.free_bytes is None else size_text(row.free_bytes),
            _duration(row.saved_seconds) if row.saved_seconds > 0 else "nothing",
            Text(_epochs(row), style="yellow" if row.overruled else ""),
        )
    return shown


def sentences(rows: Sequence[Payback], epochs: int | None) -> list[str]:
    """Return what is to be known of the choice: what was overruled, and by which rule."""
    said = [
        f"{row.config.short()} would win by its {wording.rate(row.rate.value)} images/s, but its conversion "
        f"{wording.pays(row.epochs)} and the training takes {epochs}."
        for row in rows
        if row.overruled
    ]
    said += [
        f"As {row.config.storage}: {wording.rate(row.rate.value)} images/s, {_duration(row.convert_seconds.value)} to "
        f"convert, {wording.pays(row.epochs)}: `--convert` takes it, `--epochs N` weighs it."
        for row in rows
        if row.advice
    ]
    if epochs is None and any(not row.advice for row in rows):
        said.append("How many epochs the training takes is not known (`--epochs`): conversions were not charged.")
    return said


def document(rows: Sequence[Payback]) -> list[dict[str, Any]]:
    """Return the rows as JSON: seconds, bytes, images/s; `epochs` is null where a conversion never pays."""
    return [
        {
            "storage": row.config.storage,
            "cut": row.cut,
            "config": row.config.model_dump(mode="json"),
            "images_per_second": row.rate.model_dump(),
            "convert_seconds": row.convert_seconds.model_dump(),
            "bytes": row.bytes,
            "free_bytes": row.free_bytes,
            "saved_seconds_an_epoch": row.saved_seconds,
            "epochs_to_pay": row.epochs,
            "overruled": row.overruled,
            "advice": row.advice,
        }
        for row in rows
    ]


def _epochs(row: Payback) -> str:
    if row.epochs is None:
        return "never"
    return "at once" if row.epochs == 0 else f"{row.epochs:.1f}"


def _duration(seconds: float) -> str:
    return f"{seconds / _MINUTE:,.1f} min" if seconds >= _LONG_SECONDS else f"{seconds:.2g} s"


def _interval(low: float, high: float) -> str:
    unit, per = ("min", _MINUTE) if high >= _LONG_SECONDS else ("s", 1.0)
    ends = [f"{end / per:,.0f}" if end >= 10 * per else f"{end / per:.1f}" for end in (low, high)]
    return f"{' to '.join(dict.fromkeys(ends))} {unit}"  # one shard shows no spread
