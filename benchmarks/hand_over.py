"""What one training process can take from a loader when making samples costs nothing: batches/s, images/s and GB/s.

    python benchmarks/hand_over.py [--seconds 1.5] [--json]

Samples are played (`autopipe.pipeline.batching.rehearsed`) at no cost: only queues, threads, processes and shared
memory are timed, and in `fit` Keras and the trainer. The model is a simulated accelerator whose step takes no time.
Rows take turns; the medians of three rounds are shown. Batches of these are written once and then handed over without a
copy. In rows called "written" workers copy each sample from memory, so that GB/s is what they write; it is left out of
the others.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import autopipe as ap
from autopipe.hardware.rehearsal import Rehearsal, playing
from autopipe.pipeline import assembly
from autopipe.pipeline.batching import rehearsed
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.trainer import Trainer
from autopipe.workload.data.source import Subset

SIDE, ROUNDS, WARM, BATCHES = 224, 3, 64, 20_000
LOADERS = {"threads": ap.Threads(workers=2), "processes": ap.Processes(workers=2), "tfdata": ap.TfData()}
WRITTEN = {f"{name}, written": loader for name, loader in LOADERS.items()}
STEPS = {"alone": 0, "fit": 1, "fit, 8 steps a call": 8}


def workload(batch_size: int) -> ap.Workload:
    images = np.zeros((16, SIDE, SIDE, 3), np.uint8)
    data = Subset(ap.Arrays(images, np.zeros(16, np.int64)), BATCHES * batch_size, repeated=True)
    model = ap.SimulatedAccelerator(1e-6)
    return ap.Workload(data=data, ops=[], batch_size=batch_size, model=model, shuffle=False)


def batches_per_second(work: ap.Workload, loader: Any, steps: int, seconds: float) -> float:
    config = PipelineConfig(loader=loader, device_prefetch=0, steps_per_execution=max(1, steps))
    with assembly.build_loader(work, config) as opened:
        if steps == 0:
            return _timed(opened.batches(0), seconds)
        strategy, model = assembly.build_model(work, devices=1, channels="last")
        trainer = Trainer(model, opened, strategy=strategy, device_prefetch=0)
        trainer.setup = config.model_setup
        trainer.fit(epochs=1, steps_per_epoch=WARM, verbose=0)  # writes to the memory of all batches for the first time
        count = 100
        while True:  # long enough to leave the start of `fit` out
            began = time.perf_counter()
            trainer.fit(epochs=1, steps_per_epoch=count, verbose=0)
            took = time.perf_counter() - began
            if took > seconds or count == BATCHES:
                return count / took
            count = min(2 * count, BATCHES)


def _timed(batches: Any, seconds: float) -> float:
    for _ in itertools.islice(batches, WARM):
        pass
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds and count < BATCHES // 2:
        next(batches)
        count += 1
    return count / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rows = [*itertools.product(LOADERS, (32, 128, 512), STEPS), *itertools.product(WRITTEN, (128,), ("alone", "fit"))]
    found: dict[tuple[str, int, str], list[float]] = {row: [] for row in rows}
    machine = Rehearsal(cores=8, step_seconds=1e-6, exchange_seconds=0.0)
    rehearsed.know(rehearsed.Costs({}, 0.0))
    for _ in range(ROUNDS):
        for name, batch_size, how in rows:
            with playing(machine if name in LOADERS else None):
                loader = {**LOADERS, **WRITTEN}[name]
                rate = batches_per_second(workload(batch_size), loader, STEPS[how], chosen.seconds)
            found[name, batch_size, how].append(rate)
    medians = {row: statistics.median(rates) for row, rates in found.items()}
    if chosen.json:
        print(json.dumps([[*row, rate] for row, rate in medians.items()]))
        return
    table = Table("loader", "batch", "", "batches/s", "images/s", "GB/s", box=None, pad_edge=False, header_style="bold")
    for (name, batch_size, how), rate in medians.items():
        images = rate * batch_size
        written = f"{images * SIDE**2 * 3 / 1e9:.1f}" if name in WRITTEN else ""
        table.add_row(name, str(batch_size), how, f"{rate:,.0f}", f"{images:,.0f}", written)
    Console().print(table)


if __name__ == "__main__":
    main()
