"""What training reaches of what it could: the rows of loaders.py through `fit`, each over its bound.

    python benchmarks/fit_shares.py --photos DIR --camvid DIR [--only ROW,ROW] [--rounds N] [--json]

DIR as for loaders.py; rows without a folder make their own data (small_rows.py). A row is a configuration that trains a
small model, in a process of its own. Its bound is the least of what the model does alone on a batch that is there, what
the loader does alone, and what the cores allow where both work on them: those of the machine over the processor time
that an image takes the two. In each round all are measured by turns, every round in another order, since a machine's
speed may double from one second to the next; shown is the median of the rounds' shares, the target is 0.95.

For what is missing there is a stand-in: threads in the loader's place that only compute, as long for a batch as the
loader did when it ran alone, hold no lock meanwhile, touch 16 KiB of memory, and hand over one batch, always the same.
What such a training lacks to the bound is no loader's doing: the model lacks it beside anything on its cores.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import itertools
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import claims
import rows
import small_rows

import autopipe as ap
from autopipe.hardware import machine, processes
from autopipe.measure.bench import Bench, Probe, ResidentLoader
from autopipe.measure.meter import Meter
from autopipe.measure.outcome import StopRule
from autopipe.pipeline import assembly
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loader import Loader
from autopipe.pipeline.loaders.threads import Threads
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload

TARGET = 0.95
RULE = StopRule(min_seconds=0.5, max_seconds=1.0)
QUEUE = 8  # batches that may wait, as of a loader
COMPUTED = bytes(16384)  # to hash it takes some 20 us, without Python's lock


def classifier() -> Any:
    """Return a small CNN."""
    import keras

    layers = keras.layers
    convolutions = [layers.Conv2D(16, 3, strides=4, activation="relu"), layers.Conv2D(32, 3, strides=2)]
    model = keras.Sequential([*convolutions, layers.GlobalAveragePooling2D(), layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def segmenter() -> Any:
    """Return the same for masks of 32 classes."""
    import keras

    layers = keras.layers
    model = keras.Sequential([layers.Conv2D(8, 3, strides=4, padding="same"), layers.UpSampling2D(4), layers.Dense(32)])
    model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
    return model


def photos(folder: Path) -> Workload:
    return ap.Workload(
        data=ap.ImageFolder(folder), ops=rows.photos(folder).ops, batch_size=32, model=classifier, drop_remainder=True
    )


def camvid(folder: Path) -> Workload:
    made = rows.camvid(folder)
    return ap.Workload(data=made.data, ops=made.ops, batch_size=3, model=segmenter, drop_remainder=True)


def arrays(folder: Path) -> Workload:
    ops = (ap.RandomFlip(), ap.Rescale(1 / 255))
    return ap.Workload(
        data=ap.Arrays(*small_rows.images()), ops=ops, batch_size=128, model=classifier, drop_remainder=True
    )


def files(folder: Path, *, count: int, size: tuple[int, int], reduce: bool = False) -> Workload:
    """Read files that are made at the first call and kept in `folder`."""
    if not any(folder.iterdir()):
        small_rows.written(folder, count, *size)
    resize = (ap.Resize(224, 224),) if reduce else ()
    ops = (ap.Decode(reduce=reduce), *resize, ap.RandomFlip(), ap.Rescale(1 / 255))
    return ap.Workload(
        data=ap.ImageFolder(folder), ops=ops, batch_size=8 if reduce else 32, model=classifier, drop_remainder=True
    )


small = functools.partial(files, count=2000, size=(64, 64))
large = functools.partial(files, count=small_rows.LARGE, size=(3000, 4000), reduce=True)
mlp = small_rows.mlp_workload
THREADS, PROCESSES = {"kind": "threads", "workers": 2}, {"kind": "processes", "workers": 2}
ONE = {"kind": "threads", "workers": 1}

# name: (workload, data it is given, configuration)
ROWS: dict[str, tuple[Callable[[Path], Workload], str, dict[str, Any]]] = {
    "photos, threads": (photos, "photos", {"loader": THREADS}),
    "photos, processes": (photos, "photos", {"loader": PROCESSES}),
    "photos, threads, float32": (photos, "photos", {"loader": THREADS, "finish": "host"}),
    "photos, threads, cached": (photos, "photos", {"loader": THREADS, "keep": "memory"}),
    "camvid, processes": (camvid, "camvid", {"loader": PROCESSES}),
    "arrays, flip": (arrays, "", {"loader": ONE, "steps_per_execution": 32}),
    "64x64, cached": (small, "", {"loader": ONE, "keep": "memory", "steps_per_execution": 8}),
    "12 megapixels, reduced": (large, "", {"loader": THREADS}),
    "MLP": (mlp, "", {"loader": ONE, "steps_per_execution": small_rows.TOGETHER}),
}


class StandIn(ResidentLoader):
    """Hands over one batch whenever a thread has computed as long as a batch takes to make."""

    def __init__(self, resident: ResidentLoader, threads: int, seconds: float) -> None:
        vars(self).update(vars(resident))
        self._seconds, self._closed = seconds, False
        self._room, self._made = threading.Semaphore(QUEUE), threading.Semaphore(0)
        for _ in range(threads):
            threading.Thread(target=self._work, daemon=True).start()

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Any]:
        for batch in itertools.cycle(self._batches):
            self._made.acquire()
            yield batch
            self._room.release()

    def _work(self) -> None:
        while not self._closed:
            self._room.acquire()
            ends = time.thread_time() + self._seconds
            while time.thread_time() < ends:
                hashlib.blake2b(COMPUTED)
            self._made.release()

    def close(self) -> None:
        """Let the threads end."""
        self._closed = True
        self._room.release(QUEUE)


class Measured:
    """One row, ready to be measured: its model is compiled, its loader open, its cache full."""

    def __init__(self, workload: Workload, config: PipelineConfig) -> None:
        processes.keep_freed_memory()
        plan = make_plan(workload)
        self._workload, self._config = workload, config
        self._bench = Bench(workload, plan, 1, "last")
        self._loader = assembly.build_loader(workload, config, plan=plan)
        self._epochs = itertools.count()
        self._busy = 0.0  # processor seconds of an image in the loader
        collections.deque(self._loader.batches(next(self._epochs)), maxlen=0)
        self.fit()  # which compiles
        self.loader()

    @property
    def has_stand_in(self) -> bool:
        """Whether there is one: processes compute without this one's lock and memory anyway."""
        return isinstance(self._config.loader, Threads)

    def model(self) -> tuple[float, float]:
        """Return images/s of the model alone, and what the cores allow beside the loader."""
        alone = self._bench.alone(self._config.model_setup, again=True)
        rate, busy = alone.model_images_per_second.value, alone.model_core_seconds_per_image
        return rate, machine.core_time() / (busy + self._busy)

    def loader(self) -> float:
        """Return images/s of the loader alone."""
        batches = itertools.chain.from_iterable(map(self._loader.batches, self._epochs))
        for _ in range(self._loader.buffered_batches + 1):
            next(batches)
        began, used, images = time.perf_counter(), rows.cpu_seconds(), 0
        while time.perf_counter() - began < RULE.min_seconds:
            images += len(next(batches)[0])
        seconds = time.perf_counter() - began
        self._busy = (rows.cpu_seconds() - used) / images
        return images / seconds

    def fit(self) -> float:
        """Return images/s of a training by the loader."""
        return self._trained(self._loader)

    def stand_in(self) -> float:
        """Return images/s of a training by the stand-in."""
        resident = self._bench.resident_loader(self._config.model_setup)
        busy = self._busy * self._workload.batch_size
        with StandIn(resident, self._config.loader.worker_count() or 1, busy) as loader:
            return self._trained(loader)

    def _trained(self, loader: Loader) -> float:
        probe = Probe(Meter(self._workload.batch_size, 1, RULE), loader)
        self._bench.run(loader, probe, self._config.model_setup)
        assert probe.meter.reading is not None
        return probe.meter.reading.rate.value

    def close(self) -> None:
        """End the loader."""
        self._loader.close()


