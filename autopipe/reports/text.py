"""The summary as text for a terminal: 24 lines of 100 columns, each with a label that says what it answers."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autopipe.core.config import ModelSetup
from autopipe.core.outcome import TrialFailure
from autopipe.core.value import Estimate
from autopipe.reports import labelled, payback_table, trust, wording
from autopipe.reports.summary import Summary, times_faster
from autopipe.search.measurer import LEFT_OUT
from autopipe.search.result import BaselineResult, SearchResult

_MEANINGLESS = 4.0  # times from the lower to the upper end: two rounds that differ a little give such an interval
_OTHER = 0.03  # of the model alone: what one can tell by the figures beside it
_REASON = 100  # characters of why a baseline failed; the report and the study have all
_MOST_FORMS = 3  # storage forms that are shown; the report has all


def render(summary: Summary, verdict: str = "") -> RenderableType:
    """Return what ends `autopipe tune`; `verdict` is its first sentence."""
    found = summary.result
    if found.best_config is None or found.estimate is None:
        return Text("No configuration could be measured.", style="bold red")
    grid = labelled.table()
    grid.add_row(Text("Winner", style="bold green"), found.best_config.short())
    grid.add_row("Limit", _limit(summary))
    if len(found.device_counts) > 1:
        grid.add_row("Devices", _devices(found))
    if elsewhere := wording.elsewhere(found.measurement, found.best_config, summary.bound):
        grid.add_row("Elsewhere", f"{elsewhere[:1].upper()}{elsewhere[1:]}")
    if summary.utilisation:
        grid.add_row("AU", _utilisation(summary))
    if brought := trust.brought(found):
        grid.add_row("Brought", brought)
    grid.add_row("Trust", summary.trust)
    failed = f", {len(found.failed)} failed" if found.failed else ""
    ended = f"({wording.count(len(found.trials), 'trial')}{failed}, {found.seconds:.0f} s)"
    grid.add_row("Stopped", f"{found.stopped_because.message} {ended}")
    for warning in summary.warnings:
        grid.add_row(Text("Note", style="bold yellow"), warning)
    parts: list[RenderableType] = [_wrapped(verdict), Text()] if verdict else []
    parts += [_rates(found, found.estimate), Text()]
    if found.paybacks:
        parts += [payback_table.table(found.paybacks[:_MOST_FORMS]), Text()]
    return Group(*parts, grid)


def _wrapped(sentence: str) -> Table:
    """Return a sentence that keeps to the width of the terminal, also where other lines need not."""
    grid = Table.grid()
    grid.add_row(Text(sentence, style="bold"))
    return grid


def _rates(found: SearchResult, rate: Estimate) -> Table:
    """Return the table of rates: baselines, the winner, the model alone."""
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("images/s", justify="right", no_wrap=True)
    table.add_column("95 % interval", no_wrap=True)
    table.add_column("the winner is", overflow="fold")
    for each in found.baselines:
        if each.estimate is None:
            table.add_row(each.name, "-", "", _missing(each.failure))
        else:
            table.add_row(each.name, *_figures(each.estimate), _against(each, found))
    table.add_row(Text("the winner", style="bold green"), *_figures(rate), "")
    if found.ceiling is not None:
        reached = _reached(found, rate.value / found.ceiling.model_images_per_second.value)
        table.add_row("the model alone", *_figures(found.ceiling.model_images_per_second), reached)
    return table


def _reached(found: SearchResult, by_the_figures: float) -> str:
    """Return how much of the model alone the winner reaches, and how that was read where the figures say other."""
    share = found.share_of_ceiling
    if share is None:
        return ""
    other = abs(min(1.0, by_the_figures) - share) > _OTHER
    return f"at {share:.0%} of it{', side by side' * other}"


def _missing(failure: TrialFailure | None) -> str:
    if failure is None:
        return "not measured"
    reason = failure.message.splitlines()[0]
    said = reason if len(reason) <= _REASON else f"{reason[: _REASON - 1]}…"
    return said if said.startswith(LEFT_OUT) else f"it failed: {said}"


def _against(baseline: BaselineResult, found: SearchResult) -> str:
    """Return what the best is worth against one baseline, or that it is not decided and what it would take."""
    if found.best_config is not None and baseline.config.key() == found.best_config.key():
        return "this very baseline"
    gain = baseline.gain
    if gain is None or not found.proved:  # what was cut off proves nothing, however many rounds there were
        return f"{wording.times(times_faster(baseline, found) or 0.0)}, not proved"
    rounds = wording.count(gain.pairs, "round")
    if gain.faster or gain.slower:
        few = f", {rounds} and the trials" * gain.few
        return f"{wording.times(gain.ratio)} ({wording.interval(*gain.interval)}{few})"
    to_decide, more = "too close, or too unsteady, to tell soon", trust.rounds_to_decide(gain)
    if gain.few:
        to_decide = "a longer `--budget` would tell"
    elif more is not None:
        seconds = more * trust.round_seconds(found.trials)
        to_decide = f"{more} more would tell, in about {wording.seconds(seconds)} of a longer `--budget`"
    return f"not decided, about {gain.ratio:.2g}x in {rounds}; {to_decide}"


def _limit(summary: Summary) -> str:
    ceiling = summary.result.ceiling
    if summary.bottleneck is None and ceiling is not None:
        alone = wording.rate(ceiling.model_images_per_second.value)
        return (
            f"not known: the model alone was read at {alone} images/s, less than it trains at, while something else "
            "had the machine; measure again on a quiet one"
        )
    if summary.bottleneck is None:
        return f"not known: the model alone was not measured{_in_setup(summary.result)}"
    return f"{summary.bottleneck.sentence[:1].upper()}{summary.bottleneck.sentence[1:]}"


def _in_setup(found: SearchResult) -> str:
    """Say what is special about the winner's setup of the model, so that other setups' figures are no contradiction."""
    if found.best_config is None:
        return ""
    setup, usual = found.best_config.model_setup._asdict(), ModelSetup()._asdict()
    special = [f"{name}={value}" for name, value in setup.items() if value != usual[name]]
    return f" with {' '.join(special)}" if special else ""


def _devices(found: SearchResult) -> str:
    """Return what each number of devices came to."""
    parts = []
    for each in found.device_counts:
        kind = " virtual" if found.virtual_devices and each.devices > 1 else ""
        rate, model = each.images_per_second, each.model_images_per_second
        alone = "" if model is None else f", the model alone {wording.rate(model)}"
        best = "none measured" if rate is None else f"at most {wording.rate(rate)} images/s"
        parts.append(f"{each.devices}{kind}: {best}{alone}")
    note = ". Virtual devices share the cores of one: they rehearse, and say nothing of GPUs" * found.virtual_devices
    return f"{'; '.join(parts)}{note}"


def _utilisation(summary: Summary) -> str:
    others = ", ".join(f"{name} {share:.1%}" for name, share in summary.utilisation.items() if name != "best")
    rest = f" ({others})" if others else ""
    return f"{summary.utilisation['best']:.1%} of the time the simulated accelerator computes{rest}"


def _figures(estimate: Estimate) -> tuple[str, str]:
    if estimate.has_interval and estimate.high > _MEANINGLESS * estimate.low:
        return wording.rate(estimate.value), "too unsteady"
    return wording.rate(estimate.value), wording.span(estimate.low, estimate.high)
