"""Whether configurations gave the same batches, as text."""

from __future__ import annotations

from rich.table import Table

from autopipe.core.config import PipelineConfig
from autopipe.core.verification import Agreement, Verification
from autopipe.report import wording

TOLERANCE = 1.01 / 255
"""How far TensorFlow's decode and resize may be from OpenCV's, in values scaled to 0..1: one level of 8 bits."""


def agrees(verification: Verification) -> bool:
    """Return whether all configurations gave the same samples, with pixels that differ by no more than one level."""
    return all(_verdict(each).startswith(("same", "within")) for each in verification.agreements)


def render(verification: Verification) -> Table:
    """Return the table that `autopipe verify` prints."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("configuration", "samples", "digest", "largest difference", "missing", "repeated", "verdict"):
        table.add_column(column)
    for each in verification.agreements:
        config = PipelineConfig.model_validate(each.config)
        figures = (
            str(each.samples),
            each.digest,
            f"{each.largest_difference:.5f}",
            str(each.missing),
            str(each.repeated),
        )
        table.add_row(wording.short(config), *figures, _verdict(each))
    return table


def _verdict(agreement: Agreement) -> str:
    if agreement.message is not None:
        return agreement.message
    if agreement.missing or agreement.repeated:
        return "other samples"
    if agreement.largest_difference == 0:
        return "same"
    scale = 1.0 if agreement.largest_value <= 1.5 else agreement.largest_value
    return "within one level" if agreement.largest_difference <= TOLERANCE * scale else "other pixels"
