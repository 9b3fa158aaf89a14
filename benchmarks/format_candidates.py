"""Forms that are not built, measured beside those that are, so that leaving them out is a decision.

One core, read in a random order, page cache warm. `jpeg-array`: the resized image as a JPEG of quality 95, which is
lossy. `array_record`: the resized image's bytes as records of one sample, read by its own package.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import format_rows
import format_runs
import numpy as np

from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage.layout import open_set

QUALITY = 95


def candidates(folder: Path, sets: Path, rounds: int) -> dict[str, Any]:
    """Return images/s on one core and bytes a sample of each form, and by how much the lossy one changes pixels."""
    cv2.setNumThreads(0)
    workload = format_rows.kept(folder, "photos", sets)
    files, encoded = (format_runs.conversion_of(workload, form) for form in ("array", "tfrecord"))
    array = open_set(sets / "photos" / "array", files, STORAGES["array"])
    records = open_set(sets / "photos" / "tfrecord", encoded, STORAGES["tfrecord"])
    count = len(array)
    jpegs = [_jpeg(array.read(index)[0]) for index in range(count)]
    readers: dict[str, tuple[Callable[[int], Any], float]] = {
        "files: decode, resize": (files.sample, workload.data.mean_bytes()),  # type: ignore[attr-defined]
        "tfrecord: decode, resize": (
            lambda index: cv2.resize(_decoded(records.read(index)[0]), array.read(0)[0].shape[1::-1]),
            records.mean_bytes(),
        ),
        "jpeg-array: decode": (lambda index: _decoded(jpegs[index]), statistics.mean(map(len, jpegs))),
        "array": (lambda index: np.array(array.read(index)[0]), array.mean_bytes()),
    }
    _add_array_record(readers, array, sets)
    order = np.random.default_rng(0).permutation(count).tolist()
    rates: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(rounds):
        for name, (read, _) in readers.items():
            rates[name].append(_rate(read, order))
    errors = [
        np.abs(_decoded(jpegs[index]).astype(int) - array.read(index)[0])
        for index in range(0, count, max(1, count // 50))
    ]
    return {
        "rows": {
            name: {
                "images_per_second": statistics.median(rates[name]),
                "output": f"uint8 on one core, {size / 1024:.0f} KiB a sample",
                "blocks": rates[name],
            }
            for name, (_, size) in readers.items()
        },
        "pixels_changed_by": {
            "mean_levels": float(np.mean([error.mean() for error in errors])),
            "largest": int(max(error.max() for error in errors)),
        },
        "claims": [],
    }


def _add_array_record(readers: dict[str, tuple[Callable[[int], Any], float]], array: Any, sets: Path) -> None:
    try:
        from array_record.python import array_record_module as module
    except ImportError:
        return
    path = sets / "photos.array_record"
    writer = module.ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for index in range(len(array)):
        writer.write(array.read(index)[0].tobytes())
    writer.close()
    reader = module.ArrayRecordReader(str(path), "readahead_buffer_size:0,max_parallelism:0")
    shape = array.read(0)[0].shape
    size = path.stat().st_size / len(array)
    readers["array_record"] = (lambda index: np.frombuffer(reader.read([index])[0], np.uint8).reshape(shape), size)


def _rate(read: Callable[[int], Any], order: list[int], at_most: float = 1.0) -> float:
    done, began = 0, time.perf_counter()
    for index in order:
        read(index)
        done += 1
        if time.perf_counter() - began > at_most:
            break
    return done / (time.perf_counter() - began)


def _jpeg(image: Any) -> bytes:
    encoded = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1]
    return bytes(encoded)


def _decoded(encoded: bytes) -> Any:
    return cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR_RGB)
