"""Profiles with all that a search found, made by a search over the analytic surface: for tests of reports."""

import dataclasses
import functools
from typing import Any

from autopipe.artifact.codegen import profile_of
from autopipe.artifact.schema import Profile
from autopipe.measure.facts import Ceiling, Limits, ReadCosts, ReadRung
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.loaders.workers import Threads
from autopipe.search import space as spaces
from autopipe.search import study
from autopipe.search.result import Payback, Result
from autopipe.search.settings import Settings
from autopipe.values import Estimate
from tests.fakes.facts import DESCRIBED
from tests.fakes.profiles import NOON, digest, hardware
from tests.fakes.surface import Surface

SPACE = """
schema_version: 1
parameters:
  loader: [threads, processes, tfdata]
  threads.workers: {range: [1, cores*2], log: true, when: {loader: threads}}
  threads.queue_size: {choices: [2, 8], when: {loader: threads}}
  processes.workers: {range: [1, cores+1], when: {loader: processes}}
  processes.queue_size: {choices: [8], when: {loader: processes}}
  tfdata.num_parallel_calls: {choices: [auto, cores], when: {loader: tfdata}}
  tfdata.prefetch: {choices: [auto], when: {loader: tfdata}}
  keep: [none, memory, tfrecord, tfrecord+memory, array, array+memory]
  finish: [device, host]
  device_prefetch: [2]
"""
HOSTILE = "<script>alert(1)</script> & \"'"


class Slow(Surface):
    """A surface whose reads wait and whose augmentation holds Python's lock."""

    def _ceiling(self, setup: ModelSetup) -> Ceiling:
        plain = super()._ceiling(setup)
        read, decode, flip, rescale = plain.op_costs
        read = read.model_copy(update={"wait_seconds_per_image": 0.0009})
        lock = "lock_seconds_per_image"
        costs = read, decode.model_copy(update={lock: 4e-5}), flip.model_copy(update={lock: 2e-5}), rescale
        rungs = (ReadRung(at_once=1, images_per_second=1000.0), ReadRung(at_once=8, images_per_second=7600.0))
        reads = ReadCosts(latency_seconds=0.001, cpu_seconds=0.0001, rungs=rungs, bytes_per_image=38_000.0)
        return plain.model_copy(update={"op_costs": costs, "reads": reads})


@functools.cache
def result() -> Result:
    """Return the result of a search over the surface."""
    surface = Slow(model_rate=6000.0, model_core_seconds=0.0002, noise=0.03, seed=5, quirks=2)
    space = spaces.parse(SPACE)({"cores": surface.cores, "gpus": 0})
    command = "autopipe tune train.py:workload --epochs 20"
    settings = Settings(clock=surface.clock, trials=24, epochs=20, limits=Limits(convert=True), command=command)
    return study.run(space, surface, dataclasses.replace(surface.facts(), accelerator=False), settings).result


def payback(**changes: Any) -> Payback:
    """Return what a conversion to an array of 3 GiB takes and brings."""
    plain: dict[str, Any] = {
        "config": PipelineConfig(loader=Threads(workers=2), keep="array").model_dump(mode="json"),
        "rate": Estimate(value=21_000.0, low=20_000.0, high=22_000.0),
        "convert_seconds": Estimate(value=30.0, low=27.0, high=33.0),
    }
    plain |= {"storage": "array", "cut": 2, "bytes": 3 * 2**30, "free_bytes": 50 * 2**30, "saved_seconds": 12.0}
    return Payback(**{**plain, "epochs": 3.25, "overruled": False, "advice": False, **changes})


def profile(found: Result | None = None, **changes: Any) -> Profile:
    kept = profile_of(found or result(), DESCRIBED, hardware(cores=4), Settings())
    assert kept is not None
    return kept.model_copy(update={"workload": digest(samples=20_000), "measured_at": NOON, **changes})
