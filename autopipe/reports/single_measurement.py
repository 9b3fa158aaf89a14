"""One measurement as text: the rate, what it is a share of, what it cost, and what to know before believing it."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from autopipe.core import bottleneck as core_bottleneck
from autopipe.core import limits as core_limits
from autopipe.core.ceiling import Ceiling, OpCost
from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import Measurement, Resources
from autopipe.devices.simulated import SimulatedAccelerator
from autopipe.hardware.memory import size_text
from autopipe.reports import wording


def render(
    measurement: Measurement,
    config: PipelineConfig,
    ceiling: Ceiling,
    simulated: SimulatedAccelerator | None = None,
) -> Table:
    """Return the table that `autopipe measure` prints; `simulated` is what stood in the model's place, if any."""
    rate = measurement.images_per_second
    limit = core_limits.limits(ceiling, config)
    bottleneck = core_bottleneck.bottleneck(limit, rate.value)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("config", wording.short(config.normalised()))
    table.add_row(
        "images/s",
        f"{_figure(rate.value)} ({_figure(rate.low)} to {_figure(rate.high)}), {len(measurement.windows)} windows",
    )
    table.add_row("model alone", f"{_figure(limit.model_images_per_second)} images/s")
    share = min(1.0, rate.value / limit.images_per_second)
    table.add_row("share of bound", f"{share:.0%} of {_figure(limit.images_per_second)} images/s")
    table.add_row("bottleneck", bottleneck.sentence)
    for number, op in enumerate(ceiling.op_costs):
        table.add_row("an image costs" if number == 0 else "", _op(op))
    if simulated is not None:
        share = simulated.utilisation(rate.value, measurement.batch_size)
        table.add_row("AU", f"{share:.1%} of the time the simulated accelerator computes")
    table.add_row("waiting for data", f"{measurement.data_wait_share:.1%} of the time")
    table.add_row("first batch", f"{measurement.first_batch_seconds:.3f} s after opening")
    if measurement.cache_fill_seconds is not None:
        table.add_row("cache fill", f"{measurement.cache_fill_seconds:.1f} s for all samples, once")
    table.add_row("resources", _resources(measurement.resources))
    table.add_row("page cache", measurement.page_cache)
    ran = measurement.ran
    table.add_row(
        "ran", f"{ran.threads} threads, {ran.processes} processes on {', '.join(ran.devices)} ({ran.backend})"
    )
    for warning in measurement.warnings:
        table.add_row(Text("note", style="bold yellow"), warning)
    return table


def _op(op: OpCost) -> str:
    waits = f", waits {wording.milliseconds(op.wait_seconds_per_image)}" if op.wait_seconds_per_image else ""
    share = op.lock_seconds_per_image / op.seconds_per_image if op.seconds_per_image else 0.0
    lock = f", {share:.0%} of it under Python's lock" if share else ""
    return f"{op.name}: {wording.milliseconds(op.seconds_per_image)} of a core{lock}{waits}"


def _resources(used: Resources) -> str:
    parts = []
    if used.cpu_percent is not None:
        parts.append(f"CPU {used.cpu_percent:.0f} % (one core is 100)")
    if used.peak_rss_bytes is not None:
        parts.append(f"memory {size_text(used.peak_rss_bytes)}")
    if used.gpu_percent is not None:
        low, high = used.gpu_idlest_percent, used.gpu_busiest_percent
        several = "" if low is None or high is None or low == high else f" (idlest {low:.0f} %, busiest {high:.0f} %)"
        parts.append(f"GPU {used.gpu_percent:.0f} %{several}")
    if used.gpu_memory_bytes is not None:
        parts.append(f"GPU memory {size_text(used.gpu_memory_bytes)}")
    if used.gpu_watts is not None:
        parts.append(f"{used.gpu_watts:.0f} W")
    return ", ".join(parts)


def _figure(rate: float) -> str:
    """Return images/s with as many digits as mean something: a segmentation model may take eight."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
