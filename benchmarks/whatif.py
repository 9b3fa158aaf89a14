"""What `autopipe whatif` predicts beside what is then measured: two cores from one, a read's latency from another.

    python benchmarks/whatif.py [--budget 40] [--only cores|latency]

Each case tunes as the machine is said to be, asks for another, and measures the configuration that is named for it
there. A prediction counts as right within 15 %, or if its range holds what was measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import autopipe as ap
from autopipe.api import tuning
from autopipe.extensions.whatif.prediction import Machine, read, what_if
from autopipe.measure.facts import Limits
from autopipe.measure.outcome import Measurement
from autopipe.pipeline.config import PipelineConfig
from autopipe.search import searching
from autopipe.search.settings import Settings

RIGHT = 0.15
STEP = ap.SimulatedAccelerator(step_seconds=0.004)  # a model that is not the limit, and takes nothing of the cores


@dataclasses.dataclass(frozen=True)
class Waiting:
    """Images in memory, each of which takes its time to be read."""

    encoded: tuple[bytes, ...]
    seconds: float

    def __len__(self) -> int:
        return len(self.encoded)

    def read(self, index: int) -> Any:
        if self.seconds:
            time.sleep(self.seconds)
        return self.encoded[index], index % 10


def images(count: int) -> tuple[bytes, ...]:
    generator = np.random.default_rng(0)
    made = []
    for _ in range(count):
        coarse = generator.integers(0, 256, (12, 16, 3), np.uint8)
        done, jpeg = cv2.imencode(".jpg", cv2.resize(coarse, (500, 375), interpolation=cv2.INTER_CUBIC))
        assert done
        made.append(jpeg.tobytes())
    return tuple(made)


def workload(latency_seconds: float, encoded: tuple[bytes, ...], batch_size: int = 32) -> ap.Workload:
    ops = [ap.Decode(), ap.Resize(224, 224), ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=Waiting(encoded, latency_seconds), ops=ops, batch_size=batch_size, model=STEP)


def tuned(work: ap.Workload, folder: Path, budget: float) -> Path:
    limits = Limits(only={"loader": ("threads",), "keep": ("none",)})
    settings = Settings(space="default", trials=8, budget_seconds=budget, limits=limits, blocks=(2, 2))
    _, found = tuning.run(work, settings, searching.Watcher(), folder=folder)
    assert found is not None
    return Path(found.save(folder / "autopipe.json"))


def rate(work: ap.Workload, config: PipelineConfig) -> float:
    with searching.runner_for(work) as runner:
        outcomes = [runner.measure(config, {"min_seconds": 1.5, "max_seconds": 3.0}) for _ in range(3)]
    rates = [each.images_per_second.value for each in outcomes if isinstance(each, Measurement)]
    assert len(rates) == len(outcomes), outcomes
    return float(np.median(rates))


def report(name: str, artifact: Path, machine: Machine, work: ap.Workload) -> None:
    found = what_if(read(artifact), machine)
    config = found.config
    measured = rate(work, config)
    said = found.images_per_second
    off = said.value / measured - 1
    right = abs(off) <= RIGHT or said.low <= measured <= said.high
    print(
        f"{name}: predicted {said.value:,.0f} ({said.low:,.0f} to {said.high:,.0f}), measured {measured:,.0f} images/s "
        f"with {config.short()}: {off:+.0%}, {'right' if right else 'WRONG'}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=40.0)
    parser.add_argument("--only", choices=["cores", "latency"])
    arguments = parser.parse_args()
    encoded, every = images(400), os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only in (None, "cores"):
            here = Path(folder) / "cores"
            here.mkdir()
            os.sched_setaffinity(0, {min(every)})
            artifact = tuned(workload(0.0, encoded), here, arguments.budget)
            os.sched_setaffinity(0, every)
            report("two cores from one", artifact, Machine(cores=2.0), workload(0.0, encoded))
        if arguments.only in (None, "latency"):
            here = Path(folder) / "latency"
            here.mkdir()
            artifact = tuned(workload(0.01, encoded), here, arguments.budget)
            report("20 ms a read from 10", artifact, Machine(read_latency_seconds=0.0201), workload(0.02, encoded))


if __name__ == "__main__":
    main()
