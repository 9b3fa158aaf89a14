"""Forest plots: ratios with their intervals, on an axis of equal ratios: the confirmation, and settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from autopipe.reports import wording
from autopipe.reports.figure import Column, Row, Rows, Section, Table
from autopipe.reports.svg import Drawing
from autopipe.search.result import Contest, Effect, Result

_WIDEST = 64.0  # times: an end beyond it is an arrow
_MOST_OTHERS = 3  # of one setting are drawn; the table has all
_NO_DIFFERENCE = 1.1  # an interval inside 1 / this to this says that there is none worth having


Line: TypeAlias = Contest | Effect
"""A line of a plot shows one of these."""


def confirmation(result: Result) -> Section | None:
    """Make the section of the confirmation run; None without one."""
    contests = result.contests
    if not contests:
        return None
    most = max(each.pairs for each in contests)
    beaten = [each.baseline for each in contests if each.baseline is not None and each.faster]
    text = f"The best few and the baselines ran by turns, in {wording.count(most, 'round')}"
    if not result.proved:
        text += "; the run was cut off, so nothing is proved"
    elif beaten:
        text += f"; the winner is proved faster than {wording.listed(beaten)}"
    if any(each.few for each in contests):
        text += ". With fewer than three rounds, an interval rests on the trials as well"
    return Section(
        key="proof",
        title="Is it proved?",
        text=f"{text}.",
        table=_contests_table(contests),
        draw=lambda width: draw(contests, width, "How many times faster the winner ran", "the same"),
        caption="How many times faster the winner is than each. Small dots: single rounds. Diamonds with whiskers: all "
        "rounds, with the 95 % interval. Left of the line the winner would be slower.",
    )


def settings(result: Result) -> Section | None:
    """Make the section of the gain of each setting; None if none is known."""
    if not result.effects:
        return None
    shown = _shown(result.effects)
    charged = ""
    if result.epochs is not None:
        charged = f" One-time costs are charged over {wording.count(result.epochs, 'epoch')}."
    text = "No single setting has a measurable effect."
    if shown:
        first, gain = shown[0], wording.times(shown[0].ratio)
        text = f"The largest gain: {first.setting}={first.value}, {gain} of {first.other}."
    folded = _rest(result.effects)
    return Section(
        key="settings",
        title="What does each setting bring?",
        text=text + charged,
        table=_effects_table(result.effects),
        draw=(lambda width: draw(shown, width, "How many times faster the winner's setting is", "no difference"))
        if shown
        else None,
        caption="The winner's rate over that of the same configuration with another value of one setting. Hollow: that "
        "value did not run; trials like it speak for it.",
        more=(f"{len(folded)} without a measurable effect", folded) if folded else None,
    )


def draw(lines: Sequence[Line], width: float, what: str, same: str) -> Drawing:
    """Draw a forest plot."""
    said = ", ".join(f"{_label(each)} {wording.times(each.ratio)}" for each in lines)
    rows = Rows(width, f"{what}: {said}.", _ends(lines), log=True, values="1,000x (999 to 9,999)", labels=250.0)
    for each in lines:
        interval = f"({wording.interval(each.low, each.high)})"
        y = rows.row(_label(each), f"{wording.times(each.ratio)} {interval}")
        _draw(rows, each, y)
    rows.rule(1.0, "same")
    rows.axis(lambda value: f"{value:.10g}x", f"times faster (1x: {same})", 5)
    return rows.finish()


def _draw(rows: Rows, line: Line, y: float) -> None:
    drawing, scale = rows.drawing, rows.scale
    css = "part" if isinstance(line, Contest) and line.baseline is None else "win"
    ends = (max(line.low, scale.first), min(line.high or scale.last, scale.last))
    drawing.line(scale(ends[0]), y, scale(ends[1]), y, f"{css}-line")
    for end, inside, step in (
        (ends[0], line.low >= scale.first, 5.0),
        (ends[1], (line.high or math.inf) <= scale.last, -5.0),
    ):
        x = scale(end)
        if inside:
            drawing.line(x, y - 4.0, x, y + 4.0, f"{css}-line")
        else:
            drawing.polygon([(x, y), (x + step, y - 4.0), (x + step, y + 4.0)], css)
    for block in _blocks(line):
        if scale.first <= block <= scale.last:
            drawing.circle(scale(block), y + 9.0, 2.0, "round")
    hollow = isinstance(line, Effect) and not line.measured
    drawing.diamond(scale(line.ratio), y, f"{css} open" if hollow else css)


def _ends(lines: Sequence[Line]) -> tuple[float, float]:
    """Return both ends of the axis: 1, all ratios and the drawable part of their intervals are on it."""
    ratios = [1.0, *(each.ratio for each in lines)]
    low, high = min(ratios), max(ratios)
    room = max(high / low, 1.25)
    values = [*ratios, *(block for each in lines for block in _blocks(each))]
    values += [end for each in lines for end in (each.low, each.high) if end is not None and end > 0]
    kept = [min(max(each, low / room, 1.0 / _WIDEST), max(high * room, 1.5)) for each in values]
    return min(kept) * 0.94, max(kept) * 1.06


def _label(line: Line) -> str:
    return _name(line) if isinstance(line, Contest) else f"{line.setting}: {line.value}, not {line.other}"


def _name(contest: Contest) -> str:
    return contest.baseline or wording.config(contest.config)


def _blocks(line: Line) -> tuple[float, ...]:
    return line.blocks if isinstance(line, Contest) else ()


# ---------------------------------------------------------------- settings


def _shown(effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects that make a difference: of each setting the measured ones first, largest effect first."""
    kept: dict[str, list[Effect]] = {}
    for each in sorted(effects, key=lambda each: (not each.measured, -abs(math.log(each.ratio)))):
        if each.decided and len(kept.setdefault(each.setting, [])) < _MOST_OTHERS:
            kept[each.setting].append(each)
    return sorted((each for group in kept.values() for each in group), key=lambda each: -each.ratio)


