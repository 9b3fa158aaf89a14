"""What one image costs, op by op: processor time, the part of it under Python's lock, and waiting, told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from autopipe.core import costs as cost_model
from autopipe.reports import wording
from autopipe.reports.figure import Column, Rows, Section, Table
from autopipe.reports.svg import Drawing
from autopipe.tuned import pick
from autopipe.tuned.schema import Profile

_MODEL = "the model's own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the waterfall, in seconds an image."""

    name: str  # an op, or the model
    core_seconds: float  # processor time
    lock_seconds: float = 0.0  # the part of it under Python's lock
    wait_seconds: float = 0.0  # waiting
    spared: bool = False  # whether the winner does without it

    @property
    def whole(self) -> float:
        """All of it."""
        return self.core_seconds + self.wait_seconds


def steps(profile: Profile) -> list[Step]:
    """Return what an image costs: each op, then the model; nothing where ops were not measured."""
    ceiling = profile.findings.ceiling
    if ceiling is None or not ceiling.op_costs:
        return []
    config = pick.config_of(profile)
    limits = cost_model.bounds(ceiling, config)
    paid = {op.name for op in limits.work.paid}
    found = [
        Step(
            name=op.name,
            core_seconds=op.seconds_per_image,
            lock_seconds=min(op.lock_seconds_per_image, op.seconds_per_image),
            wait_seconds=op.wait_seconds_per_image,
            spared=op.name not in paid,
        )
        for op in limits.costs.of_workers(config).ops
    ]
    return [*found, Step(name=_MODEL, core_seconds=ceiling.model_core_seconds_per_image)]


def section(profile: Profile) -> Section | None:
    """Return the waterfall as a section; None where ops were not measured."""
    found = steps(profile)
    if not found:
        return None
    *loader, model = found
    dearest = max(loader, key=lambda each: each.whole)
    text = f"The dearest of the loader's work is {dearest.name}: {wording.milliseconds(dearest.whole)} an image"
    if dearest.wait_seconds > 0.1 * dearest.whole:
        text += f", of which it waits {wording.milliseconds(dearest.wait_seconds)}"
    if dearest.spared:
        text += ", and the winner does not pay it again after the first epoch"
    if model.core_seconds > 0:
        text += f". The model takes {wording.milliseconds(model.core_seconds)} of the cores for itself"
    return Section(
        key="costs",
        title="What does one image cost?",
        text=f"{text}.",
        table=_table(found),
        draw=lambda width: draw(found, width),
        caption="Milliseconds of one core for one image, each op after the one before; waiting takes no core. "
        "Faded: what the winner does not pay, thanks to a cache, a converted form, or the device.",
    )


def draw(found: Sequence[Step], width: float) -> Drawing:
    """Draw the waterfall."""
    total = sum(each.whole for each in found) or 1e-9
    said = ", ".join(f"{each.name} {wording.milliseconds(each.whole)}" for each in found)
    rows = Rows(width, f"What one image costs: {said}.", (0.0, 1.03e3 * total), values="-0.888 ms")
    items = [("bar", "core", "processor")]
    items += [("bar", "lock", "under Python's lock")] if any(each.lock_seconds for each in found) else []
    items += [("bar", "wait", "waiting")] if any(each.wait_seconds for each in found) else []
    items += [("bar", "core hollow", "faded: spared by the winner")] if any(each.spared for each in found) else []
    rows.legend([*items, ("bar", "model", "model")])
    begin = spared = 0.0
    for step in found:
        if step.name == _MODEL and spared:
            begin = _back(rows, begin, spared)
        begin = _step(rows, step, begin)
        spared += step.whole if step.spared else 0.0
    end = rows.row("in all", wording.milliseconds(begin), "strong")
    rows.drawing.rect(rows.scale(0.0), end - 7.0, rows.scale(1e3 * begin) - rows.scale(0.0), 14.0, "win")
    rows.axis(lambda value: f"{value:.10g}", "ms an image")
    return rows.finish()


def _step(rows: Rows, step: Step, begin: float) -> float:
    drawing, scale = rows.drawing, rows.scale
    y = rows.row(step.name, wording.milliseconds(step.whole), "faint" if step.spared else "")
    own = "model" if step.name == _MODEL else "core"
    free = step.core_seconds - step.lock_seconds
    for css, seconds in ((own, free), ("lock", step.lock_seconds), ("wait", step.wait_seconds)):
        x = scale(1e3 * begin)
        wide = max(0.8, scale(1e3 * (begin + seconds)) - x) if seconds else 0.0
        drawing.rect(x, y - 7.0, wide, 14.0, f"{css} hollow" if step.spared else css)
        begin += seconds
    drawing.line(scale(1e3 * begin), y + 7.0, scale(1e3 * begin), y + (21.0 if not rows.stacked else 39.0), "step")
    return begin


def _back(rows: Rows, begin: float, spared: float) -> float:
    y = rows.row("spared by the winner", f"-{wording.milliseconds(spared)}", "good")
    x, end = rows.scale(1e3 * (begin - spared)), rows.scale(1e3 * begin)
    rows.drawing.rect(x, y - 7.0, end - x, 14.0, "spared")
    rows.drawing.line(x, y + 7.0, x, y + (21.0 if not rows.stacked else 39.0), "step")
    return begin - spared


def _table(found: Sequence[Step]) -> Table:
    return Table(
        columns=(
            Column("an image", lambda row: row["name"], numeric=False),
            Column("processor", lambda row: wording.milliseconds(row["core_seconds"])),
            Column("of it locked", lambda row: wording.milliseconds(row["lock_seconds"])),
            Column("waiting", lambda row: wording.milliseconds(row["wait_seconds"])),
            Column("", lambda row: "spared by the winner" if row["spared"] else "", numeric=False),
        ),
        rows=[asdict(each) for each in found],
    )
