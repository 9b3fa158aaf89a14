"""What limits a configuration: the rate that the model and the loader's work allow, and which of them it is. Pure."""

from __future__ import annotations

import dataclasses

from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import Ceiling


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The most that a configuration can reach.

    Attributes:
        images_per_second: the least of the limits below.
        model_images_per_second: the model alone.
        cores_images_per_second: all cores, shared by the model's work and the loader's; None where costs are not known.
        loader_core_seconds: the loader's work for one image, on one core.
        sentence: what limits, in words.
    """

    images_per_second: float
    model_images_per_second: float
    cores_images_per_second: float | None
    loader_core_seconds: float
    sentence: str


def bound(ceiling: Ceiling, config: PipelineConfig) -> Bound:
    """Return the bound of a configuration: `cores / (model core-seconds + loader core-seconds)`, or the model if that is less."""
    model = ceiling.model_images_per_second.value
    costs = [cost for cost in ceiling.op_costs if _is_paid(cost.part, config)]
    loader = sum(cost.seconds_per_image for cost in costs)
    if ceiling.cores is None or not ceiling.op_costs:
        return Bound(
            images_per_second=model,
            model_images_per_second=model,
            cores_images_per_second=None,
            loader_core_seconds=loader,
            sentence=f"the model alone takes {model:,.0f} images/s.",
        )
    work = ceiling.model_core_seconds_per_image + loader
    cores = ceiling.cores / work if work > 0 else float("inf")
    return Bound(
        images_per_second=min(model, cores),
        model_images_per_second=model,
        cores_images_per_second=cores,
        loader_core_seconds=loader,
        sentence=_sentence(ceiling, config, model, cores, loader),
    )


def _is_paid(part: str, config: PipelineConfig) -> bool:
    """Tell whether a loader of this configuration does such ops for every image, once its caches are filled."""
    if part == "fixed":
        return config.cache == "none" and config.storage != "array"
    return part == "fresh" or config.finish == "host"


def _sentence(ceiling: Ceiling, config: PipelineConfig, model: float, cores: float, loader: float) -> str:
    if model <= cores:
        return (
            f"the model is the limit: alone, on a batch that is already there, it takes {model:,.0f} images/s; "
            f"the cores could feed {cores:,.0f}."
        )
    dearest = max(
        (cost for cost in ceiling.op_costs if _is_paid(cost.part, config)),
        key=lambda cost: cost.seconds_per_image,
        default=None,
    )
    count = f"{ceiling.cores:g} core{'' if ceiling.cores == 1 else 's'}"
    shared = ceiling.model_core_seconds_per_image
    also = f", and the model {shared * 1e3:.2f} ms of the same cores" if shared > 0.1 * loader else ""
    what = (
        f"{dearest.name} takes {dearest.seconds_per_image * 1e3:.2f} ms of the loader's {loader * 1e3:.2f} ms an image{also}; "
        if dearest is not None and loader > 0
        else f"the model takes {shared * 1e3:.2f} ms of the cores an image; "
    )
    return f"{what}{count} cannot feed more than {cores:,.0f} images/s; the model alone takes {model:,.0f}."
