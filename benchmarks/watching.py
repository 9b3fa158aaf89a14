"""What it costs to watch a training: by a trace (`--trace`), and by `ap.DriftMonitor`.

    python benchmarks/watching.py [--pairs 8] [--seconds 1.5]

By addition: what a note takes on its own, times how many a traced training takes, as a part of its time, as if
everybody stood still for each of them. And what the monitor does for a step, which is 0.5 % of one that takes 200 times
as long. By turns: images/s with over images/s without, where others on the machine are in it too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from claims import Claim
from whatif import Waiting, images

import autopipe as ap
from autopipe.measure.outcome import Phase
from autopipe.measure.session import Session
from autopipe.pipeline.batching.traced import NOTE_SECONDS, TraceLog, noted
from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.loader import Finish, Loader
from autopipe.workload.sample import Batch, Field, FieldKind, SampleSpec
from autopipe.workload.workload import Workload

MOST_OF_A_TRACE = 0.02
MOST_OF_A_STEP = 0.005
SHORT_STEP_SECONDS = 0.002


class Quiet:
    """A report that nobody reads."""

    def phase(self, phase: Phase) -> None:
        pass

    def progress(self, images: int, images_per_second: float) -> None:
        pass

    def log(self, text: str) -> None:
        pass


def best_seconds(repeat: int, count: int, run: Any) -> float:
    """Return the least time of one of `count` runs: what others on the machine do only adds to it."""
    found = []
    for _ in range(repeat):
        began = time.perf_counter()
        run(count)
        found.append((time.perf_counter() - began) / count)
    return min(found)


def note_seconds(folder: Path) -> tuple[float, float]:
    """Return what a note takes, writing it included, and what a call takes that is not noted."""
    log = TraceLog(str(folder))

    def notes(count: int) -> None:
        for _ in range(count):
            log.span("Resize", 1.0, 2.0)

    def bare(count: int) -> None:
        for _ in range(count):
            nothing(None)

    def nothing(_: Any) -> None:
        pass

    skipping = noted(nothing, "nothing", log, clock=lambda: 0.0)  # so quick that 8000 calls are left out

    def skipped(count: int) -> None:
        for _ in range(count):
            skipping(None)

    each = best_seconds(20, 4000, notes)
    return each, best_seconds(20, 4000, skipped) - best_seconds(20, 4000, bare)


# ---------------------------------------------------------------- trainings


def photographs(count: int = 200) -> Workload:
    ops = [ap.Decode(), ap.Resize(224, 224), ap.RandomFlip(), ap.Rescale(1 / 255)]
    data = Waiting(images(count), 0.0)
    return Workload(data=data, ops=ops, batch_size=32, model=ap.SimulatedAccelerator(step_seconds=0.004))


def arrays(step_seconds: float) -> Workload:
    x = np.zeros((4096, 32, 32, 3), np.uint8)
    model = ap.SimulatedAccelerator(step_seconds=step_seconds)
    data = ap.Arrays(x, np.zeros(4096, np.int64))
    return Workload(data=data, ops=[ap.RandomFlip(), ap.Rescale(1 / 255)], batch_size=32, model=model)


def rows() -> Iterator[tuple[str, Workload, LoaderConfig, int]]:
    """Yield trainings, with the calls of ops and reads that a batch takes: arrays are batched at once."""
    photos = photographs()
    yield "photographs, threads(2)", photos, ap.Threads(workers=2), 32 * 5
    yield "photographs, processes(2)", photos, ap.Processes(workers=2), 32 * 5
    yield "arrays, steps of 2 ms, threads(1)", arrays(0.002), ap.Threads(workers=1), 3
    yield "arrays, steps of 0.5 ms, threads(1)", arrays(0.0005), ap.Threads(workers=1), 3


def costs_of_a_trace(pairs: int, seconds: float) -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as folder:
        note, skipped = note_seconds(Path(folder))
    yield Claim("a note", f"{note * 1e6:.2f} us", f"<= {NOTE_SECONDS * 1e6:g} us", note <= NOTE_SECONDS)
    yield Claim("a call that is not noted", f"{skipped * 1e6:.2f} us")
    options = {"min_seconds": seconds, "max_seconds": seconds, "page_cache": "warm"}
    for name, workload, loader, calls in rows():
        session, config = Session(workload), PipelineConfig(loader=loader)
        ratios, shares = [], []
        for number in range(pairs):
            with tempfile.TemporaryDirectory() as folder:
                both = [options, {**options, "trace": folder}]
                order = (0, 1) if number % 2 else (1, 0)
                rates = {
                    which: session.measure(config, both[which], Quiet()).images_per_second.value for which in order
                }
                shares.append(_share(Path(folder), note, skipped, calls))
            ratios.append(rates[1] / rates[0])
        session.close()
        yield _at_most(f"{name}: notes added up, part of the time", MOST_OF_A_TRACE, max(shares))
        low, high = min(ratios), max(ratios)
        yield Claim(f"{name}: images/s by turns", f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})")


def _at_most(what: str, target: float, share: float) -> Claim:
    return Claim(what, f"{share:.3%}", f"<= {target:.1%}", share <= target)


def _share(folder: Path, note: float, skipped: float, calls: int) -> float:
    """Return the part of a training's time that its notes took, and the calls of ops that were not noted."""
    lines = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    events = [each for each in lines if each["ph"] != "M"]
    times = [each["ts"] for each in events]
    wall = (max(times) - min(times)) * 1e-6
    batches = sum(each["name"] == "step" for each in events)
    kept = [each["dur"] for each in events if each["name"] == "step"]
    made = max(batches, int(wall / (statistics.median(kept) * 1e-6)))  # steps that were not noted, too
    return (len(events) * note + made * calls * skipped) / wall


