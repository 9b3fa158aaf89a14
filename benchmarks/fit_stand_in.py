"""What keeps `fit` below its bound: rows of fit_shares.py with threads that only compute in the loader's place.

    python benchmarks/fit_stand_in.py --photos DIR --camvid DIR [--only ROW,ROW] [--rounds N] [--json]

DIR as for loaders.py. The threads compute as long for a batch as the loader did when it ran alone, hold no lock
meanwhile, touch 16 KiB of memory, and hand over one batch, always the same. What such a training lacks to the bound is
no loader's doing: the model lacks it beside anything that computes on its cores. Model alone, loader alone, training
and stand-in run by turns, each row in a process of its own; shown are medians over rounds.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import itertools
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import claims
import fit_shares

from autopipe import assembly
from autopipe.core.config import PipelineConfig
from autopipe.core.loader import Loader
from autopipe.core.plan import Plan
from autopipe.core.workload import Workload
from autopipe.hardware import cpu
from autopipe.measure.bench import Bench
from autopipe.measure.meter import Meter
from autopipe.measure.probe import Probe
from autopipe.measure.resident import ResidentLoader
from autopipe.measure.windows import StopRule
from autopipe.ops.planner import make_plan

ROWS = [name for name in fit_shares.ROWS if name != "12 megapixels, reduced"]  # which has three batches an epoch
RULE = StopRule(min_seconds=1.0, max_seconds=2.0)
QUEUE = 8
COMPUTED = bytes(16384)  # to hash it takes some 20 us, without Python's lock


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


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a row runs with."""

    workload: Workload
    config: PipelineConfig
    plan: Plan
    bench: Bench

    def trained(self, loader: Loader) -> float:
        """Return images/s of a training on this loader."""
        with loader:
            if self.config.cache == "memory" and not isinstance(loader, StandIn):
                collections.deque(loader.batches(0), maxlen=0)  # which fills the cache
            probe = Probe(Meter(self.workload.batch_size, 1, RULE), loader)
            self.bench.run(loader, probe, self.config.model_setup)
        assert probe.meter.reading is not None
        return probe.meter.reading.rate.value

    def loader(self) -> Loader:
        return assembly.build_loader(self.workload, self.config, plan=self.plan)

    def loader_alone(self) -> tuple[float, float]:
        """Return images/s of a loader whose batches nobody uses, and processor seconds that an image takes."""
        with self.loader() as loader:
            batches = itertools.chain.from_iterable(loader.batches(epoch) for epoch in itertools.count())
            for _ in range(len(loader)):
                next(batches)
            began, used, images = time.perf_counter(), time.process_time(), 0
            while time.perf_counter() - began < RULE.min_seconds:
                images += len(next(batches)[0])
            return images / (time.perf_counter() - began), (time.process_time() - used) / images


def shares(name: str, place: str, rounds: int) -> tuple[float, float]:
    """Return what the loader's training and the stand-in's reach of their bound."""
    make, _, chosen = fit_shares.ROWS[name]
    workload, config = make(Path(place)), PipelineConfig.model_validate(chosen)
    assembly.keep_freed_memory(workload)
    plan = make_plan(workload)
    setting = Setting(workload, config, plan, Bench(workload, plan, 1, "last"))
    setup, workers = config.model_setup, config.loader.worker_count() or 1
    setting.trained(setting.loader())  # which compiles
    found = []
    for _ in range(rounds):
        alone = setting.bench.alone(setup, again=True)
        made, busy = setting.loader_alone()
        bound = min(alone.reading.rate.value, made, cpu.core_time() / (alone.core_seconds_per_image + busy))
        stand_in = StandIn(setting.bench.resident_loader(setup), workers, busy * workload.batch_size)
        found.append((setting.trained(setting.loader()) / bound, setting.trained(stand_in) / bound))
    loaders, stand_ins = zip(*found, strict=True)
    return statistics.median(loaders), statistics.median(stand_ins)


def main() -> None:
    parser = claims.arguments(__doc__)
    parser.add_argument("--only", default=",".join(name.replace(",", ";") for name in ROWS), help="`;` for a row's `,`")
    arguments = parser.parse_args()
    folders = {"photos": arguments.photos, "camvid": arguments.camvid}
    found: dict[str, tuple[float, float]] = {}
    for name in (each.replace(";", ",") for each in arguments.only.split(",")):
        data = fit_shares.ROWS[name][1]
        if fit_shares.ROWS[name][2]["loader"]["kind"] != "threads" or (data and not folders[data]):
            continue
        with tempfile.TemporaryDirectory() as own, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            row = functools.partial(shares, name, folders[data] if data else own, arguments.rounds)
            found[name] = pool.submit(row).result()
        if not arguments.json:
            print(claims.Claim(f"fit over its bound: {name}", f"{found[name][0]:.3f}"))
            print(claims.Claim("  with threads that only compute", f"{found[name][1]:.3f}"), flush=True)
    if arguments.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
