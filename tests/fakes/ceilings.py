"""A ceiling of round figures: reading, Decode, RandomFlip, batching and Rescale on two cores."""

from typing import Any

from autopipe.measure.facts import Ceiling, OpCost, ReadCosts, ReadRung
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.workers import Threads
from autopipe.search.space import to_config
from autopipe.values import Estimate

COSTS = (
    OpCost(name="read", part="fixed", seconds_per_image=0.04e-3),
    OpCost(name="Decode", part="fixed", seconds_per_image=0.58e-3),
    OpCost(name="RandomFlip", part="fresh", seconds_per_image=0.02e-3),
    OpCost(name="batching", part="fresh", seconds_per_image=0.10e-3),
    OpCost(name="Rescale", part="finish", seconds_per_image=0.05e-3),
)
OPS = (  # the same with Resize, all by the native library
    OpCost(name="read", part="fixed", seconds_per_image=0.0001, native=True),
    OpCost(name="Decode", part="fixed", seconds_per_image=0.0004, native=True),
    OpCost(name="Resize", part="fixed", seconds_per_image=0.0002, native=True),
    OpCost(name="RandomFlip", part="fresh", seconds_per_image=0.00003, native=True),
    OpCost(name="Rescale", part="finish", seconds_per_image=0.0001, native=True),
)
THREADS = PipelineConfig(loader=Threads(workers=2))


def reads(*rates: float, latency: float | None = None, cpu: float = 0.0001, **other: Any) -> ReadCosts:
    """Return the costs of reads with these rates of 1, 4, 16, ... at a time."""
    rungs = tuple(ReadRung(at_once=4**power, images_per_second=rate) for power, rate in enumerate(rates))
    found = {"latency_seconds": latency or 1 / rates[0], "cpu_seconds": cpu, "bytes_per_image": 38_000.0, **other}
    return ReadCosts(rungs=rungs, **found)


SLOW_READS = reads(*(count / 0.0201 for count in (1, 4, 16, 64)))


def ceiling(model: float = 8400.0, model_core_seconds: float = 0.0, **other: Any) -> Ceiling:
    values: dict[str, Any] = {"op_costs": COSTS, "cores": 2.0, "model_core_seconds_per_image": model_core_seconds}
    return Ceiling(model_images_per_second=Estimate(value=model, low=model, high=model), **values | other)


def config(workers: int = 2, queue_size: int = 8, **rest: str | float) -> PipelineConfig:
    return to_config({"loader": "threads", "threads.workers": workers, "threads.queue_size": queue_size, **rest})