# ---------------------------------------------------------------- the monitor


class Ready(Loader):
    """Batches that are there."""

    has_dataset = False

    def __init__(self, batches: int) -> None:
        self.spec = SampleSpec(Field(FieldKind.ARRAY, (4,), np.dtype("float32")), None)
        self.finish, self.batch_size, self.buffered_batches = Finish(), 32, 0
        self._batch = np.zeros((32, 4), np.float32)
        self._count = batches

    def __len__(self) -> int:
        return self._count

    @property
    def identity(self) -> str:
        return "ready"

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for _ in range(start, self._count):
            yield self._batch, None

    def close(self) -> None:
        pass


def monitor_seconds() -> float:
    """Return what the monitor does for a step: it times the hand-over of a batch, and looks at the clock at its end."""
    plain = Ready(20_000)
    trainer = types.SimpleNamespace(loader=plain)
    monitor = ap.DriftMonitor()
    monitor.set_trainer(trainer)
    monitor.on_train_begin()
    monitor.on_epoch_begin(0)

    def watched(count: int) -> None:
        for number, _ in enumerate(trainer.loader.batches(0)):
            monitor.on_train_batch_end(number)

    def bare(count: int) -> None:
        for _ in plain.batches(0):
            pass

    found = best_seconds(10, 20_000, watched) - best_seconds(10, 20_000, bare)
    monitor.on_train_end()
    return found


def costs_of_the_monitor(pairs: int) -> Iterator[Claim]:
    each = monitor_seconds()
    yield Claim("DriftMonitor: a step", f"{each * 1e6:.2f} us")
    part = f"DriftMonitor: part of a step of {SHORT_STEP_SECONDS * 1e3:g} ms"
    yield _at_most(part, MOST_OF_A_STEP, each / SHORT_STEP_SECONDS)
    workload, ratios = arrays(SHORT_STEP_SECONDS), []
    with ap.build_trainer(workload, PipelineConfig(loader=ap.Threads(workers=1))) as trainer:
        trainer.fit(epochs=2, verbose=0)
        for _ in range(pairs):
            without, watched = (_epoch_seconds(trainer, given) for given in ([], [ap.DriftMonitor()]))
            ratios.append(watched / without)
    low, high = min(ratios), max(ratios)
    yield Claim(
        "DriftMonitor: the time of ten epochs by turns", f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"
    )


def _epoch_seconds(trainer: Any, callbacks: list[Any]) -> float:
    began = time.perf_counter()
    trainer.fit(epochs=10, verbose=0, callbacks=callbacks)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.5)
    arguments = parser.parse_args()
    with contextlib.redirect_stderr(None):
        for claim in costs_of_the_monitor(arguments.pairs):
            print(claim, flush=True)
        for claim in costs_of_a_trace(arguments.pairs, arguments.seconds):
            print(claim, flush=True)


if __name__ == "__main__":
    main()
