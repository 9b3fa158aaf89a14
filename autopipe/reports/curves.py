"""Curves: the search trial by trial, and the duration of a training with each way to keep the samples."""

from __future__ import annotations

from collections.abc import Sequence

from autopipe.artifact import pick
from autopipe.measure import costs as cost_model
from autopipe.measure.facts import Ceiling
from autopipe.pipeline.config import STORAGES
from autopipe.reports import svg, wording
from autopipe.reports.figure import Column, Row, Section, Table, legend, mark
from autopipe.reports.svg import Drawing, Scale
from autopipe.search.result import Origin, Result, Trial, Way

_SHAPES = {
    Origin.BASELINE: ("square", "base", "baseline"),
    Origin.PREDICTION: ("triangle", "guess", "prediction"),
    Origin.SAMPLER: ("dot", "part", "sampler"),
    Origin.PROOF: ("diamond", "win", "confirmation"),
    Origin.OTHER: ("dot", "other", "again"),
}


def history(result: Result) -> Section | None:
    """Make the section of the history; None if no trial is known."""
    trials = result.trials
    if not trials:
        return None
    failed = f", {result.failed} of them failed" if result.failed else ""
    ran = f"{wording.count(len(trials), 'trial')}{failed}, {wording.seconds(result.seconds)} in all."
    left_out = [f"{each.configs:,} configurations: {each.reason}" for each in result.left_out if each.configs]
    left_out += [each.reason for each in result.left_out if not each.configs]
    failures = [f"failed: {wording.config(each.config)}: {why}" for each in trials if (why := _failure(each))]
    folded = [*left_out, *dict.fromkeys(failures)]
    return Section(
        key="history",
        title="How did the search go?",
        text=f"{ran} {result.stop.message}",
        table=_trials_table(trials),
        draw=lambda width: draw_history(trials, result.ceiling, width),
        caption="Each trial by its origin. The stepped line is the best so far, without the confirmation; the "
        "dashed one is the model alone.",
        more=("What was left out, and why", folded) if folded else None,
    )


def draw_history(trials: Sequence[Trial], measured: Ceiling | None, width: float) -> Drawing:
    """Draw the rate of each trial, and the best so far."""
    ceiling = None if measured is None else measured.model_images_per_second.value
    rates = [each.images_per_second.value for each in trials if each.images_per_second is not None]
    best = max(rates, default=0.0)
    drawing = Drawing(width, f"Search history: {len(trials)} trials, the best at {wording.rate(best)} images a second.")
    top = _history_legend(drawing, trials) + 14.0
    bottom = top + (200.0 if width < 500 else 250.0)
    left = svg.text_width("1,000,000", 12.0) + 4.0
    across = Scale(0.0, max(len(trials), 1) + 0.5, left, width - 8.0)
    up = Scale(0.0, 1.14 * max(best, ceiling or 0.0, 1e-9), bottom, top)
    _axes(drawing, across, up, ("trial", "images/s"))
    if ceiling is not None:
        drawing.line(left, up(ceiling), across.end, up(ceiling), "ceiling")
        drawing.text(
            across.end, up(ceiling) - 10.0, f"model alone {wording.rate(ceiling)}", "small ceiling-words", "end"
        )
    _best(drawing, trials, across, up)
    for number, each in enumerate(trials, start=1):
        _trial(drawing, each, across(number), up)
    return drawing


def _axes(drawing: Drawing, across: Scale, up: Scale, names: tuple[str, str]) -> None:
    """Draw two axes, below and at the side, with their names and faint lines across."""
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


def _history_legend(drawing: Drawing, trials: Sequence[Trial]) -> float:
    present = {each.origin for each in trials}
    items = [_SHAPES[origin] for origin in Origin if origin in present]
    if any(each.images_per_second is None for each in trials):
        items.append(("cross", "fail", "failed"))
    return legend(drawing, items, 14.0) + 16.0


def _best(drawing: Drawing, trials: Sequence[Trial], across: Scale, up: Scale) -> None:
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


def _trial(drawing: Drawing, each: Trial, x: float, up: Scale) -> None:
    rate = each.images_per_second
    if rate is None:
        drawing.cross(x, up.begin - 6.0, "fail")
        return
    shape, css, _ = _SHAPES[each.origin]
    drawing.line(x, up(max(0.0, rate.low)), x, up(rate.high), "thin")
    mark(drawing, shape, x, up(rate.value), css)


def _failure(trial: Trial) -> str | None:
    if trial.images_per_second is not None:
        return None
    return "cut off before its end" if trial.failure is None else wording.failed(trial.failure)


