"""Measurements made of given rates: what measurers without hardware (`Surface`, recorded tables) hand back."""

from __future__ import annotations

from collections.abc import Sequence

from autopipe.measure.outcome import Measurement, Ran, Resources, Window
from autopipe.measure.stats import estimate
from autopipe.pipeline.config import PipelineConfig
from autopipe.values import Estimate


def measurement(
    config: PipelineConfig,
    rates: Sequence[float],
    *,
    batch_size: int,
    first_batch_seconds: float = 0.1,
    resources: Resources | None = None,
) -> Measurement:
    """Return the measurement that windows of one batch each, at these images/s, would have made."""
    known, rate = len(rates) > 1, estimate(rates, resamples=200)
    if not known:
        rate = Estimate(value=rate.value, low=rate.value, high=rate.value)
    return Measurement(
        config=config.model_dump(mode="json"),
        config_key=config.key(),
        batch_size=batch_size,
        windows=tuple(Window(images=batch_size, seconds=batch_size / rate) for rate in rates),
        images_per_second=rate,
        first_batch_seconds=first_batch_seconds,
        stable=known and (rate.high - rate.low) <= 0.06 * rate.value,
        data_wait_share=0.0,
        resources=resources or Resources(),
        page_cache="warm",
        ran=Ran(threads=config.loader.worker_count() or 1, processes=1, devices=("none",), backend="none", versions={}),
    )
