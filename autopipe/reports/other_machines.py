"""What workers on other machines bring, and what the way from there costs: one sentence, or none."""

from __future__ import annotations

from autopipe.core.config import PipelineConfig
from autopipe.core.limits import Limits
from autopipe.core.outcome import Measurement
from autopipe.reports import wording


def sentence(measurement: Measurement | None, config: PipelineConfig, limits: Limits | None) -> str:
    """Return what a configuration's workers elsewhere come to, as far as it was measured; "" where none are."""
    if measurement is None or not config.loader.works_elsewhere:
        return ""
    parts = []
    if limits is not None and (busy := limits.work.core_seconds + limits.work.op_wait_seconds) > 0:
        parts.append(f"a core like one of these makes {wording.rate(1 / busy)} images/s there")
    if measurement.hand_over_seconds:
        seconds = measurement.hand_over_seconds
        size = 0 if limits is None else limits.work.sent_bytes * measurement.batch_size
        speed = f", {size / seconds / 1e6:,.3g} MB/s" if size else ""
        parts.append(f"a batch takes {wording.milliseconds(seconds)} from there{speed}, while the next is made")
    workers = config.loader.worker_count() or 0
    rate = wording.rate(measurement.images_per_second.value / max(1, workers))
    parts.append(f"each of the {workers} workers brought {rate} images/s")
    return "; ".join(parts)
