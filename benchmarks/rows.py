"""What is timed: each row is an endless iterator over batch sizes, and runs in a process of its own (`serve`)."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import crop_rows
import cv2
import peers
import psutil
import small_rows

from autopipe.hardware import processes as allocator
from autopipe.pipeline.assembly import make_loader
from autopipe.pipeline.batching.cache import RowLayout, SharedBlock
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.loader import Loader, LoadJob
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.workers import Processes, Threads
from autopipe.workload.data.images import ImageFolder, ImagePairs
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.sizes import RandomCrop, Resize
from autopipe.workload.ops.values import MaskToClass, OneHot, Rescale
from autopipe.workload.workload import Workload

PLAIN, GRAIN = "plain Keras and OpenCV", "Grain and OpenCV"
SKIP = 16  # batches not counted at the start of a block: more than any queue here holds
Rates = Callable[[Path], Iterator[int]]


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table. `warm_images` are consumed before the first block, `cores` scales what ran on one; `code`
    says whose code it is.

    `skip` calls are not counted at the start of a block.
    """

    run: Rates
    output: str
    data: str = "photos"
    warm_images: int = 4000
    scale: int = 1
    code: str = "autopipe"
    skip: int = SKIP


def photos(folder: Path) -> Workload:
    ops = [Decode(), Resize(peers.SIZE, peers.SIZE), RandomFlip(), Rescale(1 / 255)]
    return Workload(data=ImageFolder(folder), ops=ops, batch_size=peers.BATCH, drop_remainder=True)


def camvid(folder: Path) -> Workload:
    crop = peers.CAMVID_CROP
    ops = [
        Decode(),
        MaskToClass(folder / "palette.csv"),
        RandomCrop(crop, crop),
        RandomFlip(),
        OneHot(32),
        Rescale(1 / 255),
    ]
    return Workload(data=ImagePairs(folder / "images", folder / "masks"), ops=ops, batch_size=peers.CAMVID_BATCH)


WORKLOADS: dict[str, Callable[[Path], Workload]] = {"photos": photos, "camvid": camvid}


def endless(loader: Loader) -> Iterator[int]:
    for epoch in itertools.count():
        for x, _ in loader.batches(epoch):
            yield len(x)


def ours(folder: Path, data: str, loader: LoaderConfig, finish: str, keep: str) -> Iterator[int]:
    config = PipelineConfig.model_validate({"loader": loader, "finish": finish, "keep": keep})
    with make_loader(WORKLOADS[data](folder), config) as made:
        yield from endless(made)


def bare_loop(folder: Path, finish: str) -> Iterator[int]:
    """Run the kernel in a loop on one core: what R is made of."""
    cv2.setNumThreads(0)
    allocator.keep_freed_memory()
    jobs: list[LoadJob] = []

    class Catch(Threads):
        def open(self, job: LoadJob) -> Loader:
            jobs.append(job)
            raise StopIteration

    try:
        make_loader(photos(folder), PipelineConfig.model_validate({"loader": Catch(workers=1), "finish": finish}))
    except StopIteration:
        job = jobs[0]
    layout = RowLayout(job.recipe.spec, peers.BATCH)
    batch, kernel = layout.arrays(SharedBlock(layout.size)), Kernel(job.recipe)
    for epoch in itertools.count():
        order = job.order.epoch(epoch)
        for start in range(0, len(order) - peers.BATCH + 1, peers.BATCH):
            kernel.fill(epoch, order[start : start + peers.BATCH], batch)
            yield peers.BATCH


def bare_loops(folder: Path, cores: int) -> Iterator[int]:
    """Run the bare loop in a process a core at once: what the cores really make together."""
    context = multiprocessing.get_context("spawn")
    made = context.SimpleQueue()
    for _ in range(cores):
        context.Process(target=_hand_over, args=(folder, made), daemon=True).start()
    while True:
        yield made.get()


def _hand_over(folder: Path, made: multiprocessing.SimpleQueue[int]) -> None:
    for count in bare_loop(folder, "device"):
        made.put(count)


