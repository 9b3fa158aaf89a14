"""The model's own time of a step, in lines and as a section of a report."""

from __future__ import annotations

from autopipe.core.outcome import StepTime
from autopipe.reports import wording
from autopipe.reports.figure import Column, Row, Section, Table
from autopipe.tuned.findings import Findings


def lines(found: StepTime) -> list[str]:
    """Return what `autopipe measure --mode` prints."""
    took = found.step_seconds
    interval = f"{wording.milliseconds(took.low)} to {wording.milliseconds(took.high)}"
    return [
        f"step        {wording.milliseconds(took.value)} ({interval}) for {found.batch_size} images: {found.mode}",
        f"images/s    {wording.rate(found.images_per_second)} on a batch that is there, without a loader",
        f"first call  {wording.seconds(found.first_call_seconds)}: it traces and compiles, and then does a step",
    ]


def section(findings: Findings) -> Section | None:
    """Return the modes that were measured side by side; None where there are none."""
    rows: list[Row] = [
        {**each.model_dump(mode="json"), "images_per_second": each.images_per_second} for each in findings.step_times
    ]
    if not rows:
        return None
    columns = (
        Column("", lambda row: row["mode"], numeric=False),
        Column("a step", lambda row: wording.milliseconds(row["step_seconds"]["value"])),
        Column("95 % interval", _interval),
        Column("images", lambda row: str(row["batch_size"])),
        Column("images/s", lambda row: wording.rate(row["images_per_second"])),
        Column("first call", lambda row: wording.seconds(row["first_call_seconds"])),
    )
    return Section(
        key="steps",
        title="How long does the model itself take?",
        text="A step on a batch that is there, compiled and warm, without a loader. The first call compiles.",
        table=Table(columns=columns, rows=rows),
    )


def _interval(row: Row) -> str:
    took = row["step_seconds"]
    return f"{wording.milliseconds(took['low'])} to {wording.milliseconds(took['high'])}"
