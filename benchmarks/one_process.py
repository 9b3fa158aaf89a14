"""How many images/s one process of threads hands over where cores are no limit: `Threads`, with a sleep in the place of
the native call. The sleep takes as long, and gives the interpreter's lock up as the call does.

`--of-lock` runs a thread of pure Python beside the loader. What this thread loses of its own rate, over the images that
were made meanwhile, is how long an image holds the lock. It needs a core of its own, and a quiet machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import shlex
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import claims
import cv2
import numpy as np

import autopipe as ap
from autopipe import native
from autopipe.pipeline.loaders.threads import Threads

IMAGE_MICROSECONDS = 1200
WORKERS = (1, 4, 16, 64)
BATCH = 32
MOST = 50_000  # images/s up to which one process has to keep up
SLEEPING = """
#include <stdint.h>
#include <string.h>
#include <time.h>
int64_t fill(const void *program, const void *spans, int64_t rows, const double *draws, int64_t drawn, uint8_t *out,
             int64_t row_bytes, void *scratch, uint8_t *verdicts) {
  int64_t took = rows * MICROSECONDS;
  struct timespec time = {took / 1000000, took % 1000000 * 1000};
  nanosleep(&time, 0);
  memset(verdicts, 0, (size_t)rows);
  return 0;
}
"""


def sleeping(folder: Path) -> None:
    """Put a sleep in the place of the native call of this process."""
    (folder / "sleeping.c").write_text(SLEEPING)
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")[0]
    options = ["-shared", "-fPIC", f"-DMICROSECONDS={IMAGE_MICROSECONDS}"]
    subprocess.run([compiler, *options, "sleeping.c", "-o", "sleeping.so"], cwd=folder, check=True)
    library: Any = native._loaded()
    fill = ctypes.CDLL(str(folder / "sleeping.so")).fill
    fill.argtypes, fill.restype = library.autopipe_fill.argtypes, library.autopipe_fill.restype
    library.autopipe_fill = fill


def photographs(folder: Path) -> Path:
    """Write 1,024 small images, which nobody reads."""
    data = cv2.imencode(".jpg", np.zeros((256, 256, 3), np.uint8))[1].tobytes()
    (folder / "images" / "all").mkdir(parents=True)
    for number in range(1024):
        (folder / "images" / "all" / f"{number}.jpg").write_bytes(data)
    return folder / "images"


def rate(images: Path, workers: int, seconds: float) -> float:
    """Return the images/s that are handed over."""
    ops = [ap.Decode(), ap.RandomResizedCrop(224, 224), ap.RandomFlip()]
    workload = ap.Workload(data=ap.ImageFolder(images), ops=ops, batch_size=BATCH)
    config = ap.PipelineConfig.model_validate({"loader": Threads(workers=workers), "device_prefetch": 0})
    with ap.build_loader(workload, config) as loader:
        batches = (len(x) for epoch in range(1_000_000) for x, _ in loader.batches(epoch))
        for _ in range(2 * workers):
            next(batches)
        began, count = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            count += next(batches)
        return count / (time.monotonic() - began)


class Counting:
    """A thread that does nothing but hold the lock."""

    def __init__(self) -> None:
        self.count, self._ends = 0, False

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ends = True
            thread.join()

    def _run(self) -> None:
        while not self._ends:
            self.count += 1


def held(images: Path, workers: int, seconds: float) -> float:
    """Return the microseconds for which an image holds the lock."""
    counting = Counting()
    with counting.running():
        alone = []
        for _ in range(2):
            before, began = counting.count, time.monotonic()
            time.sleep(seconds)
            alone.append((counting.count - before) / (time.monotonic() - began))
            if len(alone) == 1:
                before, began = counting.count, time.monotonic()
                made = rate(images, workers, seconds)
                beside = (counting.count - before) / (time.monotonic() - began)
    return (1 - beside / max(alone)) / made * 1e6


def main() -> None:
    parser = claims.arguments(__doc__)
    parser.add_argument("--of-lock", action="store_true", help="measure how long an image holds the interpreter's lock")
    options = parser.parse_args()
    if (reason := native.why_not()) is not None:
        parser.error(f"the native library is not used: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        images = photographs(Path(folder))
        sleeping(Path(folder))
        for workers in WORKERS:
            ideal = min(workers * 1e6 / IMAGE_MICROSECONDS, MOST)
            found = [rate(images, workers, options.seconds) for _ in range(options.rounds)]
            print(
                claims.at_least(
                    f"images/s of {workers} threads over {ideal:,.0f}", 0.9, float(np.median(found)) / ideal
                )
            )
        if options.of_lock:
            found = [held(images, 4, options.seconds) for _ in range(options.rounds)]
            print(claims.at_most("microseconds of the lock an image, batches of 32", 10, np.median(found)))


if __name__ == "__main__":
    main()
