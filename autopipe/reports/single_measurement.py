"""One measurement as text: the rate, what it is a share of, what it cost, and what to know before believing it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autopipe.core import bottleneck as core_bottleneck
from autopipe.core import costs as cost_model
from autopipe.core.config import PipelineConfig
from autopipe.core.costs import Costs
from autopipe.core.facts import Ceiling
from autopipe.core.outcome import Measurement
from autopipe.devices.simulated import SimulatedAccelerator
from autopipe.reports import labelled, wording


def render(
    measurement: Measurement,
    config: PipelineConfig,
    ceiling: Ceiling,
    simulated: SimulatedAccelerator | None = None,
) -> RenderableType:
    """Return what `autopipe measure` prints; `simulated` is what stood in the model's place, if any."""
    rate = measurement.images_per_second
    limit = cost_model.bounds(ceiling, config)
    bottleneck = core_bottleneck.bottleneck(limit, rate.value)
    table = labelled.table()
    table.add_row("config", config.short())
    table.add_row(
        "images/s",
        f"{wording.rates(rate)}, {len(measurement.windows)} windows{'' if measurement.stable else ', unsteady'}",
    )
    table.add_row("model alone", f"{wording.rate(limit.model_images_per_second)} images/s")
    share = min(1.0, rate.value / limit.images_per_second)
    table.add_row("share of bound", f"{share:.0%} of {wording.rate(limit.images_per_second)} images/s")
    table.add_row("bottleneck", bottleneck.sentence)
    if simulated is not None:
        share = simulated.utilisation(rate.value, measurement.batch_size)
        table.add_row("AU", f"{share:.1%} of the time the simulated accelerator computes")
    table.add_row("waiting for data", f"{measurement.data_wait_share:.1%} of the time")
    table.add_row("first batch", f"{measurement.first_batch_seconds:.3f} s after opening")
    if measurement.cache_fill_seconds is not None:
        table.add_row("cache fill", f"{measurement.cache_fill_seconds:.1f} s for all samples, once")
    if elsewhere := wording.elsewhere(measurement, config, limit):
        table.add_row("elsewhere", elsewhere)
    table.add_row("resources", wording.resources(measurement.resources))
    table.add_row("page cache", measurement.page_cache)
    ran = measurement.ran
    table.add_row(
        "ran", f"{ran.threads} threads, {ran.processes} processes on {', '.join(ran.devices)} ({ran.backend})"
    )
    differ = config.loader.pixels_differ()
    for warning in (*measurement.warnings, *([] if differ is None else [differ])):
        table.add_row(Text("note", style="bold yellow"), warning)
    return Group(table, Text(), _costs(limit.costs.of_workers(config))) if ceiling.op_costs else table


def _costs(costs: Costs) -> Table:
    """Return what an image costs these workers, op by op, and the model's share of the cores."""
    whole = sum(op.wall_seconds_per_image for op in costs.ops) or 1.0
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("an image costs", no_wrap=True)
    for column in ("wall", "core", "of it locked", "share"):
        table.add_column(column, justify="right", no_wrap=True)
    for op in costs.ops:
        figures = (op.wall_seconds_per_image, op.seconds_per_image, op.lock_seconds_per_image)
        share = op.wall_seconds_per_image / whole
        table.add_row(op.name, *map(wording.milliseconds, figures), f"{share:.0%}")
    table.add_row("the model", "", wording.milliseconds(costs.model_core_seconds), "", "")
    return table
