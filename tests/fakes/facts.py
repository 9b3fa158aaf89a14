"""What is known of a workload and a machine, of which what is not named is as usual; and measurements."""

from collections.abc import Sequence
from typing import Any, TypeVar

from autopipe.measure.facts import Description, Facts
from autopipe.measure.outcome import Measurement, Ran, Resources, Window
from autopipe.measure.stats import estimate
from autopipe.pipeline.config import PipelineConfig
from autopipe.values import Estimate

T = TypeVar("T")

_SIZES: dict[str, Any] = {"samples": 2000, "batch_size": 32, "compact_bytes": 1, "finished_bytes": 1}
DESCRIBED = Description(**_SIZES, backend="none", mean_bytes=1.0, data_digest="d", ops="o", model="m")


def facts(**known: Any) -> Facts:
    """Return facts by their names, those of the workload's description among them; two cores, unless told."""
    described = {name: known.pop(name) for name in Description.model_fields.keys() & known.keys()}
    return Facts(workload=DESCRIBED.model_copy(update=described), **{"cores": 2, **known})


def known(value: T | None) -> T:
    assert value is not None
    return value


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
