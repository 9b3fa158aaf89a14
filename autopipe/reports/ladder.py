"""The rate ladder (the rate of each part alone), and the waterfall (the cost of an image, op by op)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from autopipe.artifact import pick
from autopipe.measure import bottleneck
from autopipe.measure import costs as cost_model
from autopipe.measure.costs import Bounds, Kind, Limit
from autopipe.measure.facts import Ceiling, OpCost
from autopipe.pipeline.config import PipelineConfig
from autopipe.reports import wording
from autopipe.reports.drawing import Drawing, RowChart
from autopipe.reports.page import Column, Row, Section, Table, words_column
from autopipe.search.result import Result, Winner, raced_rate
from autopipe.values import Estimate, capital, span_text

FIGURES = tuple(
    Column(title, functools.partial(lambda key, row: "" if row[key] is None else wording.rate(row[key]["value"]), key))
    for title, key in (("model alone", "model"), ("loader alone", "loader"), ("together", "together"))
)
"""The columns of the figures of `autopipe.measure.rows.Row`."""


def rows(result: Result) -> Section:
    """Make the section of the winner's row, and those of the baselines."""
    best = result.winner
    said = [] if best is None or best.limit is None else [capital(best.limit)]
    said += [f"{capital(each.doubt)}." for each in result.rows if each.doubt is not None]
    return Section(
        key="rows",
        title="What limits it?",
        text=" ".join(said) or "What limits the winner is not known.",
        table=Table((words_column("images/s", "name"), *FIGURES), [each.figures for each in result.rows]),
    )


