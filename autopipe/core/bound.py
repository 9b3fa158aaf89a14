"""What limits a configuration: the rate that the model, the cores and the disk allow, and which of them it is. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from autopipe.core.ceiling import Ceiling, OpCost
from autopipe.core.config import PipelineConfig


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The most that a configuration can reach.

    Attributes:
        images_per_second: the least of the limits below.
        model_images_per_second: the model alone.
        cores_images_per_second: all cores, shared by the model's work and the loader's; None where costs are not known.
        workers_images_per_second: the loader's workers, where they are fewer than the cores.
        disk_images_per_second: the files, where they are read from the disk.
        loader_core_seconds: the loader's work for one image, on one core.
        sentence: what limits, in words.
    """

    images_per_second: float
    model_images_per_second: float
    cores_images_per_second: float | None = None
    workers_images_per_second: float | None = None
    disk_images_per_second: float | None = None
    loader_core_seconds: float
    sentence: str


def bound(ceiling: Ceiling, config: PipelineConfig) -> Bound:
    """Return the bound of a configuration: `cores / (model core-seconds + loader core-seconds)`, or what is less.

    Args:
        ceiling: what was measured of the workload.
        config: how it is fed. Caches count as filled.
    """
    paid = _paid(ceiling.op_costs, config)
    loader = sum(cost.seconds_per_image for cost in paid)
    model = ceiling.model_images_per_second.value
    cores = _rate(ceiling.cores, ceiling.model_core_seconds_per_image + loader) if ceiling.op_costs else None
    workers = _workers_rate(ceiling, config, loader) if ceiling.op_costs else None
    disk = _disk_rate(ceiling, config)
    limits = {"model": model, "cores": cores, "workers": workers, "disk": disk}
    limit = min((rate, name) for name, rate in limits.items() if rate is not None)[1]
    return Bound(
        images_per_second=min(rate for rate in limits.values() if rate is not None),
        model_images_per_second=model,
        cores_images_per_second=cores,
        workers_images_per_second=workers,
        disk_images_per_second=disk,
        loader_core_seconds=loader,
        sentence=_sentence(limit, limits, ceiling, paid),
    )


def _paid(costs: Sequence[OpCost], config: PipelineConfig) -> list[OpCost]:
    """Return what a loader of this configuration pays for an image, on average, once its caches are filled."""
    fixed = [cost for cost in costs if cost.part == "fixed"]
    missed = _missed(config)
    made = [
        cost.model_copy(update={"seconds_per_image": missed * cost.seconds_per_image})
        for cost in fixed[_spared(config, len(fixed)) :]
        if missed > 0
    ]
    return made + [
        cost for cost in costs if cost.part == "fresh" or (cost.part == "finish" and config.finish == "host")
    ]


def _missed(config: PipelineConfig) -> float:
    """Return the share of samples that a full cache does not hold."""
    return 1.0 if config.cache == "none" else 1.0 - config.cache_fraction


def _spared(config: PipelineConfig, fixed: int) -> int:
    """Return how many of the deterministic first ops, reading included, were done before the samples were kept."""
    if config.cut == "deepest":
        return fixed if config.storage == "array" else 0
    return 1 + config.cut if config.cut else 0


def _rate(amount: float | None, each: float) -> float | None:
    if amount is None:
        return None
    return amount / each if each > 0 else math.inf


def _workers_rate(ceiling: Ceiling, config: PipelineConfig, loader: float) -> float | None:
    workers = config.loader.worker_count()
    if workers is None or ceiling.cores is None or workers >= ceiling.cores:
        return None
    return _rate(max(1, workers), loader)


def _disk_rate(ceiling: Ceiling, config: PipelineConfig) -> float | None:
    missed = _missed(config)
    if missed == 0 or config.storage != "files" or not ceiling.bytes_per_image:
        return None
    return _rate(ceiling.read_bytes_per_second, missed * ceiling.bytes_per_image)


def _sentence(limit: str, limits: dict[str, float | None], ceiling: Ceiling, paid: list[OpCost]) -> str:
    takes = f"the model alone takes {_text(limits['model'])}."
    loader = sum(cost.seconds_per_image for cost in paid)
    if limit == "disk":
        megabytes = (ceiling.read_bytes_per_second or 0) / 1e6
        return f"the disk gives {megabytes:,.0f} MB/s, {_text(limits['disk'])} images/s; {takes}"
    if limit == "workers":
        return f"{_work(paid, loader)}; this many workers cannot feed more than {_text(limits['workers'])}; {takes}"
    if limit == "model" and not ceiling.op_costs:
        alone = _text(limits["model"])
        return f"on a batch that is already there the model takes {alone} images/s; what making one costs is not known."
    if limit == "model":
        feed = f"; the cores could feed {_text(limits['cores'])}" if limits["cores"] is not None else ""
        alone = _text(limits["model"])
        return f"the model is the limit: on a batch that is already there it takes {alone} images/s{feed}."
    shared = ceiling.model_core_seconds_per_image
    model = f"the model takes {_ms(shared)} of the cores for an image"
    work = [_work(paid, loader)] if loader > 0.1 * shared else []
    work += [model] if shared > 0.1 * loader else []
    count = ceiling.cores or 0
    return (
        f"{', and '.join(work)}; {count:g} core{'' if count == 1 else 's'} cannot feed more than "
        f"{_text(limits['cores'])} images/s; {takes}"
    )


def _work(paid: list[OpCost], loader: float) -> str:
    dearest = max(paid, key=lambda cost: cost.seconds_per_image)
    return f"{dearest.name} takes {_ms(dearest.seconds_per_image)} of the loader's {_ms(loader)} for an image"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2g} ms" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


def _text(rate: float | None) -> str:
    """Return a rate with three digits: it is known no better."""
    if rate is None or not math.isfinite(rate):
        return "any number of"
    if rate < 1000:
        return f"{rate:.3g}"
    digits = 10 ** (math.floor(math.log10(rate)) - 2)
    return f"{round(rate / digits) * digits:,.0f}"
