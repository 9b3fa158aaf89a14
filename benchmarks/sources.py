"""The rate of a loader over the same photographs in every kind of source, beside that over their files.

    python benchmarks/sources.py examples/photos/demo --rounds 5
    python benchmarks/sources.py examples/photos/demo --only HDF5 TFRecords

By turns, in one process, with the page cache warm: each round reads three epochs from each source. Where decoding is
the work, a source should give 0.95 of the files' rate or more. `NPZ` has pixels of one size, which are not decoded, and
so is no comparison.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import datasets
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import autopipe as ap
from autopipe.workload.data.records import frame, serialise

SIZE = 160


def sources(photos: Path, room: Path) -> dict[str, Callable[[], Any]]:
    """Write the photographs in every kind of source, and return what opens each."""
    folder = ap.ImageFolder(photos)
    images, labels = zip(*(folder.read(number) for number in range(len(folder))), strict=True)
    (room / "0.tfrecord").write_bytes(
        b"".join(
            frame(serialise({"image/encoded": image, "image/class/label": label}))
            for image, label in zip(images, labels, strict=True)
        )
    )
    rows = "".join(f"{path},{label}\n" for path, label in zip(folder.files(), labels, strict=True))
    (room / "labels.csv").write_text(f"path,label\n{rows}")
    pq.write_table(pa.table({"image": list(images), "label": list(labels)}), room / "photos.parquet")
    datasets.Dataset.from_dict({"image": list(images), "label": list(labels)}).save_to_disk(room / "hf")
    with h5py.File(room / "photos.h5", "w") as file:
        x = file.create_dataset("x", len(images), h5py.vlen_dtype(np.uint8))
        for number, image in enumerate(images):
            x[number] = np.frombuffer(image, np.uint8)
        file["y"] = np.array(labels)
    pixels = [cv2.resize(cv2.imdecode(np.frombuffer(image, np.uint8), 1), (SIZE, SIZE)) for image in images]
    np.savez(room / "photos.npz", x=np.stack(pixels), y=np.array(labels))
    return {
        "ImageFolder": lambda: ap.ImageFolder(photos),
        "Table": lambda: ap.Table(room / "labels.csv"),
        "TFRecords": lambda: ap.TFRecords(room / "*.tfrecord"),
        "HuggingFace": lambda: ap.HuggingFace(room / "hf"),
        "Parquet": lambda: ap.Parquet(room / "*.parquet"),
        "HDF5": lambda: ap.HDF5(room / "photos.h5"),
        "NPZ (pixels)": lambda: ap.NPZ(room / "photos.npz"),
    }


def rate(workload: ap.Workload, workers: int) -> float:
    """Return images/s over three epochs of a loader of its own: one that is open goes on reading in another's turn."""
    config = ap.PipelineConfig(loader=ap.Threads(workers=workers, queue_size=2))
    with ap.build_loader(workload, config) as loader:
        started = time.perf_counter()
        count = sum(len(x) for epoch in range(3) for x, _ in loader.batches(epoch))
        return count / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="a folder with one folder for each class")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each source (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="threads (default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], help="sources to measure beside the files (default: all)")
    arguments = parser.parse_args()
    ops = [ap.Decode(), ap.Resize(SIZE, SIZE), ap.RandomFlip()]
    with tempfile.TemporaryDirectory() as room:
        made = sources(arguments.photos.absolute(), Path(room))
        if unknown := set(arguments.only) - set(made):
            parser.error(f"--only must name some of {', '.join(made)}, but got {', '.join(sorted(unknown))}")
        workloads = {
            name: ap.Workload(data=make(), ops=ops, batch_size=16)
            for name, make in made.items()
            if not arguments.only or name in ("ImageFolder", *arguments.only)
        }
        rates: dict[str, list[float]] = {name: [] for name in workloads}
        for _ in range(arguments.rounds + 1):  # the first warms the page cache
            for name, workload in workloads.items():
                rates[name].append(rate(workload, arguments.workers))
    files = rates["ImageFolder"][1:]
    of_files = {
        name: statistics.median(each / base for each, base in zip(found[1:], files, strict=True))
        for name, found in rates.items()
    }
    print(
        json.dumps(
            {"images_per_second": {name: found[1:] for name, found in rates.items()}, "of_files": of_files}, indent=2
        )
    )


if __name__ == "__main__":
    main()
