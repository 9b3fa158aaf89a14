"""The result of a search as text for a terminal, about 24 lines of 100 columns, and as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autopipe.artifact import pick
from autopipe.errors import cut
from autopipe.hardware.machine import size_text
from autopipe.measure import costs as cost_model
from autopipe.pipeline.config import PipelineConfig
from autopipe.reports import verdict, wording
from autopipe.reports.terminal import figures, labelled
from autopipe.search.result import BaselineResult, Payback, Result, Winner
from autopipe.values import Estimate, capital, span_text

_NAME = 36  # columns of a baseline's name, which is not broken
_REASON = 100  # characters of why a baseline failed; the report and the study have all
_MOST_FORMS = 3  # storage forms that are shown; the report has all


def render(result: Result) -> RenderableType:
    """Render the end of `autopipe tune`."""
    best = result.winner
    if best is None:
        return Text("No configuration could be measured.", style="bold red")
    config = pick.parse_config(best.config)
    limits = None if result.ceiling is None else cost_model.bounds(result.ceiling, config)
    rate = best.images_per_second.value
    lines: list[tuple[str | Text, str]] = [
        (Text("Winner", style="bold green"), config.short()),
        ("Limit", _limit(result, config)),
        ("Devices", _devices(result)),
        ("Elsewhere", capital(wording.elsewhere(rate, best.hand_over_seconds, result.batch_size, config, limits))),
        ("AU", _utilisation(result)),
        ("Gains", verdict.gains(result)),
        ("Epoch", verdict.epoch(result)),
        ("Trust", verdict.trust_text(result)),
        ("Stopped", f"{result.stop.message} ({wording.trials(result)}, {result.seconds:.0f} s)"),
        *((Text("Note", style="bold yellow"), note) for note in verdict.notes(result)),
    ]
    headline = Table.grid()  # keeps to the width of the terminal, even if other lines need not
    headline.add_row(Text(verdict.headline(result), style="bold"))
    parts: list[RenderableType] = [headline, Text(), _rates(result, best), Text()]
    if result.paybacks:
        parts += [paybacks(result.paybacks[:_MOST_FORMS]), Text()]
    return Group(*parts, labelled((label, line) for label, line in lines if line))


def _rates(result: Result, best: Winner) -> Table:
    whole = f"over {wording.count(result.epochs or 0, 'epoch')}" if result.whole_training else None
    words = ("", "95 % interval", "the winner is")
    table = figures("", "images/s", words[1], *([whole] if whole else []), words[2], words=words)
    table.columns[0].no_wrap, table.columns[0].overflow, table.columns[0].max_width = True, "ellipsis", _NAME

    def row(name: str | Text, rate: Estimate | None, over: float | None, said: str) -> None:
        cells = ["-", ""] if rate is None else [wording.rate(rate.value), span_text(rate.low, rate.high)]
        table.add_row(name, *cells, *[wording.rate(over) if over else ""] * bool(whole), said)

    for each in result.baselines:
        row(each.name, each.images_per_second, each.whole_images_per_second, _against(result, best, each))
    row(Text("the winner", style="bold green"), best.images_per_second, best.whole_images_per_second, "")
    if result.ceiling is not None:
        share = best.share_of_model  # by turns, and 1 at most
        reached = "" if share is None else "as fast as it" if share >= 1 else f"at {share:.0%} of it"
        row("the model alone", result.ceiling.model_images_per_second, None, reached)
    return table


def _against(result: Result, best: Winner, baseline: BaselineResult) -> str:
    if baseline.images_per_second is None:
        why = "" if baseline.failure is None else f": {cut(baseline.failure.message.splitlines()[0], _REASON)}"
        return f"{wording.unmeasured(baseline.failure)}{why}"
    if baseline.key == best.key:
        return "this very baseline"
    contest, times = verdict.contest_with(result, baseline), wording.times(result.times_faster(baseline) or 0.0)
    if contest is None:
        return f"about {times}, measured once"
    rounds = wording.count(contest.pairs, "round")
    if contest.decided:
        said = f"{times} ({wording.interval(contest.low, contest.high)})"
        return f"likely {said}, {rounds}" if contest.few else said
    return f"not decided, about {times} in {rounds}; a longer `--budget` may decide it"


def _limit(result: Result, config: PipelineConfig) -> str:
    best, ceiling = result.winner, result.ceiling
    if best is not None and best.limit is not None:
        own = ceiling is not None and not ceiling.op_costs and best.limit_kind is None
        lines = " If Python code makes them, `autopipe measure` names its slow lines." if own else ""
        return f"{capital(best.limit)}{lines}"
    if result.reads_alone:
        return "Making batches: no model takes them. `autopipe measure` names the slow lines of Python code."
    if ceiling is None:
        setup = wording.setup(config.model_setup)
        return f"not known: the model alone was not measured{f' with {setup}' if setup else ''}"
    return (
        f"not known: the model alone was measured at {wording.rate(ceiling.model_images_per_second.value)} images/s, "
        "less than in training, because another program used the machine; measure again on a quiet one"
    )


def _devices(result: Result) -> str:
    if len(result.devices) < 2:
        return ""
    parts = []
    for each in result.devices:
        kind = " virtual" if result.virtual_devices and each.devices > 1 else ""
        rate, model = each.images_per_second, each.model_images_per_second
        alone = "" if model is None else f", the model alone {wording.rate(model)}"
        best = "none measured" if rate is None else f"at most {wording.rate(rate)} images/s"
        parts.append(f"{each.devices}{kind}: {best}{alone}")
    note = ". Virtual devices share the cores of one machine: their rates say nothing about GPUs"
    return "; ".join(parts) + note * result.virtual_devices


def _utilisation(result: Result) -> str:
    if not result.utilisation:
        return ""
    others = ", ".join(f"{name} {share:.1%}" for name, share in result.utilisation.items() if name != "best")
    rest = f" ({others})" if others else ""
    return f"{result.utilisation['best']:.1%} of the time the simulated accelerator computes{rest}"


def paybacks(rows: Sequence[Payback]) -> Table:
    """Tabulate costs and pay-back of storage forms: a line of at most 80 columns for each."""
    kept, *columns = "kept as, after", "images/s", "to convert", "on disk", "free", "saved an\nepoch", "epochs\nto pay"
    shown = figures(kept, *columns, words=(kept,))
    for row in rows:
        epochs = "never" if row.epochs is None else "at once" if row.epochs == 0 else wording.epochs_number(row.epochs)
        shown.add_row(
            f"{row.storage}, {wording.count(row.cut, 'op')}",
            wording.rate(row.rate.value),
            wording.seconds_between(row.convert_seconds.low, row.convert_seconds.high),
            size_text(row.bytes),
            "" if row.free_bytes is None else size_text(row.free_bytes),
            wording.seconds(row.saved_seconds) if row.saved_seconds > 0 else "nothing",
            Text(epochs, style="yellow" if row.overruled else ""),
        )
    return shown


def document(result: Result, artifact: str | None) -> dict[str, Any]:
    """Return the document of `autopipe tune --json`.

    Keys: `best` (the configuration), `images_per_second` (value, low, high, proved),
    `whole_training_images_per_second` (with what is paid once, if that makes a difference; else null), `baselines` (by
    name; `times_faster` is the ratio of the winner's rate to this one's, over the whole training if that is known;
    `pairs`: the number of rounds behind `interval`; `proved`: they are three or more and show a difference), `rows` (as
    `autopipe measure --json` has them), `ceiling` (model images/s, bound, shares, the costs of ops and reads, the
    bottleneck as a sentence, its kind and op: null if no measured limit is near the rate), `devices` (for each number
    of them: whether they are `virtual`, the model alone and the best configuration), `accelerator_utilisation` (of a
    simulated one, 0 to 1, by pipeline), `conversions` (storage, cut, seconds and bytes to convert, epochs until it
    pays), `trials`, `failed`, `epoch` (of a training with validation, by pipeline: seconds of its steps, its validation
    and its pauses, and the share of the samples on which steps were timed), `seconds`, `measuring_seconds` (of all
    measurements), `stopped`, `trust`, `warnings`, `artifact` (its path).
    """
    best = result.winner
    names = {"rate": "images_per_second", "saved_seconds": "saved_seconds_an_epoch", "epochs": "epochs_to_pay"}
    known = [("best", best), *((each.name, each) for each in result.baselines)]
    epochs = [(name, each.epoch) for name, each in known if each is not None and each.epoch is not None]
    return {
        "best": None if best is None else best.config,
        "images_per_second": None if best is None else {**best.images_per_second.model_dump(), "proved": result.proved},
        "whole_training_images_per_second": None if best is None else best.whole_images_per_second,
        "baselines": {each.name: _baseline(result, each) for each in result.baselines},
        "rows": [each.figures for each in result.rows],
        "ceiling": _ceiling(result),
        "devices": [
            {**each.model_dump(), "virtual": result.virtual_devices and each.devices > 1} for each in result.devices
        ],
        "accelerator_utilisation": result.utilisation or None,
        "conversions": [
            {names.get(name, name): value for name, value in each.model_dump(mode="json").items()}
            for each in result.paybacks
        ],
        "epoch": {
            name: {"seconds": of.seconds, **of.model_dump(exclude={"status", "schema_version"})} for name, of in epochs
        },
        "trials": len(result.trials),
        "failed": result.failed,
        "cut": result.cut,
        "seconds": round(result.seconds, 2),
        "measuring_seconds": round(result.measuring_seconds, 2),
        "stopped": result.stop.message,
        "trust": verdict.trust_text(result),
        "warnings": verdict.notes(result),
        "artifact": artifact,
    }


def _baseline(result: Result, baseline: BaselineResult) -> dict[str, Any]:
    rate, contest = baseline.images_per_second, result.contest(baseline)
    return {
        "code": next((config.loader.whose for config in pick.readable([baseline.config])), None),
        "images_per_second": None if rate is None else rate.model_dump(),
        "whole_training_images_per_second": baseline.whole_images_per_second,
        "proved": verdict.is_proved(verdict.contest_with(result, baseline)),
        "times_faster": result.times_faster(baseline),
        "interval": None if contest is None else [contest.low, contest.high],
        "pairs": None if contest is None else contest.pairs,
        "failure": None if baseline.failure is None else baseline.failure.message,
    }


def _ceiling(result: Result) -> dict[str, Any] | None:
    ceiling, best = result.ceiling, result.winner
    if ceiling is None or best is None:
        return None
    bound, share = ceiling.bound_images_per_second, None
    if bound and best.share_of_model is not None:
        share = min(1.0, best.images_per_second.value / bound)
    return {
        "model_images_per_second": ceiling.model_images_per_second.model_dump(),
        "share_of_model": best.share_of_model,
        "bound_images_per_second": bound,
        "share_of_bound": share,
        "ops": [{**op.model_dump(), "wall_seconds_per_image": op.wall_seconds_per_image} for op in ceiling.op_costs],
        "not_native": ceiling.not_native,
        "reads": None if ceiling.reads is None else ceiling.reads.model_dump(),
        "bottleneck": best.limit,
        "bottleneck_kind": best.limit_kind,
        "bottleneck_op": best.limit_op,
    }
