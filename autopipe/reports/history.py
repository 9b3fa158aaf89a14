"""The search, trial by trial: who asked for it, what came of it, and how far that is from the ceiling."""

from __future__ import annotations

from collections.abc import Sequence

from autopipe.reports import svg, wording
from autopipe.reports.figure import Column, Row, Section, Table, legend, mark
from autopipe.reports.svg import Drawing, Scale
from autopipe.tuned.findings import Attempt, Findings, Origin

_SHAPES = {
    Origin.BASELINE: ("square", "base", "baseline"),
    Origin.PREDICTION: ("triangle", "guess", "prediction"),
    Origin.SAMPLER: ("dot", "part", "sampler"),
    Origin.PROOF: ("diamond", "win", "confirmation"),
    Origin.OTHER: ("dot", "other", "again"),
}


def section(findings: Findings) -> Section | None:
    """Return the history as a section; None where no trial is known."""
    if not findings.trials:
        return None
    trials = len(findings.trials)
    failed = f", {findings.failed} of them failed" if findings.failed else ""
    text = f"{wording.count(trials, 'trial')}{failed}, {wording.seconds(findings.seconds)} in all. {findings.stopped}"
    left_out = [f"{each.configs:,} configurations: {each.reason}" for each in findings.left_out if each.configs]
    left_out += [each.reason for each in findings.left_out if not each.configs]
    failures = [f"failed: {each.config}: {each.failure}" for each in findings.trials if each.failure]
    folded = [*left_out, *dict.fromkeys(failures)]
    return Section(
        key="history",
        title="How did the search go?",
        text=text,
        table=_table(findings.trials),
        draw=lambda width: draw(findings, width),
        caption="Each trial by who asked for it. The stepped line is the best so far, confirmation left out; the "
        "dashed one is what the model takes alone.",
        more=("What was left out, and why", folded) if folded else None,
    )


def draw(findings: Findings, width: float) -> Drawing:
    """Draw the history."""
    trials = findings.trials
    ceiling = None if findings.ceiling is None else findings.ceiling.model_images_per_second.value
    rates = [each.images_per_second.value for each in trials if each.images_per_second is not None]
    best = max(rates, default=0.0)
    drawing = Drawing(width, f"Search history: {len(trials)} trials, the best at {wording.rate(best)} images a second.")
    top = _legend(drawing, findings) + 14.0
    bottom = top + (200.0 if width < 500 else 250.0)
    left = svg.text_width("1,000,000", 12.0) + 4.0
    across = Scale(0.0, max(len(trials), 1) + 0.5, left, width - 8.0)
    up = Scale(0.0, 1.14 * max(best, ceiling or 0.0, 1e-9), bottom, top)
    axes(drawing, across, up, ("trial", "images/s"))
    if ceiling is not None:
        drawing.line(left, up(ceiling), across.end, up(ceiling), "ceiling")
        drawing.text(
            across.end, up(ceiling) - 10.0, f"model alone {wording.rate(ceiling)}", "small ceiling-words", "end"
        )
    _best(drawing, trials, across, up)
    for number, each in enumerate(trials, start=1):
        _trial(drawing, each, across(number), up)
    return drawing


def axes(drawing: Drawing, across: Scale, up: Scale, names: tuple[str, str]) -> None:
    """Draw the axes of a picture with two of them, below and beside it, with their names and faint lines across."""
    for tick in up.ticks(5):
        drawing.behind(across.begin, up(tick), across.end, up(tick), "grid")
        drawing.text(across.begin - 6.0, up(tick) + 4.0, f"{tick:,.10g}", "small muted", "end")
    for tick in across.ticks(6 if drawing.width < 500 else 10):
        if tick == int(tick):
            drawing.text(across(tick), up.begin + 17.0, f"{tick:,.0f}", "small muted", "middle")
    drawing.line(across.begin, up.begin, across.end, up.begin, "axis")
    drawing.text(across.end, up.begin + 32.0, names[0], "small muted", "end")
    drawing.text(0.0, up.end - 6.0, names[1], "small muted")
    drawing.height = up.begin + 38.0


def _legend(drawing: Drawing, findings: Findings) -> float:
    present = {each.origin for each in findings.trials}
    items = [_SHAPES[origin] for origin in Origin if origin in present]
    if findings.failed:
        items.append(("cross", "fail", "failed"))
    return legend(drawing, items, 14.0) + 16.0


def _best(drawing: Drawing, trials: Sequence[Attempt], across: Scale, up: Scale) -> None:
    points: list[tuple[float, float]] = []
    best, last = 0.0, 0
    for number, each in enumerate(trials, start=1):
        rate = each.images_per_second
        if each.origin is Origin.PROOF or rate is None:
            continue
        last = number
        if rate.value > best:
            if points:
                points.append((across(number), up(best)))
            best = rate.value
            points.append((across(number), up(best)))
    if points:
        drawing.polyline([*points, (across(last), up(best))], "best")


def _trial(drawing: Drawing, each: Attempt, x: float, up: Scale) -> None:
    rate = each.images_per_second
    if rate is None:
        drawing.cross(x, up.begin - 6.0, "fail")
        return
    shape, css, _ = _SHAPES[each.origin]
    drawing.line(x, up(max(0.0, rate.low)), x, up(rate.high), "thin")
    mark(drawing, shape, x, up(rate.value), css)


def _table(trials: Sequence[Attempt]) -> Table:
    rows: list[Row] = [
        {"number": number, **each.model_dump(mode="json")} for number, each in enumerate(trials, start=1)
    ]
    return Table(
        columns=(
            Column("", lambda row: str(row["number"])),
            Column("by", lambda row: row["origin"], numeric=False),
            Column("configuration", lambda row: row["config"], numeric=False),
            Column("images/s", _rate),
            Column("95 % interval", _interval),
        ),
        rows=rows,
    )


def _rate(row: Row) -> str:
    rate = row["images_per_second"]
    return "failed" if rate is None else wording.rate(rate["value"])


def _interval(row: Row) -> str:
    rate = row["images_per_second"]
    return "" if rate is None else wording.span(rate["low"], rate["high"])