def _ours(loader: LoaderConfig, finish: str = "device", keep: str = "none", data: str = "photos") -> Row:
    run = functools.partial(ours, data=data, loader=loader, finish=finish, keep=keep)
    compact = "uint8 + class ids" if data == "camvid" else "uint8"
    warm = {"photos": 4000, "camvid": 60}[data] * (2 if keep == "memory" else 1)
    warm = max(warm, 900) if data == "camvid" and keep == "memory" else warm
    return Row(run, "float32" if finish == "host" else compact, data, warm)


def _searched(make: Callable[..., Iterator[int]], cores: int, output: str, code: str, **settings: bool) -> Row:
    return Row(functools.partial(peers.searched, make, cores=cores, **settings), output, warm_images=600, code=code)


def table(cores: int) -> dict[str, Row]:
    """Return the rows by name, for a machine with so many cores."""
    threads, processes = Threads(workers=cores), Processes(workers=cores)
    peer = functools.partial
    return {
        "R": Row(peer(bare_loop, finish="device"), "uint8", scale=cores),
        "R host": Row(peer(bare_loop, finish="host"), "float32", scale=cores),
        "R at once": Row(peer(bare_loops, cores=cores), "uint8"),
        "threads": _ours(threads),
        "threads host": _ours(threads, "host"),
        "processes": _ours(processes),
        "processes host": _ours(processes, "host"),
        "tfdata": _ours(TfData(num_parallel_calls=2 * cores, prefetch=4)),
        "tfdata host": _ours(TfData(num_parallel_calls=2 * cores, prefetch=4), "host"),
        "tfdata auto": _ours(TfData()),
        "tf.data AUTOTUNE": Row(peers.tf_autotune, "float32", warm_images=16000, code="plain tf.data"),
        "PyDataset": Row(peer(peers.keras_dataset, workers=0, processes=False), "float32", warm_images=600, code=PLAIN),
        "PyDataset threads": _searched(peers.keras_dataset, cores, "float32", PLAIN, processes=False),
        "PyDataset processes": _searched(peers.keras_dataset, cores, "float32", PLAIN, processes=True),
        "Grain threads": _searched(peers.grain, cores, "uint8", GRAIN, processes=False, as_float=False),
        "Grain processes": _searched(peers.grain, cores, "uint8", GRAIN, processes=True, as_float=False),
        "DALI CPU": _searched(peers.dali, cores, "uint8", "DALI; pixels within one level"),
        "SPDL": _searched(peers.spdl, cores, "uint8", "SPDL and OpenCV"),
        "threads cached": _ours(threads, keep="memory"),
        "processes cached": _ours(processes, keep="memory"),
        "tfdata cached": _ours(TfData(), keep="memory"),
        "tf.data cached": Row(peers.tf_cached, "uint8", warm_images=16000, code="plain tf.data"),
        "camvid threads": _ours(threads, data="camvid"),
        "camvid processes": _ours(processes, data="camvid"),
        "camvid threads cached": _ours(threads, keep="memory", data="camvid"),
        "camvid processes cached": _ours(processes, keep="memory", data="camvid"),
        "camvid tf.data": Row(peers.tf_camvid, "float32, 32 planes", "camvid", warm_images=60, code="plain tf.data"),
    } | {
        name: Row(run, out, data, warm, skip=skip, code=whose[0] if whose else small_rows.whose(run))
        for name, (run, out, data, warm, skip, *whose) in (small_rows.ROWS | crop_rows.ROWS).items()
    }


def serve(row: Row, folder: Path) -> None:
    """Answer each line `SECONDS` on stdin with images/s and images per processor second of that long a block.

    Before the first one comes "ready", or why the row cannot run.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer
    sizes = row.run(folder)
    seen = 0
    try:
        while seen < row.warm_images:
            seen += next(sizes)
    except (ImportError, OSError, RuntimeError) as error:  # a package, a library or a device is missing
        print(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", file=answers, flush=True)
        raise
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        for _ in range(row.skip):
            next(sizes)
        images, start, cpu = 0, time.perf_counter(), cpu_seconds()
        while (seconds := time.perf_counter() - start) < float(line):
            images += next(sizes)
        cpu = cpu_seconds() - cpu
        print(images / seconds * row.scale, images / cpu, file=answers, flush=True)


def cpu_seconds() -> float:
    """Return the processor time of this process and its children so far."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(spent.user + spent.system for spent in times)
