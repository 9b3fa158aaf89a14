"""Each op by itself in one thread, beside the same operation as other people write it.

    python benchmarks/ops.py --photos PHOTOS [--rounds 5] [--sizes 224 512] [--only RandomHue ...]

PHOTOS is a folder of class folders of JPEG photographs. Cells are milliseconds of a core for an image: processor time,
so that neighbours on the machine count less; medians of the rounds, in which all libraries take turns. An operation
that crops or resizes takes photographs 2.23 times as wide and 1.67 times as high as the size, which is 500x375 at 224;
every other one takes images of the size. autopipe, albumentations, Pillow and torchvision take and return bytes,
tf.image takes float32 for colours, Keras computes in float32. tf.image and Keras run in a map of tf.data, without
the time that the same loop takes with no map. The column of a library that is not installed is missing, which is said:
`pip install albumentations`, `pip install torch torchvision`.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import op_peers
from numpy.typing import NDArray
from op_peers import ALL_COLOURS, DEGREES, HUE, LIGHT, LOWER, MEAN, PADDING, STD, TINT, UPPER, Work
from rich.console import Console
from rich.table import Table

import autopipe as ap
from autopipe.hardware.processes import keep_freed_memory
from autopipe.workload import order
from autopipe.workload.ops.planner import joined, make_plan

IMAGES, BLOCK_SECONDS = 32, 0.1
AUTOPIPE = "autopipe"
BYTE_MEAN, BYTE_STD = (tuple(255 * each for each in numbers) for numbers in (MEAN, STD))


def ours(size: int) -> dict[str, tuple[str, list[Any]]]:
    """Return autopipe's ops by the names of rows, each with the code that does its work."""
    brightness, contrast = ap.RandomBrightness(), ap.RandomContrast(LOWER, UPPER)
    saturation, hue = ap.RandomSaturation(LOWER, UPPER), ap.RandomHue(HUE)
    moved = ap.RandomAffine(DEGREES, (0.1, 0.1), 10, (0.8, 1.2))
    return {
        "RandomFlip": ("cv2.flip", [ap.RandomFlip()]),
        "RandomCrop": ("a view", [ap.RandomCrop(size, size)]),
        "CenterCrop": ("a view", [ap.CenterCrop(size, size)]),
        "RandomResizedCrop": ("cv2.resize", [ap.RandomResizedCrop(size, size)]),
        "Resize": ("cv2.resize", [ap.Resize(size, size)]),
        "Resize, area": ("cv2.resize", [ap.Resize(size, size, "area")]),
        "Resize, bicubic": ("cv2.resize", [ap.Resize(size, size, "bicubic")]),
        "ResizeKeepingAspect": ("cv2.resize, copyMakeBorder", [ap.ResizeKeepingAspect(size, size)]),
        "Pad": ("cv2.copyMakeBorder", [ap.Pad(size + PADDING, size + PADDING)]),
        "RandomBrightness": ("cv2.add", [brightness]),
        "RandomContrast": ("cv2.sumElems, LUT", [contrast]),
        LIGHT: ("both of them", [brightness, contrast]),
        "RandomSaturation": ("cv2, on planes of bytes", [saturation]),
        "RandomHue": ("cv2.cvtColor, float32", [hue]),
        TINT: ("both of them", [saturation, hue]),
        ALL_COLOURS: ("all four", [brightness, contrast, saturation, hue]),
        "RandomGrayscale": ("cv2.cvtColor", [ap.RandomGrayscale(1.0)]),
        "GaussianBlur": ("cv2.GaussianBlur", [ap.GaussianBlur()]),
        "RandomErasing": ("NumPy", [ap.RandomErasing(1.0)]),
        "RandomAffine, rotation": ("cv2.warpAffine", [ap.RandomAffine(DEGREES)]),
        "RandomAffine": ("cv2.warpAffine", [moved]),
        "Cast": ("NumPy", [ap.Cast("float32")]),
        "Rescale": ("NumPy", [ap.Rescale(1 / 255)]),
        "Normalize": ("NumPy", [ap.Normalize(BYTE_MEAN, BYTE_STD)]),
    }


ON_PHOTOS = ("RandomCrop", "CenterCrop", "RandomResizedCrop", "Resize", "Resize, area", "Resize, bicubic",
             "ResizeKeepingAspect")  # fmt: skip