def _rest(effects: Sequence[Effect]) -> list[str]:
    """Return the settings without a measurable effect, first those that surely have none, each with its interval."""
    same, unknown = [], []
    for each in effects:
        if each.decided:
            continue
        said = wording.interval(each.low, each.high)
        if each.low >= 1 / _NO_DIFFERENCE and each.high is not None and each.high <= _NO_DIFFERENCE:
            same.append(f"{_label(each)}: no difference ({said})")
        else:
            unknown.append(f"{_label(each)}: not known ({said})")
    return [*same, *unknown]


# ---------------------------------------------------------------- tables


def _contests_table(contests: Sequence[Contest]) -> Table:
    return Table(
        columns=(
            Column("the winner against", lambda row: row["name"], numeric=False),
            Column("times faster", lambda row: wording.times(row["ratio"])),
            Column("95 % interval", _interval_of_rounds),
            Column("round by round", lambda row: ", ".join(wording.times(each) for each in row["blocks"])),
        ),
        rows=[
            {
                "name": _name(each),
                "baseline": each.baseline is not None,
                "ratio": each.ratio,
                "interval": [each.low, each.high],
                "pairs": each.pairs,
                "few": each.few,
                "blocks": list(each.blocks),
            }
            for each in contests
        ],
    )


def _interval_of_rounds(row: Row) -> str:
    few = f", {wording.count(row['pairs'], 'round')} and the trials" if row["few"] else ""
    return wording.interval(*row["interval"]) + few


def _effects_table(effects: Sequence[Effect]) -> Table:
    return Table(
        columns=(
            Column("setting", lambda row: row["setting"], numeric=False),
            Column("winner's", lambda row: str(row["value"]), numeric=False),
            Column("other", lambda row: str(row["other"]), numeric=False),
            Column("times faster", lambda row: wording.times(row["ratio"])),
            Column("95 % interval", lambda row: wording.interval(*row["interval"])),
            Column("side by side", _paired),
            Column("", lambda row: "" if row["measured"] else "not measured itself", numeric=False),
        ),
        rows=[
            {**each.model_dump(mode="json", exclude={"low", "high"}), "interval": [each.low, each.high]}
            for each in effects
        ],
    )


def _paired(row: Row) -> str:
    if (paired := row["paired"]) is None:
        return ""
    return f"{wording.times(paired['value'])} ({wording.interval(paired['low'], paired['high'])})"