def _trials_table(trials: Sequence[Trial]) -> Table:
    rows: list[Row] = [
        {
            "number": number,
            "origin": each.origin.value,
            "config": wording.config(each.config),
            "images_per_second": None if each.images_per_second is None else each.images_per_second.model_dump(),
            "failure": _failure(each),
            "block": each.block,
        }
        for number, each in enumerate(trials, start=1)
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


# ---------------------------------------------------------------- pay-back

_SHADES = ("win", "guess", "part", "other", "base")
_LEAST_ONCE = 0.02  # of an epoch: a lower one-time cost pays at once
_UNITS = ((3600.0 * 2, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))


def payback(result: Result, samples: int) -> Section | None:
    """Make the section of the pay-back lines; None if there is one way only, or no one-time cost."""
    ways = result.ways
    if len(ways) < 2 or samples < 1:
        return None
    epoch = samples / max(each.images_per_second for each in ways)
    if max(each.once_seconds for each in ways) < _LEAST_ONCE * epoch:
        return None
    plain = _plain(ways)
    said = (
        f"{wording.way(each.config)} {wording.pays(_pays(each, plain, samples))}" for each in ways if each is not plain
    )
    return Section(
        key="payback",
        title="When does it pay to keep samples in another form?",
        text=f"Against {wording.way(plain.config)}: {'; '.join(said)}.",
        table=_ways_table(ways, samples),
        draw=lambda width: draw_payback(ways, samples, result.epochs, width),
        caption="How long a training takes, by its epochs: what is paid once, for converting samples or filling a "
        "cache, and then each epoch at the steady rate of the fastest configuration of each way.",
    )


def _plain(ways: Sequence[Way]) -> Way:
    """Return the way that the others are compared with: nothing kept, or else the least one-time cost."""

    def keeps(way: Way) -> bool:
        found = next(pick.readable([way.config]), None)
        return found is None or found.cache != "none" or STORAGES[found.storage].converts

    return min(ways, key=lambda each: (keeps(each), each.once_seconds))


def _pays(way: Way, plain: Way, samples: int) -> float | None:
    return cost_model.epochs_to_pay(_cost(way), _cost(plain), samples)


def _cost(way: Way) -> cost_model.CostProfile:
    return cost_model.CostProfile(images_per_second=way.images_per_second, once_seconds=way.once_seconds)


def draw_payback(ways: Sequence[Way], samples: int, epochs: int | None, width: float) -> Drawing:
    """Draw the lines; those that end lowest are the best for a training of this length."""
    last = float(epochs or _last(ways, samples))
    longest = max(_cost(each).seconds(last, samples) for each in ways)
    _, unit, name = next(each for each in _UNITS if longest >= each[0])
    drawing = Drawing(
        width,
        f"{name.capitalize()} of training against epochs, up to {last:g} epochs: {len(ways)} ways to keep samples.",
    )
    top = _ways_legend(drawing, ways) + 14.0
    bottom = top + (190.0 if width < 500 else 230.0)
    left = svg.text_width("1,000", 12.0) + 10.0
    across, up = Scale(0.0, last, left, width - 10.0), Scale(0.0, 1.05 * longest / unit, bottom, top)
    _axes(drawing, across, up, ("epochs", name))
    for way, css in zip(ways, _shades(len(ways)), strict=True):
        ends = [(across(at), up(_cost(way).seconds(at, samples) / unit)) for at in (0.0, last)]
        drawing.polyline(ends, f"{css}-path")
        drawing.circle(*ends[1], 3.5, css)
    return drawing


def _ways_legend(drawing: Drawing, ways: Sequence[Way]) -> float:
    y = 14.0
    for way, css in zip(ways, _shades(len(ways)), strict=True):
        drawing.line(0.0, y, 16.0, y, f"{css}-line")
        drawing.text(24.0, y + 4.0, svg.fitted(wording.way(way.config), drawing.width - 24.0, 12.0), "small muted")
        y += 18.0
    return y


def _shades(count: int) -> list[str]:
    return [_SHADES[min(at, len(_SHADES) - 1)] for at in range(count)]


def _last(ways: Sequence[Way], samples: int) -> float:
    """Return the number of epochs to draw: some beyond the last crossing, within the length of a training."""
    plain = _plain(ways)
    crossings = [each for each in (_pays(way, plain, samples) for way in ways) if each]
    return float(min(100, max(10, round(1.8 * max(crossings, default=5.0)))))


def _ways_table(ways: Sequence[Way], samples: int) -> Table:
    plain = _plain(ways)
    rows: list[Row] = [
        {
            "name": wording.way(each.config),
            "config": wording.config(each.config),
            "images_per_second": each.images_per_second,
            "once_seconds": each.once_seconds,
            "epoch_seconds": samples / each.images_per_second,
            "epochs_to_pay": None if each is plain else _pays(each, plain, samples),
            "plain": each is plain,
        }
        for each in ways
    ]
    return Table(
        columns=(
            Column("samples kept as", lambda row: row["name"], numeric=False),
            Column("images/s", lambda row: wording.rate(row["images_per_second"])),
            Column("paid once", lambda row: wording.seconds(row["once_seconds"])),
            Column("an epoch", lambda row: wording.seconds(row["epoch_seconds"])),
            Column("pays after", _after),
        ),
        rows=rows,
    )


def _after(row: Row) -> str:
    if row["plain"]:
        return ""
    epochs = row["epochs_to_pay"]
    return "never" if epochs is None else f"{epochs:.1f} epochs"