_ROOM = 1.12  # beyond the highest shown rate
_TOLD = {
    Kind.STORAGE_LATENCY: "storage, by its latency",
    Kind.STORAGE_BANDWIDTH: "storage, by its bandwidth",
    Kind.PYTHON_LOCK: "one process (GIL)",
    Kind.HAND_OVER: "hand-over of batches",
    Kind.TRANSFER: "transfer to the device",
    Kind.MEMORY: "what memory cannot hold",
    Kind.MODEL: "model alone",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One line of the ladder."""

    name: str
    images_per_second: float
    interval: list[float] | None = None  # 95 % of it; None if it is computed from measurements
    css: str = "part"  # its kind
    limits: bool = False  # it is what limits the winner
    spared: bool = False  # the winner does without it
    in_training: bool = False  # it was measured in training


def rungs(result: Result) -> list[Rung]:
    """Return the lines of the ladder, parts first."""
    best, ceiling = result.winner, result.ceiling
    found = [] if ceiling is None or best is None else _parts(result, best, ceiling)
    trained = [(each.name, each.images_per_second, "base") for each in result.baselines]
    trained += [] if best is None else [("the winner", best.images_per_second, "win")]
    return found + [_measured(name, rate, css, training=True) for name, rate, css in trained if rate is not None]


def ladder(result: Result) -> Section:
    """Make the section of the ladder."""
    lines = rungs(result)
    limit = next((f" The limit: {each.name}." for each in lines if each.limits), "")
    columns = (
        words_column("what", "name"),
        Column("images/s", lambda row: wording.rate(row["images_per_second"])),
        Column("95 % interval", lambda row: "" if row["interval"] is None else span_text(*row["interval"])),
        Column("", _remark, numeric=False),
    )
    rows = [{key: value for key, value in asdict(each).items() if key != "css"} for each in lines]
    return Section(
        key="ladder",
        title="How fast could each part be?",
        text=f"What each part could feed on its own, and what all of them reached together in training.{limit}"
        f"{_one_process(result)}",
        table=Table(columns, rows),
        picture=_draw_ladder(lines),
        caption="Images a second; whiskers are 95 % intervals. Bars that end ragged go on beyond the picture.",
    )


def _one_process(result: Result) -> str:
    """Say what the ops of the winner allow one process, and which of them are Python; empty if they are not known."""
    ceiling, best = result.ceiling, result.winner
    if ceiling is None or best is None or not ceiling.op_costs:
        return ""
    config = pick.parse_config(best.config)
    paid, threads = cost_model.bounds(ceiling, config).work.paid, cost_model.turns(config.loader, ceiling.cores or 1.0)
    if said := bottleneck.python_text(paid, threads, ceiling.not_native):
        return f" {capital(said)}."
    return " The native library makes the samples: one process may use all cores." if paid else ""


def _remark(row: Row) -> str:
    if row["limits"]:
        return "the limit"
    return "spared by the winner" if row["spared"] else "in training" if row["in_training"] else "alone"


def _draw_ladder(lines: Sequence[Rung]) -> Drawing:
    shown = (each for each in lines if each.in_training or each.css == "model" or each.limits)
    top = _ROOM * max(each.images_per_second for each in shown)
    said = ", ".join(f"{each.name} {wording.rate(each.images_per_second)}" for each in lines)
    rows = RowChart(f"Rate ladder in images a second: {said}.", (0.0, top), values="1,000,000")
    model = next((each for each in lines if each.css == "model"), None)
    rows.legend(
        (any(each.css == "part" for each in lines), ("bar", "part", "a part alone")),
        (any(each.spared for each in lines), ("bar", "spared", "spared by the winner")),
        (any(each.limits for each in lines), ("bar", "limits", "the limit")),
        (model is not None, ("line", "ceiling", "model alone")),
        (True, ("bar", "base", "baseline")),
        (True, ("bar", "win", "winner")),
    )
    for heading, in_training in (("Each part alone", False), ("In training", True)):
        if members := [each for each in lines if each.in_training is in_training]:
            rows.heading(heading)
        for rung in members:
            _draw_rung(rows, rung, top)
    if model is not None:
        rows.rule(model.images_per_second, "ceiling")
    return rows.axis(lambda value: f"{value:,.10g}", "images/s")


def _draw_rung(rows: RowChart, rung: Rung, top: float) -> None:
    drawing, scale = rows.drawing, rows.scale
    bold = "strong" if rung.css == "win" else "faint" if rung.spared else ""
    y = rows.row(rung.name, wording.rate(rung.images_per_second), bold)
    end = scale(rung.images_per_second)
    css = "spared" if rung.spared else "limits" if rung.limits else rung.css
    if rung.images_per_second > top:
        teeth = [(end - 9.0, y - 7.0), (end - 3.0, y - 3.5), (end - 9.0, y), (end - 3.0, y + 3.5), (end - 9.0, y + 7.0)]
        drawing.path([(scale.begin, y - 7.0), *teeth, (scale.begin, y + 7.0)], css, closed=True)
    else:
        rows.bar(y, 0.0, rung.images_per_second, css)
        if rung.interval is not None:
            drawing.whisker(scale(rung.interval[0]), scale(rung.interval[1]), y)
    if rung.limits and end + 46.0 > scale.end:
        drawing.text(end - 10.0, y + 4.0, "limit", "tag on", "end")
    elif rung.limits:
        drawing.text(end + 10.0, y + 4.0, "limit", "tag")


def _parts(result: Result, best: Winner, ceiling: Ceiling) -> list[Rung]:
    config = pick.parse_config(best.config)
    limits = cost_model.bounds(ceiling, config)
    paid = {op.name for op in limits.work.paid}
    cores = ceiling.cores or 1.0
    found = _storage(ceiling, config, limits)
    for op in limits.costs.op_costs:
        if op.seconds_per_image > 0:
            each = f"{op.name} on {wording.count(cores, 'core')}"
            found.append(Rung(name=each, images_per_second=cores / op.seconds_per_image, spared=op.name not in paid))
    if ceiling.loader_images_per_second is not None:
        alone = _measured("loader, nothing cached", ceiling.loader_images_per_second, "part")
        found.append(replace(alone, spared=limits.work.from_source < 1))
    raced, rate = raced_rate(result.raced, best.config), best.images_per_second.value
    known = best.limit_kind is not None
    way = bottleneck.bottleneck(limits, rate, best.share_of_model, raced).limit if known else None
    is_model = way is not None and way.kind is Kind.MODEL

    def rung(limit: Limit) -> Rung:
        name = _TOLD.get(limit.kind, str(limit.kind))
        if limit.kind is Kind.OP:
            name = f"loader and model on {wording.count(cores, 'core')}"
            if limit.workers:
                name = f"all of it by {wording.count(config.loader.worker_count() or 0, 'worker')}"
        name = "the winner's loader" if limit.images_per_second == raced else name
        return Rung(name=name, images_per_second=limit.images_per_second)

    others = [each for each in limits.limits if each.kind is not Kind.MODEL and math.isfinite(each.images_per_second)]
    limit_rung = [] if way is None or is_model else [rung(way)]  # which may be several of them together
    found += [each for each in map(rung, others) if each not in limit_rung]
    found += [replace(each, limits=True) for each in limit_rung]
    return [*found, replace(_measured("model alone", ceiling.model_images_per_second, "model"), limits=is_model)]


def _storage(ceiling: Ceiling, config: PipelineConfig, limits: Bounds) -> list[Rung]:
    reads, spared = ceiling.reads, limits.work.from_source == 0
    rates = dict[str, float]()
    if reads is not None:
        at_once = config.loader.reads_at_once() or math.ceil(ceiling.cores or 1.0)
        at_once = min(at_once, reads.most_at_once) if reads.waits else at_once
        rates[f"storage, {wording.count(at_once, 'read')} at a time"] = reads.images_per_second(at_once)
    if ceiling.read_bytes_per_second and ceiling.bytes_per_image:
        rates["storage, by its bandwidth"] = ceiling.read_bytes_per_second / ceiling.bytes_per_image
    return [Rung(name=name, images_per_second=rate, spared=spared) for name, rate in rates.items()]


def _measured(name: str, rate: Estimate, css: str, *, training: bool = False) -> Rung:
    interval = [max(0.0, rate.low), rate.high]
    return Rung(name=name, images_per_second=rate.value, interval=interval, css=css, in_training=training)


_MODEL = "the model's own"


def costs(result: Result) -> Section | None:
    """Make the section of the waterfall; None if ops were not measured."""
    ceiling, best = result.ceiling, result.winner
    if ceiling is None or not ceiling.op_costs or best is None:
        return None
    limits = cost_model.bounds(ceiling, pick.parse_config(best.config))
    paid = {op.name for op in limits.work.paid}
    model = OpCost(name=_MODEL, part="finish", seconds_per_image=ceiling.model_core_seconds_per_image)
    loader = [(op, op.name not in paid) for op in limits.costs.op_costs]
    found = [*loader, (model, False)]
    dearest, is_spared = max(loader, key=lambda each: each[0].wall_seconds_per_image)
    whole, waits = dearest.wall_seconds_per_image, dearest.wait_seconds_per_image
    text = f"The loader spends most on {dearest.name}: {wording.milliseconds(whole)} an image"
    if waits > 0.1 * whole:
        text += f", of which it waits {wording.milliseconds(waits)}"
    if is_spared:
        text += ", and the winner does not pay it again after the first epoch"
    if model.seconds_per_image > 0:
        text += f". The model takes {wording.milliseconds(model.seconds_per_image)} of the cores for itself"
    rows: list[Row] = [
        {
            "name": op.name,
            "core_seconds": op.seconds_per_image,
            "lock_seconds": op.lock_seconds_per_image,
            "native": op.native,
            "wait_seconds": op.wait_seconds_per_image,
            "spared": spared,
        }
        for op, spared in found
    ]
    columns = (
        words_column("an image", "name"),
        Column("processor", lambda row: wording.milliseconds(row["core_seconds"])),
        Column("of it locked", lambda row: wording.locked(row["lock_seconds"], native=row["native"])),
        Column("waiting", lambda row: wording.milliseconds(row["wait_seconds"])),
        Column("", lambda row: "spared by the winner" if row["spared"] else "", numeric=False),
    )
    return Section(
        key="costs",
        title="What does one image cost?",
        text=f"{text}.",
        table=Table(columns, rows),
        picture=_draw_costs(found),
        caption="Milliseconds of one core for one image, each op after the one before; waiting takes no core. "
        "Faded: what the winner does not pay, thanks to a cache, a converted form, or the device.",
    )


def _draw_costs(found: Sequence[tuple[OpCost, bool]]) -> Drawing:
    total = sum(op.wall_seconds_per_image for op, _ in found) or 1e-9
    said = ", ".join(f"{op.name} {wording.milliseconds(op.wall_seconds_per_image)}" for op, _ in found)
    rows = RowChart(f"What one image costs: {said}.", (0.0, 1.03e3 * total), values="-0.888 ms")
    spared = sum(op.wall_seconds_per_image for op, is_spared in found if is_spared)
    rows.legend(
        (True, ("bar", "core", "processor")),
        (any(op.lock_seconds_per_image for op, _ in found), ("bar", "lock", "under Python's lock")),
        (any(op.wait_seconds_per_image for op, _ in found), ("bar", "wait", "waiting")),
        (any(is_spared for _, is_spared in found), ("bar", "core hollow", "faded: spared by the winner")),
        (True, ("bar", "model", "model")),
    )
    begin = 0.0
    for op, is_spared in found:
        if op.name == _MODEL and spared:
            y = rows.row("spared by the winner", f"-{wording.milliseconds(spared)}", "good")
            rows.bar(y, 1e3 * (begin - spared), 1e3 * begin, "spared")
            begin -= spared
            rows.step(y, 1e3 * begin)
        begin = _draw_op(rows, op, begin, spared=is_spared)
    rows.bar(rows.row("in all", wording.milliseconds(begin), "strong"), 0.0, 1e3 * begin, "win")
    return rows.axis(lambda value: f"{value:.10g}", "ms an image")


def _draw_op(rows: RowChart, op: OpCost, begin: float, *, spared: bool) -> float:
    y = rows.row(op.name, wording.milliseconds(op.wall_seconds_per_image), "faint" if spared else "")
    own, lock = "model" if op.name == _MODEL else "core", op.lock_seconds_per_image
    parts = ((own, op.seconds_per_image - lock), ("lock", lock), ("wait", op.wait_seconds_per_image))
    for css, seconds in parts:
        x = rows.scale(1e3 * begin)
        wide = max(0.8, rows.scale(1e3 * (begin + seconds)) - x) if seconds else 0.0
        rows.drawing.rect(x, y - 7.0, wide, 14.0, f"{css} hollow" if spared else css)
        begin += seconds
    rows.step(y, 1e3 * begin)
    return begin
