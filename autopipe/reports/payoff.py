"""Pay-back lines: how long a training takes with each way to keep the samples, by how many epochs it has."""

from __future__ import annotations

from collections.abc import Sequence

from autopipe.core import costs
from autopipe.reports import svg, wording
from autopipe.reports.figure import Column, Row, Section, Table
from autopipe.reports.history import axes
from autopipe.reports.svg import Drawing, Scale
from autopipe.tuned.findings import Findings, Way

_SHADES = ("win", "guess", "part", "other", "base")
_LEAST_ONCE = 0.02  # of an epoch: what costs less once pays at once
_UNITS = ((3600.0 * 2, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))


def section(findings: Findings, samples: int) -> Section | None:
    """Return the pay-back lines as a section; None where there is one way only, or nothing to pay once."""
    ways = findings.ways
    if len(ways) < 2 or samples < 1:
        return None
    epoch = samples / max(each.images_per_second for each in ways)
    if max(each.once_seconds for each in ways) < _LEAST_ONCE * epoch:
        return None
    known = None if findings.asked is None else findings.asked.epochs
    return Section(
        key="payback",
        title="When does it pay to keep samples in another form?",
        text=_text(ways, samples),
        table=_table(ways, samples),
        draw=lambda width: draw(ways, samples, known, width),
        caption="How long a training takes, by its epochs: what is paid once, for converting samples or filling a "
        "cache, and then each epoch at the steady rate of the fastest configuration of each way.",
    )


def _text(ways: Sequence[Way], samples: int) -> str:
    plain = _plain(ways)
    said = (f"{each.name} {wording.pays(_pays(each, plain, samples))}" for each in ways if each is not plain)
    return f"Against {plain.name}: {'; '.join(said)}."


def _plain(ways: Sequence[Way]) -> Way:
    """Return what the others are compared with: nothing kept, or else what costs the least once."""
    return min(ways, key=lambda each: (not each.plain, each.once_seconds))


def _pays(way: Way, plain: Way, samples: int) -> float | None:
    return costs.epochs_to_pay(_core(way), _core(plain), samples)


def _core(way: Way) -> costs.CostProfile:
    return costs.CostProfile(images_per_second=way.images_per_second, once_seconds=way.once_seconds)


def draw(ways: Sequence[Way], samples: int, epochs: int | None, width: float) -> Drawing:
    """Draw the lines; those that end lowest are the best for a training so long."""
    last = float(epochs or _last(ways, samples))
    longest = max(_core(each).seconds(last, samples) for each in ways)
    _, unit, name = next(each for each in _UNITS if longest >= each[0])
    drawing = Drawing(
        width,
        f"{name.capitalize()} of training against epochs, up to {last:g} epochs: {len(ways)} ways to keep samples.",
    )
    top = _legend(drawing, ways) + 14.0
    bottom = top + (190.0 if width < 500 else 230.0)
    left = svg.text_width("1,000", 12.0) + 10.0
    across, up = Scale(0.0, last, left, width - 10.0), Scale(0.0, 1.05 * longest / unit, bottom, top)
    axes(drawing, across, up, ("epochs", name))
    for way, css in zip(ways, _shades(len(ways)), strict=True):
        ends = [(across(at), up(_core(way).seconds(at, samples) / unit)) for at in (0.0, last)]
        drawing.polyline(ends, f"{css}-path")
        drawing.circle(*ends[1], 3.5, css)
    return drawing


def _legend(drawing: Drawing, ways: Sequence[Way]) -> float:
    y = 14.0
    for way, css in zip(ways, _shades(len(ways)), strict=True):
        drawing.line(0.0, y, 16.0, y, f"{css}-line")
        drawing.text(24.0, y + 4.0, svg.fitted(way.name, drawing.width - 24.0, 12.0), "small muted")
        y += 18.0
    return y


def _shades(count: int) -> list[str]:
    return [_SHADES[min(at, len(_SHADES) - 1)] for at in range(count)]


def _last(ways: Sequence[Way], samples: int) -> float:
    """Return how many epochs to draw: some beyond the last crossing, as long as that is a training."""
    plain = _plain(ways)
    crossings = [each for each in (_pays(way, plain, samples) for way in ways) if each]
    return float(min(100, max(10, round(1.8 * max(crossings, default=5.0)))))


def _table(ways: Sequence[Way], samples: int) -> Table:
    plain = _plain(ways)
    rows: list[Row] = [
        {
            **each.model_dump(mode="json"),
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
