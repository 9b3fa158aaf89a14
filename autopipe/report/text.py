"""The summary as text for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autopipe.core.value import Estimate
from autopipe.report import payback, wording
from autopipe.report.summary import BaselineLine, Summary


def render(summary: Summary) -> RenderableType:
    """Return the table that ends `autopipe tune`."""
    if summary.best is None or summary.rate is None:
        return Text("No configuration could be measured.", style="bold red")
    table = Table(title=None, show_edge=False, pad_edge=False, box=None, header_style="bold")
    table.add_column("pipeline")
    table.add_column("images/s", justify="right")
    table.add_column("95 % interval", justify="right")
    table.add_column("best is faster by", justify="right")
    table.add_row(Text("best", style="bold green"), _rate(summary.rate), _interval(summary.rate), "")
    for line in summary.baselines:
        table.add_row(line.name, *_cells(line))
    if summary.model_rate is not None:
        table.add_row("the model alone (ceiling)", _rate(summary.model_rate), _interval(summary.model_rate), "")
    conversions: list[RenderableType] = [payback.table(summary.paybacks), Text()] if summary.paybacks else []
    return Group(table, Text(), *conversions, _sentences(summary))


def _cells(line: BaselineLine) -> tuple[str, str, str]:
    if line.rate is not None and line.is_best:
        return _rate(line.rate), _interval(line.rate), "it is the best"
    if line.rate is None:
        return "failed", "", (line.failure or "")[:60]
    gain = "" if line.gain is None else f"{line.gain:.2f}x"
    if line.proved is not None:
        gain += f" ({line.proved.interval.low:.2f} to {line.proved.interval.high:.2f})"
    return _rate(line.rate), _interval(line.rate), gain


def _sentences(summary: Summary) -> Table:
    assert summary.best is not None
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    grid.add_row("best config", wording.short(summary.best))
    if summary.share_of_model is not None:
        reached = f"{summary.share_of_model:.0%} of what the model alone takes"
        known = summary.bound is not None and bool(summary.bound.costs.ops)
        if known and summary.share_of_bound is not None:
            reached += f", {summary.share_of_bound:.0%} of what model and loader can reach on these cores"
        grid.add_row("reached", reached)
    if summary.bottleneck is not None:
        grid.add_row("bottleneck", summary.bottleneck.sentence)
    grid.add_row("stopped", summary.stopped)
    failed = f", {summary.failed} failed" if summary.failed else ""
    grid.add_row("trials", f"{summary.trials}{failed}, in {summary.seconds:.0f} s")
    for warning in summary.warnings:
        grid.add_row(Text("note", style="bold yellow"), warning)
    return grid


def _rate(estimate: Estimate) -> str:
    return f"{estimate.value:,.0f}"


def _interval(estimate: Estimate) -> str:
    return f"{estimate.low:,.0f} to {estimate.high:,.0f}"
