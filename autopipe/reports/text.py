"""The summary as text for a terminal: 24 lines of 100 columns, each with a label that says what it answers."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autopipe.core.value import Estimate
from autopipe.reports import payback_table, trust, wording
from autopipe.reports.summary import BaselineLine, Summary

_MEANINGLESS = 4.0  # times from the lower to the upper end: two rounds that differ a little give such an interval


def render(summary: Summary) -> RenderableType:
    """Return what ends `autopipe tune`."""
    if summary.best is None or summary.rate is None:
        return Text("No configuration could be measured.", style="bold red")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    grid.add_row(Text("Winner", style="bold green"), wording.short(summary.best))
    grid.add_row("", _rate(summary.rate))
    for line in summary.baselines:
        grid.add_row("", _against(line, summary.round_seconds))
    grid.add_row("Limit", _limit(summary))
    if len(summary.device_counts) > 1:
        grid.add_row("Devices", _devices(summary))
    if summary.utilisation:
        grid.add_row("AU", _utilisation(summary))
    if summary.brought:
        grid.add_row("Brought", summary.brought)
    grid.add_row("Trust", summary.trust)
    failed = f", {summary.failed} failed" if summary.failed else ""
    grid.add_row("Stopped", f"{summary.stopped} ({summary.trials} trials{failed}, {summary.seconds:.0f} s)")
    for warning in summary.warnings:
        grid.add_row(Text("Note", style="bold yellow"), warning)
    if not summary.paybacks:
        return grid
    return Group(payback_table.table(summary.paybacks), Text(), grid)


def _against(line: BaselineLine, round_seconds: float) -> str:
    """Return what the best is worth against one baseline, or that it is not decided and what it would take."""
    if line.rate is not None and line.is_best:
        return f"it is the baseline {line.name}"
    if line.rate is None:
        return f"{line.name} {'was not measured' if line.failure is None else f'failed: {line.failure[:60]}'}"
    if line.proved is None:
        return f"{line.gain or 0.0:.2g}x {line.name} at {line.rate.value:,.0f} images/s, not proved"
    low, high = line.proved.interval
    if trust.decided(line.proved):
        few = (
            f", from {line.proved.pairs} round{'s' if line.proved.pairs > 1 else ''} and the trials"
            if line.proved.few
            else ""
        )
        return f"{line.proved.ratio:.3g}x {line.name} ({low:.3g} to {high:.3g}{few})"
    so_far = f"about {line.proved.ratio:.2g}x in {line.proved.pairs} rounds"
    return f"not decided against {line.name}, {so_far}; {_to_decide(line, round_seconds)}"


def _to_decide(line: BaselineLine, round_seconds: float) -> str:
    assert line.proved is not None
    more = trust.rounds_to_decide(line.proved)
    if more is None:
        return "too close, or too unsteady, to tell in a reasonable time"
    return f"{more} more would tell, in about {wording.seconds(more * round_seconds)}"


def _limit(summary: Summary) -> str:
    if summary.bottleneck is None:
        return "not known: the model alone was not measured"
    reached = "" if summary.share_of_model is None else f" Reached: {summary.share_of_model:.0%} of the model alone."
    return f"{summary.bottleneck.sentence[:1].upper()}{summary.bottleneck.sentence[1:]}{reached}"


def _devices(summary: Summary) -> str:
    """Return what each number of devices came to."""
    parts = []
    for each in summary.device_counts:
        kind = " virtual" if summary.virtual_devices and each.devices > 1 else ""
        alone = "" if each.model_images_per_second is None else f", the model alone {each.model_images_per_second:,.0f}"
        best = "none measured" if each.images_per_second is None else f"at most {each.images_per_second:,.0f} images/s"
        parts.append(f"{each.devices}{kind}: {best}{alone}")
    note = ". Virtual devices share the cores of one: they rehearse, and say nothing of GPUs" * summary.virtual_devices
    return f"{'; '.join(parts)}{note}"


def _utilisation(summary: Summary) -> str:
    others = ", ".join(f"{name} {share:.1%}" for name, share in summary.utilisation.items() if name != "best")
    rest = f" ({others})" if others else ""
    return f"{summary.utilisation['best']:.1%} of the time the simulated accelerator computes{rest}"


def _rate(estimate: Estimate) -> str:
    if estimate.low <= 0 or estimate.high > _MEANINGLESS * estimate.low:
        return f"{estimate.value:,.0f} images/s (too few rounds, or too unsteady, for an interval)"
    return f"{estimate.value:,.0f} images/s ({estimate.low:,.0f} to {estimate.high:,.0f})"