def shares(name: str, place: str, rounds: int) -> tuple[float, float | None]:
    """Return what a row's training and its stand-in's reach of their bound."""
    make, _, chosen = ROWS[name]
    row = Measured(make(Path(place)), PipelineConfig.model_validate(chosen))
    turns: list[Callable[[], Any]] = [row.model, row.loader, row.fit, *([row.stand_in] if row.has_stand_in else [])]
    trained: list[list[float]] = [[], []]
    for number in range(rounds):
        found = {turn: turn() for turn in itertools.islice(itertools.cycle(turns), number, number + len(turns))}
        bound = min(*found[row.model], found[row.loader])
        for share, turn in zip(trained, turns[2:], strict=False):
            share.append(found[turn] / bound)
    row.close()
    return statistics.median(trained[0]), statistics.median(trained[1]) if trained[1] else None


def main() -> None:
    parser = claims.arguments(__doc__)
    parser.add_argument("--only", default=",".join(name.replace(",", ";") for name in ROWS), help="`;` for a row's `,`")
    arguments = parser.parse_args()
    folders = {"photos": arguments.photos, "camvid": arguments.camvid}
    found: dict[str, tuple[float, float | None]] = {}
    for name in (each.replace(";", ",") for each in arguments.only.split(",")):
        data = ROWS[name][1]
        if data and not folders[data]:
            continue
        with tempfile.TemporaryDirectory() as own, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            row = functools.partial(shares, name, folders[data] if data else own, arguments.rounds)
            found[name] = pool.submit(row).result()
        if not arguments.json:
            share, stand_in = found[name]
            print(claims.at_least(f"fit over its bound: {name}", TARGET, share))
            if stand_in is not None:
                print(claims.Claim("  with threads that only compute", f"{stand_in:.3f}"), flush=True)
    if arguments.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