def our_work(ops: Sequence[Any], images: NDArray[np.uint8]) -> Work:
    """Return what takes images through ops as a worker does: numbers are drawn for a batch, and it has room for x."""
    count, indices = len(images), np.arange(len(images))
    steps = joined(make_plan(ap.Workload(data=ap.Arrays(images), ops=ops, batch_size=count)).steps)
    last = steps[-1].after.x
    room = np.empty((count, *(last.shape or ())), last.dtype)
    outs = [list(room) if step.after.x == last else [None] * count for step in steps]

    def run(times: int) -> None:
        for epoch in range(times):
            numbers = [order.uniforms(0, epoch, indices, step.stream, step.op.draws) for step in steps]
            for row, image in enumerate(images):
                sample: Any = image, None
                for step, drawn, out in zip(steps, numbers, outs, strict=True):
                    sample = step.op.apply(sample, step.before, drawn[row], out[row])

    return run


class Row:
    """An operation of one library at one size: the milliseconds of an image, in each round."""

    def __init__(self, work: Work, loop: Work | None = None) -> None:
        self._work, self._loop, self._times, self.found = work, loop, 1, list[float]()

    def settle(self) -> None:
        """Run it for the first time, and find how often makes a block."""
        for work in filter(None, (self._work, self._loop)):
            work(1)
        self._times = max(1, round(BLOCK_SECONDS / self._seconds(self._work)))

    def measure(self) -> None:
        alone = 0.0 if self._loop is None else self._seconds(self._loop)
        self.found.append(1e3 * (self._seconds(self._work) - alone) / (self._times * IMAGES))

    def _seconds(self, work: Work) -> float:
        began = time.process_time()
        work(self._times)
        return time.process_time() - began


def pictures(folder: Path, size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return photographs and images as the docstring above says, of files that are spread over the folder."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    chosen = [cv2.imread(str(path), cv2.IMREAD_COLOR_RGB) for path in files[:: max(1, len(files) // IMAGES)][:IMAGES]]
    wide, high = round(size * 500 / 224), round(size * 375 / 224)
    photos, images = ([cv2.resize(each, to) for each in chosen] for to in ((wide, high), (size, size)))
    return np.stack(photos), np.stack(images)


def rows_of(size: int, folder: Path, only: Sequence[str], peers: Sequence[str]) -> dict[tuple[str, str], Row]:
    """Return the rows of one size, by operation and library."""
    photos, images = pictures(folder, size)
    made = {library: op_peers.PEERS[library][1](size) for library in peers}
    rows: dict[tuple[str, str], Row] = {}
    for name, (_, ops) in ours(size).items():
        if only and name not in only:
            continue
        given = photos if name in ON_PHOTOS else images
        rows[name, AUTOPIPE] = Row(our_work(ops, given))
        for library, peer in made.items():
            if name in peer.ways:
                rows[name, library] = Row(*peer.works(peer.ways[name], given))
    return rows


def medians(rows: dict[tuple[str, str], Row], rounds: int) -> dict[tuple[str, str], float]:
    for row in rows.values():
        row.settle()
    for _ in range(rounds):
        for row in rows.values():
            row.measure()
    return {place: statistics.median(row.found) for place, row in rows.items()}


def installed() -> list[str]:
    """Return the libraries that are here, and name the others."""
    missing = [name for name, (package, _) in op_peers.PEERS.items() if importlib.util.find_spec(package) is None]
    for name in missing:
        print(f"{name} is not installed: its column is missing")
    return [name for name in op_peers.PEERS if name not in missing]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[224, 512])
    parser.add_argument("--only", nargs="+", default=[], help="operations (default: all)")
    chosen = parser.parse_args()
    cv2.setNumThreads(0)
    keep_freed_memory()  # as in every worker of a loader
    peers = installed()
    sizes = [medians(rows_of(size, chosen.photos, chosen.only, peers), chosen.rounds) for size in chosen.sizes]
    heads = ["ms an image at " + ", ".join(map(str, chosen.sizes)), "autopipe runs", AUTOPIPE, *peers]
    table = Table(*heads, box=None, pad_edge=False, header_style="bold")
    for name, (code, _) in ours(chosen.sizes[0]).items():
        if (name, AUTOPIPE) in sizes[0]:
            cells = (
                ", ".join(f"{found[name, library]:.3f}" for found in sizes) if (name, library) in sizes[0] else "-"
                for library in (AUTOPIPE, *peers)
            )
            table.add_row(name, code, *cells)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
