"""What `formats.py` times besides rows: conversions, predictions made from a part, payback, and a cold page cache.

Every function returns raw figures of its rounds; medians and targets are `formats.py`'s.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
from page_residency import resident_share

from autopipe.hardware import disk
from autopipe.measure import costs
from autopipe.measure.costs import CostProfile
from autopipe.measure.feed import cost_of
from autopipe.pipeline import assembly
from autopipe.pipeline.assembly import build_loader
from autopipe.pipeline.config import STORAGES, PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.pipeline.storage.convert import Converted, convert
from autopipe.pipeline.storage.form import Conversion
from autopipe.workload.data.paths import spread
from autopipe.workload.data.source import Subset
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload

PART = 400  # samples of a trial's part: what is converted in a fraction of a second


def decode_rate(conversion: Conversion, cores: int) -> float:
    """Return samples/s at which all cores make the samples that are to be kept, and drop them."""
    cv2.setNumThreads(0)
    count = len(conversion)
    began = time.perf_counter()

    def make(first: int) -> None:
        for index in range(first, count, cores):
            conversion.sample(index)

    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        list(pool.map(make, range(cores)))
    return count / (time.perf_counter() - began)


@contextmanager
def converted(conversion: Conversion, form: str, cores: int, where: Path) -> Iterator[Converted]:
    """Convert into a folder that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="set-", dir=where))
    try:
        yield convert(conversion, STORAGES[form], folder, workers=cores)
    finally:
        shutil.rmtree(folder)


def conversion_of(workload: Workload, form: str) -> Conversion:
    return assembly.conversion_of(workload, make_plan(workload), STORAGES[form])


def conversions(workload: Workload, form: str, cores: int, rounds: int, where: Path) -> list[dict[str, float]]:
    """Time, in turn: decoding on all cores, converting a part, converting the whole; return each round's figures."""
    whole = conversion_of(workload, form)
    part = conversion_of(dataclasses.replace(workload, data=Subset(workload.data, PART)), form)
    found = []
    for _ in range(rounds):
        decoded = decode_rate(whole, cores)
        with converted(part, form, cores, where) as done:
            cost = cost_of(done, part.cut)
        predicted = costs.conversion_seconds(cost, len(whole))
        with converted(whole, form, cores, where) as done:
            assert done.manifest is not None
            found.append({
                "decode_per_second": decoded,
                "convert_per_second": len(whole) / done.seconds,
                "predicted_seconds": predicted.value,
                "predicted_low": predicted.low,
                "predicted_high": predicted.high,
                "seconds": done.seconds,
                "predicted_bytes": float(costs.conversion_bytes(cost, len(whole))),
                "bytes": float(done.manifest.bytes),
            })  # fmt: skip
    return found


class Model:
    """Takes batches at a fixed rate without using the cores, as an accelerator does."""

    def __init__(self, images_per_second: float) -> None:
        self._rate = images_per_second

    def train(self, workload: Workload, config: PipelineConfig, epochs: int) -> tuple[float, list[float]]:
        """Return the seconds to open the loader, and those of each epoch."""
        began = time.perf_counter()
        with build_loader(workload, config) as loader:
            opened = time.perf_counter() - began
            seconds = []
            free_at = time.perf_counter()
            for epoch in range(epochs):
                start = time.perf_counter()
                for x, _ in loader.batches(epoch, last=epoch == epochs - 1):
                    free_at = max(free_at, time.perf_counter()) + len(x) / self._rate
                    time.sleep(max(0.0, free_at - time.perf_counter()))
                seconds.append(time.perf_counter() - start)
        return opened, seconds


def pays_back(workload: Workload, cores: int, faster: float, where: Path) -> dict[str, float]:
    """Predict from parts after how many epochs `array` pays, then train that many epochs both ways and look.

    Args:
        workload: with all of its data.
        cores: threads of the loader and of the conversion.
        faster: how many times more images/s the model takes than files give.
        where: a folder for the sets.
    """
    files = PipelineConfig(loader=Threads(workers=cores))
    array = PipelineConfig(loader=Threads(workers=cores), keep="array")
    part = dataclasses.replace(workload, data=Subset(workload.data, PART))
    count = len(workload.data)
    _, epochs = Model(1e9).train(workload, files, 2)
    model = Model(faster * count / epochs[-1])
    # The prediction, from two epochs of files (a trial trains on all of them) and a converted part.
    _, epochs = model.train(workload, files, 3)
    rival = CostProfile(images_per_second=count / statistics.median(epochs))
    with converted(conversion_of(part, "array"), "array", cores, where) as done:
        cost = cost_of(done, 0)
        _, epochs = model.train(dataclasses.replace(part, converted=str(done.folder)), array, 6)
    rate = (PART - PART % workload.batch_size) / statistics.median(epochs)
    kept = CostProfile(images_per_second=rate, once_seconds=costs.conversion_seconds(cost, count).value)
    predicted = costs.epochs_to_pay(kept, rival, count)
    assert predicted is not None
    # The real run: so many epochs of each, the conversion of all samples first.
    wanted = int(predicted) + 2
    opened, slow = model.train(workload, files, wanted)
    slow[0] += opened
    with converted(conversion_of(workload, "array"), "array", cores, where) as done:
        opened, fast = model.train(dataclasses.replace(workload, converted=str(done.folder)), array, wanted)
        fast[0] += opened + done.seconds
    return {"predicted_epochs": predicted, "epochs": _crossing(fast, slow), "trained_epochs": float(wanted)}


def _crossing(fast: list[float], slow: list[float]) -> float:
    """Return the epoch, with a fraction, at which the times spent are equal; beyond the last by its difference."""
    behind = 0.0
    for epoch, (one, other) in enumerate(zip(fast, slow, strict=True)):
        before, behind = behind, behind + one - other
        if epoch and behind <= 0 < before:
            return epoch + before / (before - behind)
    saved = (sum(slow[1:]) - sum(fast[1:])) / (len(slow) - 1)
    return len(slow) + behind / saved


def cold(workload: Workload, config: PipelineConfig, files: list[Path]) -> dict[str, float]:
    """Return images/s of one epoch whose files were dropped from the page cache before, and what was left in it."""
    disk.drop(files)
    resident = resident_share(files)
    images, began = 0, time.perf_counter()
    with build_loader(workload, config) as loader:
        for x, _ in loader.batches(0, last=True):
            images += len(x)
        seconds = time.perf_counter() - began
        del x
    return {"images_per_second": images / seconds, "resident_share": resident if resident is not None else -1.0}


def prepare(workload: Workload, data: str, sets: Path, cores: int) -> dict[str, Any]:
    """Write the sets that rows read; return their sizes."""
    sizes = {}
    for form in ("tfrecord", "array"):
        done = convert(conversion_of(workload, form), STORAGES[form], sets / data / form, workers=cores)
        assert done.manifest is not None
        sizes[form] = done.manifest.bytes
    return sizes


def write_npy(workload: Workload, folder: Path) -> None:
    """Write each kept sample as one .npy file."""
    import numpy as np

    conversion = conversion_of(workload, "array")
    folder.mkdir(parents=True, exist_ok=True)
    for index in spread(len(conversion), len(conversion)):
        np.save(folder / f"{index:06d}.npy", conversion.sample(index)[0])
