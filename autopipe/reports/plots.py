"""The pictures of a report as Plotly's JSON, for optuna-dashboard: made of the same rows as the report's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from autopipe.reports import headline, story
from autopipe.reports.figure import Row
from autopipe.tuned import pick
from autopipe.tuned.schema import Profile

Plot: TypeAlias = dict[str, Any]

_WINNER, _PART, _BASELINE, _NARROWEST = "#0b6bb8", "#7fb2d9", "#9aa4b1", "#c8460b"


def figures(profile: Profile) -> dict[str, Plot]:
    """Return each picture that Plotly can draw, by the key of its section."""
    found = {}
    for section in story.sections(profile):
        plot = _PLOTS.get(section.key)
        if plot is not None:
            data, layout = plot(section.table.rows)
            plain = {"title": {"text": section.title}, "yaxis": {"automargin": True}, **layout}
            found[section.key] = {"data": data, "layout": plain}
    return found


def note(profile: Profile) -> str:
    """Return the verdict as Markdown."""
    config = pick.config_of(profile).short()
    return f"**{headline.sentence(profile)}**\n\n{headline.action(profile)}\n\nThe winner: `{config}`\n"


def _bars(rows: Sequence[Row]) -> tuple[list[Plot], Plot]:
    shown = list(reversed(rows))  # Plotly begins at the bottom
    ends = [row["interval"] or [row["images_per_second"]] * 2 for row in shown]
    rates = [row["images_per_second"] for row in shown]
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": rates,
        "y": [row["name"] for row in shown],
        "marker": {"color": [_colour(row) for row in shown]},
        "opacity": 0.9,
        "error_x": _errors(rates, ends),
    }
    return [trace], {"xaxis": {"type": "log", "title": {"text": "images/s"}}}


def _colour(row: Row) -> str:
    if row["narrowest"]:
        return _NARROWEST
    if not row["in_training"]:
        return _BASELINE if row["spared"] else _PART
    return _WINNER if row["name"] == "the winner" else _BASELINE


def _stack(rows: Sequence[Row]) -> tuple[list[Plot], Plot]:
    shown = list(reversed(rows))
    parts: dict[str, Callable[[Row], float]] = {
        "processor": lambda row: row["core_seconds"] - row["lock_seconds"],
        "under Python's lock": lambda row: row["lock_seconds"],
        "waiting": lambda row: row["wait_seconds"],
    }
    names = [f"{row['name']}{' (spared)' if row['spared'] else ''}" for row in shown]
    data = [
        {"type": "bar", "orientation": "h", "name": name, "y": names, "x": [1e3 * part(row) for row in shown]}
        for name, part in parts.items()
    ]
    return data, {"barmode": "stack", "xaxis": {"title": {"text": "ms an image"}}}


def _contests(rows: Sequence[Row]) -> tuple[list[Plot], Plot]:
    ratios = [ratio for row in rows for ratio in row["blocks"]]
    names = [row["name"] for row in rows for _ in row["blocks"]]
    blocks = _scatter("markers", "rounds", ratios, names, marker={"color": _BASELINE})
    return [blocks, _forest(rows, [row["name"] for row in rows])], _RATIOS


def _effects(rows: Sequence[Row]) -> tuple[list[Plot], Plot]:
    return [_forest(rows, [f"{row['setting']}: {row['value']}, not {row['other']}" for row in rows])], _RATIOS


def _forest(rows: Sequence[Row], names: Sequence[str]) -> Plot:
    ratios = [row["ratio"] for row in rows]
    ends = [(row["interval"][0], row["interval"][1] or row["ratio"]) for row in rows]
    marker = {"symbol": "diamond", "size": 10, "color": _WINNER}
    return _scatter("markers", "times faster", ratios, names, marker=marker, error_x=_errors(ratios, ends))


_RATIOS: Plot = {
    "yaxis": {"automargin": True, "autorange": "reversed"},
    "xaxis": {"type": "log", "title": {"text": "times faster"}},
    "shapes": [{"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper"}],
}


def _trials(rows: Sequence[Row]) -> tuple[list[Plot], Plot]:
    data = []
    for origin in dict.fromkeys(row["origin"] for row in rows):
        ran = [row for row in rows if row["origin"] == origin and row["images_per_second"] is not None]
        rates = [row["images_per_second"]["value"] for row in ran]
        ends = [(row["images_per_second"]["low"], row["images_per_second"]["high"]) for row in ran]
        numbers, configs = [row["number"] for row in ran], [row["config"] for row in ran]
        data.append(_scatter("markers", origin, numbers, rates, text=configs, error_y=_errors(rates, ends)))
    return data, {"xaxis": {"title": {"text": "trial"}}, "yaxis": {"title": {"text": "images/s"}}}


def _lines(rows: Sequence[Row]) -> tuple[list[Plot], Plot]:
    epochs = [0, 5, 10, 20, 50, 100]
    data = []
    for row in rows:
        minutes = [(row["once_seconds"] + each * row["epoch_seconds"]) / 60 for each in epochs]
        data.append(_scatter("lines", row["name"], epochs, minutes))
    return data, {"xaxis": {"title": {"text": "epochs"}}, "yaxis": {"title": {"text": "minutes"}}}


def _scatter(mode: str, name: str, x: Sequence[float], y: Sequence[Any], **more: Any) -> Plot:
    return {"type": "scatter", "mode": mode, "name": name, "x": x, "y": y, **more}


def _errors(values: Sequence[float], ends: Sequence[Sequence[float]]) -> Plot:
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, high - value) for value, (_, high) in zip(values, ends, strict=True)],
        "arrayminus": [max(0.0, value - low) for value, (low, _) in zip(values, ends, strict=True)],
    }


_PLOTS: Mapping[str, Callable[[Sequence[Row]], tuple[list[Plot], Plot]]] = {
    "ladder": _bars,
    "costs": _stack,
    "proof": _contests,
    "settings": _effects,
    "history": _trials,
    "payback": _lines,
}
