"""How many images/s one process of threads hands over where cores are no limit: `Threads`, with a sleep in the place of
the native call. The sleep takes as long, and gives the interpreter's lock up as the call does.

The processor time that the process takes meanwhile is all that is not C. It is the most for which an image can hold the
lock.
"""

from __future__ import annotations

import ctypes
import shlex
import subprocess
import sysconfig
import tempfile
import time
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


def handed_over(images: Path, workers: int, seconds: float) -> tuple[float, float]:
    """Return the images/s, and the microseconds of processor time that each takes."""
    ops = [ap.Decode(), ap.RandomResizedCrop(224, 224), ap.RandomFlip()]
    workload = ap.Workload(data=ap.ImageFolder(images), ops=ops, batch_size=BATCH)
    config = ap.PipelineConfig.model_validate({"loader": Threads(workers=workers), "device_prefetch": 0})
    with ap.build_loader(workload, config) as loader:
        batches = (len(x) for epoch in range(1_000_000) for x, _ in loader.batches(epoch))
        for _ in range(2 * workers):
            next(batches)
        began, busy, count = time.monotonic(), time.process_time(), 0
        while time.monotonic() - began < seconds:
            count += next(batches)
        return count / (time.monotonic() - began), (time.process_time() - busy) / count * 1e6


def main() -> None:
    parser = claims.arguments(__doc__)
    options = parser.parse_args()
    if (reason := native.why_not()) is not None:
        parser.error(f"the native library is not used: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        images = photographs(Path(folder))
        sleeping(Path(folder))
        for workers in WORKERS:
            ideal = min(workers * 1e6 / IMAGE_MICROSECONDS, MOST)
            found = [handed_over(images, workers, options.seconds) for _ in range(options.rounds)]
            made, took = np.median(found, axis=0)
            print(claims.at_least(f"images/s of {workers} threads over {ideal:,.0f}", 0.9, made / ideal))
            if workers >= 16:  # of fewer images, much of it is what the process does each second anyway
                print(claims.at_most(f"microseconds of Python an image, batches of {BATCH}", 10, took))


if __name__ == "__main__":
    main()
