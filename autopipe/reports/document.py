"""The summary as one JSON document, for programs."""

from __future__ import annotations

import dataclasses
from typing import Any

from autopipe.reports import payback_table
from autopipe.reports.summary import Summary, times_faster


def document(summary: Summary, artifact: str | None) -> dict[str, Any]:
    """Return the document that `autopipe tune --json` prints.

    Keys: `best` (the configuration), `images_per_second` (value, low, high, proved), `baselines` (by name; `pairs`: on
    how many rounds `interval` rests, and if fewer than three, then on the trials as well), `ceiling`
    (model images/s, bound, shares, the costs of ops and reads, the bottleneck as a sentence, its kind and op: null
    where nothing that was measured comes near the rate),
    `devices` (for each number of them: whether they are `virtual`, the model alone and the best configuration),
    `accelerator_utilisation` (of a simulated one, 0 to 1, by pipeline), `conversions` (storage, cut, seconds
    and bytes to convert, epochs until it pays), `trials`, `failed`, `seconds`, `measuring_seconds` (while something was
    measured), `stopped`, `trust`, `warnings`, `artifact` (its path).
    """
    found, ceiling, rate = summary.result, summary.result.ceiling, summary.result.estimate
    ops = () if summary.bound is None else summary.bound.costs.ops
    limit = None if summary.bottleneck is None else summary.bottleneck.limit
    return {
        "best": None if found.best_config is None else found.best_config.model_dump(mode="json"),
        "images_per_second": None if rate is None else {**rate.model_dump(), "proved": found.proved},
        "baselines": {
            each.name: {
                "code": each.config.loader.whose,
                "images_per_second": None if each.estimate is None else each.estimate.model_dump(),
                "times_faster": times_faster(each, found),
                "interval": None if each.gain is None else list(each.gain.interval),
                "pairs": None if each.gain is None else each.gain.pairs,
                "failure": None if each.failure is None else each.failure.message,
            }
            for each in found.baselines
        },
        "ceiling": None
        if ceiling is None
        else {
            "model_images_per_second": ceiling.model_images_per_second.model_dump(),
            "share_of_model": found.share_of_ceiling,
            "bound_images_per_second": None if summary.bound is None else summary.bound.images_per_second,
            "share_of_bound": summary.share_of_bound,
            "ops": [{**op.model_dump(), "wall_seconds_per_image": op.wall_seconds_per_image} for op in ops],
            "reads": ceiling.reads.model_dump() if summary.bound is not None and ceiling.reads is not None else None,
            "bottleneck": None if summary.bottleneck is None else summary.bottleneck.sentence,
            "bottleneck_kind": None if limit is None else limit.kind.value,
            "bottleneck_op": None if limit is None else limit.op,
        },
        "devices": [
            {**dataclasses.asdict(each), "virtual": found.virtual_devices and each.devices > 1}
            for each in found.device_counts
        ],
        "accelerator_utilisation": dict(summary.utilisation) or None,
        "conversions": payback_table.document(found.paybacks),
        "trials": len(found.trials),
        "failed": len(found.failed),
        "seconds": round(found.seconds, 2),
        "measuring_seconds": round(found.measuring_seconds, 2),
        "stopped": found.stopped_because.message,
        "trust": summary.trust,
        "warnings": list(summary.warnings),
        "artifact": artifact,
    }
