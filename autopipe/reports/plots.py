"""The sections about the search: its history, its confirmation run, the gain of each setting, and when forms pay.

Ratios are forest plots, on an axis on which equal ratios have equal distances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from autopipe.artifact import pick
from autopipe.measure.costs import epochs_to_pay
from autopipe.measure.facts import Ceiling
from autopipe.reports import drawing, wording
from autopipe.reports.drawing import Drawing, RowChart, Scale
from autopipe.reports.page import Column, Row, Section, Table, words_column
from autopipe.search.result import Asker, Contest, Effect, Result, Trial, Way
from autopipe.values import listed, span_text

_RACE = ("triangle", "guess", "race")
_SHAPES = {
    Asker.BASELINE: ("square", "base", "baseline"),
    **dict.fromkeys((Asker.RACE, Asker.KNOWN, Asker.ADVICE), _RACE),
    Asker.SAMPLER: ("dot", "part", "sampler"),
    Asker.PROOF: ("diamond", "win", "confirmation"),
}


def history(result: Result) -> Section | None:
    """Make the section of the history; None if no trial is known."""
    trials = result.trials
    if not trials:
        return None
    ran = f"{wording.trials(result)}, {wording.seconds(result.seconds)} in all."
    left_out = [f"{configs:,} configurations: {reason}" for reason, configs in result.left_out.items() if configs]
    left_out += [reason for reason, configs in result.left_out.items() if not configs]
    rows: list[Row] = [
        {
            "number": number,
            "origin": _SHAPES[each.origin][2],
            "config": wording.config(each.config),
            "images_per_second": None if each.images_per_second is None else each.images_per_second.model_dump(),
            "failure": _failure(each),
            "block": each.block,
        }
        for number, each in enumerate(trials, start=1)
    ]
    failures = (f"{row['config']}: {row['failure']}" for row in rows if row["failure"] is not None)
    folded = [*left_out, *dict.fromkeys(failures)]
    columns = (
        Column("", lambda row: str(row["number"])),
        words_column("by", "origin"),
        words_column("configuration", "config"),
        Column("images/s", lambda row: wording.rate(rate["value"]) if (rate := row["images_per_second"]) else "none"),
        Column(
            "95 % interval", lambda row: span_text(of["low"], of["high"]) if (of := row["images_per_second"]) else ""
        ),
    )
    return Section(
        key="history",
        title="How did the search go?",
        text=f"{ran} {result.stop.message}",
        table=Table(columns, rows),
        picture=draw_history(trials, result.ceiling),
        caption="Each trial by its origin. The stepped line is the best so far, without the confirmation; the "
        "dashed one is the model alone.",
        more=("What was left out, and why", folded) if folded else None,
    )


def draw_history(trials: Sequence[Trial], measured: Ceiling | None) -> Drawing:
    """Draw the rate of each trial, and the best so far."""
    ceiling = None if measured is None else measured.model_images_per_second.value
    best = max((each.images_per_second.value for each in trials if each.images_per_second is not None), default=0.0)
    drawn = Drawing(f"Search history: {len(trials)} trials, the best at {wording.rate(best)} images a second.")
    asked = {each.origin for each in trials}
    items = list(dict.fromkeys(shape for asker, shape in _SHAPES.items() if asker in asked))
    if any(each.images_per_second is None for each in trials):
        items.append(("cross", "fail", "no rate"))
    top = drawn.legend(items, 14.0) + 30.0
    bottom = top + 250.0
    left = drawing.text_width("1,000,000", 12.0) + 4.0
    across = Scale(0.0, max(len(trials), 1) + 0.5, left, drawn.width - 8.0)
    up = Scale(0.0, 1.14 * max(best, ceiling or 0.0, 1e-9), bottom, top)
    drawn.axes(across, up, ("trial", "images/s"))
    if ceiling is not None:
        said = f"model alone {wording.rate(ceiling)}"
        drawn.line(left, up(ceiling), across.end, up(ceiling), "ceiling")
        drawn.text(across.end, up(ceiling) - 10.0, said, "small ceiling-words", "end")
    steps, so_far, last = list[tuple[float, float]](), 0.0, 0.0  # of the best until then
    for number, each in enumerate(trials, start=1):
        if each.images_per_second is None or each.origin is Asker.PROOF:
            continue
        last = across(number)
        if each.images_per_second.value > so_far:
            steps += [(last, up(so_far))] if steps else []
            so_far = each.images_per_second.value
            steps.append((last, up(so_far)))
    if steps:
        drawn.path([*steps, (last, up(so_far))], "best")
    for number, each in enumerate(trials, start=1):
        if (rate := each.images_per_second) is None:
            drawn.mark("cross", across(number), up.begin - 6.0, "fail")
            continue
        shape, css, _ = _SHAPES[each.origin]
        drawn.line(across(number), up(max(0.0, rate.low)), across(number), up(rate.high), "thin")
        drawn.mark(shape, across(number), up(rate.value), css)
    return drawn


def _failure(trial: Trial) -> str | None:
    if trial.images_per_second is not None:
        return None
    return "cut off before its end" if trial.failure is None else wording.failed(trial.failure)


# -------------------- forest plots

_WIDEST = 64.0  # times: an end beyond it is an arrow
_MOST_OTHERS = 3  # of one setting are drawn; the table has all
_NO_DIFFERENCE = 1.1  # an interval inside 1 / this to this says that there is none worth having

Line: TypeAlias = Contest | Effect  # a line of a plot shows one of these


def confirmation(result: Result) -> Section | None:
    """Make the section of the confirmation run; None without one."""
    contests = result.contests
    if not contests:
        return None
    beaten = [each.baseline for each in contests if each.baseline is not None and each.faster and not each.few]
    rounds = wording.count(max(each.pairs for each in contests), "round")
    text = f"The best few and the baselines ran by turns, in {rounds}"
    if result.interrupted:
        text += "; the run was cut off, so nothing is proved"
    elif beaten:
        text += f"; the winner is proved faster than {listed(beaten)}"
    if any(each.few for each in contests):
        text += ". Fewer than three rounds prove nothing: their interval rests on the trials as well"
    rows: list[Row] = [
        {
            "name": _label(each),
            "baseline": each.baseline is not None,
            "ratio": each.ratio,
            "interval": [each.low, each.high],
            "pairs": each.pairs,
            "few": each.few,
            "blocks": list(each.blocks),
        }
        for each in contests
    ]
    columns = (
        words_column("the winner against", "name"),
        Column("times faster", lambda row: wording.times(row["ratio"])),
        Column(
            "95 % interval",
            lambda row: (
                wording.interval(*row["interval"])
                + (f", likely by {wording.count(row['pairs'], 'round')}" if row["few"] else "")
            ),
        ),
        Column("round by round", lambda row: ", ".join(map(wording.times, row["blocks"]))),
    )
    return Section(
        key="proof",
        title="Is it proved?",
        text=f"{text}.",
        table=Table(columns, rows),
        picture=_draw_forest(contests, "How many times faster the winner ran", "the same"),
        caption="How many times faster the winner is than each. Small dots: single rounds. Diamonds with whiskers: all "
        "rounds, with the 95 % interval. Left of the line the winner would be slower.",
    )


def settings(result: Result) -> Section | None:
    """Make the section of the gain of each setting; None if none is known."""
    if not result.effects:
        return None
    kept: dict[str, list[Effect]] = {}  # of each setting the largest effects
    for each in sorted(result.effects, key=lambda each: -abs(math.log(each.ratio))):
        if each.decided and len(kept.setdefault(each.setting, [])) < _MOST_OTHERS:
            kept[each.setting].append(each)
    shown = sorted((each for group in kept.values() for each in group), key=lambda each: -each.ratio)
    text = "No single setting has a measurable effect."
    if shown:
        first, gain = shown[0], wording.times(shown[0].ratio)
        text = f"The largest gain: {first.setting}={first.value} instead of {first.other}, {gain}."
    if result.epochs is not None:
        text += f" One-time costs are spread over {wording.count(result.epochs, 'epoch')}."
    folded = _rest(result.effects)
    columns = (
        words_column("setting", "setting"),
        words_column("winner's", "value"),
        words_column("other", "other"),
        Column("times faster", lambda row: wording.times(row["ratio"])),
        Column("95 % interval", lambda row: wording.interval(*row["interval"])),
        Column("side by side", _paired),
    )
    rows: list[Row] = [
        {**each.model_dump(mode="json", exclude={"low", "high"}), "interval": [each.low, each.high]}
        for each in result.effects
    ]
    what = "How many times faster the winner's setting is"
    return Section(
        key="settings",
        title="What does each setting bring?",
        text=text,
        table=Table(columns, rows),
        picture=_draw_forest(shown, what, "no difference") if shown else None,
        caption="The winner's rate over that of the same configuration with another value of one setting.",
        more=(f"{len(folded)} without a measurable effect", folded) if folded else None,
    )


def _rest(effects: Sequence[Effect]) -> list[str]:
    same, unknown = list[str](), list[str]()
    for each in (each for each in effects if not each.decided):
        said = wording.interval(each.low, each.high)
        if each.low >= 1 / _NO_DIFFERENCE and each.high is not None and each.high <= _NO_DIFFERENCE:
            same.append(f"{_label(each)}: no difference ({said})")
        else:
            unknown.append(f"{_label(each)}: " + (said if said == "not known" else f"not known ({said})"))
    return same + unknown


def _paired(row: Row) -> str:
    if (paired := row["paired"]) is None:
        return ""
    return f"{wording.times(paired['value'])} ({wording.interval(paired['low'], paired['high'])})"


def _draw_forest(lines: Sequence[Line], what: str, same: str) -> Drawing:
    said = ", ".join(f"{_label(each)} {wording.times(each.ratio)}" for each in lines)
    rows = RowChart(f"{what}: {said}.", _ends(lines), log=True, values="1,000x (999 to 9,999)", labels=250.0)
    for each in lines:
        interval = f"({wording.interval(each.low, each.high)})"
        _draw_line(rows, each, rows.row(_label(each), f"{wording.times(each.ratio)} {interval}"))
    rows.rule(1.0, "same")
    return rows.axis(lambda value: f"{value:.10g}x", f"times faster (1x: {same})", 5)


def _draw_line(rows: RowChart, line: Line, y: float) -> None:
    drawn, scale = rows.drawing, rows.scale
    css = "part" if isinstance(line, Contest) and line.baseline is None else "win"
    low, high = line.low, line.high or math.inf
    drawn.line(scale(low), y, scale(high), y, f"{css}-line")
    for end, inside, step in ((low, low >= scale.first, 5.0), (high, high <= scale.last, -5.0)):
        x = scale(end)
        if inside:
            drawn.line(x, y - 4.0, x, y + 4.0, f"{css}-line")
        else:
            drawn.path([(x, y), (x + step, y - 4.0), (x + step, y + 4.0)], css, closed=True)
    for block in _blocks(line):
        if scale.first <= block <= scale.last:
            drawn.mark("point", scale(block), y + 9.0, "round")
    drawn.mark("diamond", scale(line.ratio), y, css)


def _ends(lines: Sequence[Line]) -> tuple[float, float]:
    ratios = [1.0, *(each.ratio for each in lines)]
    low, high = min(ratios), max(ratios)
    room = max(high / low, 1.25)
    values = [*ratios, *(block for each in lines for block in _blocks(each))]
    values += [end for each in lines for end in (each.low, each.high) if end is not None and end > 0]
    kept = [min(max(each, low / room, 1.0 / _WIDEST), max(high * room, 1.5)) for each in values]
    return min(kept) * 0.94, max(kept) * 1.06


def _label(line: Line) -> str:
    if isinstance(line, Contest):
        return line.baseline or wording.config(line.config)
    return f"{line.setting}: {line.value} instead of {line.other}"


def _blocks(line: Line) -> tuple[float, ...]:
    return line.blocks if isinstance(line, Contest) else ()


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
    usual = [each for each in ways if any(config.keep == "none" for config in pick.readable([each.config]))]
    plain = min(usual or ways, key=lambda each: each.once_seconds)  # nothing kept, or the least one-time cost
    pays = [None if each is plain else epochs_to_pay(each, plain, samples) for each in ways]
    rows: list[Row] = [
        {
            "name": wording.way(each.config),
            "config": wording.config(each.config),
            "images_per_second": each.images_per_second,
            "once_seconds": each.once_seconds,
            "epoch_seconds": samples / each.images_per_second,
            "epochs_to_pay": epochs,
            "plain": each is plain,
        }
        for each, epochs in zip(ways, pays, strict=True)
    ]

    def after(row: Row) -> str:
        epochs = row["epochs_to_pay"]
        return "" if row["plain"] else "never" if epochs is None else f"{wording.epochs_number(epochs)} epochs"

    columns = (
        words_column("samples kept as", "name"),
        Column("images/s", lambda row: wording.rate(row["images_per_second"])),
        Column("paid once", lambda row: wording.seconds(row["once_seconds"])),
        Column("an epoch", lambda row: wording.seconds(row["epoch_seconds"])),
        Column("pays after", after),
    )
    said = [f"{row['name']} {wording.pays(row['epochs_to_pay'])}" for row in rows if not row["plain"]]
    epochs = float(result.epochs or min(100, max(10, round(1.8 * max(filter(None, pays), default=5.0)))))
    return Section(
        key="payback",
        title="When does it pay to keep samples in another form?",
        text=f"Against {wording.way(plain.config)}: {'; '.join(said)}.",
        table=Table(columns, rows),
        picture=_draw_payback(ways, samples, epochs),
        caption="How long a training takes, by its epochs: what is paid once, for converting samples or filling a "
        "cache, and then each epoch at the steady rate of the fastest configuration of each way.",
    )


def _draw_payback(ways: Sequence[Way], samples: int, epochs: float) -> Drawing:
    longest = max(each.seconds(epochs, samples) for each in ways)
    _, unit, name = next(each for each in _UNITS if longest >= each[0])
    what = f"{name.capitalize()} of training against epochs, up to {epochs:g} epochs: {len(ways)} ways to keep samples."
    drawn, top = Drawing(what), 28.0
    shades = [_SHADES[min(at, len(_SHADES) - 1)] for at in range(len(ways))]
    for way, css in zip(ways, shades, strict=True):
        drawn.line(0.0, top - 14.0, 16.0, top - 14.0, f"{css}-line")
        drawn.text(24.0, top - 10.0, drawing.fitted(wording.way(way.config), drawn.width - 24.0, 12.0), "small muted")
        top += 18.0
    left, bottom = drawing.text_width("1,000", 12.0) + 10.0, top + 230.0
    across, up = Scale(0.0, epochs, left, drawn.width - 10.0), Scale(0.0, 1.05 * longest / unit, bottom, top)
    drawn.axes(across, up, ("epochs", name))
    for way, css in zip(ways, shades, strict=True):
        ends = [(across(at), up(way.seconds(at, samples) / unit)) for at in (0.0, epochs)]
        drawn.path(ends, f"{css}-path")
        drawn.mark("end", *ends[1], css)
    return drawn
