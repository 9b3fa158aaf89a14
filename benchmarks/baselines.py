"""Are the printed baselines as fast as what people write? Each beside code written by hand under an outside clock, for
every kind of data.

    python benchmarks/baselines.py [--only KIND,KIND] [--forms FORM,FORM] [--rounds N] [--seconds S] [--rows N] [--json]

Printed is what a tune measures: the code that `autopipe eject --to` writes, in the process that a tune starts for it,
by a trial's windows. Outside is a script's training on the same data, written by hand (`people.py`): Keras's `fit`,
and a stopwatch. Both mean the same: samples over the time they took, in whole epochs with their pauses, without the
first epoch. Of an epoch that does not end within a block, what comes after its first second. Both processes live side
by side and take turns; the one that waits is idle. Shown are medians over rounds, and the median of the ratios within a
round, whose target is at least 0.9. Drawn here are photographs and masks of noise that is smooth, and arrays,
all of whole batches.

`--rows 25600` makes epochs of arrays so short that pauses are a large part of them. tf.data's AUTOTUNE begins anew with
each epoch, and in a short one it finds the second core or does not, by chance: 1,550 or 3,070 images/s on 2 cores.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from claims import Claim

import autopipe as ap
from autopipe.measure.stats import median

FOLDER = "AUTOPIPE_BASELINES_DATA"
IMAGES, DISTINCT, ROWS, SIZE, BATCH = 16_000, 200, 102_400, 96, 32
FORMS = {
    "folder": ("tf.data", "tf.data-cache", "keras", "keras-workers", "directory"),
    "table": ("tf.data", "tf.data-cache", "keras", "keras-workers"),
    "pairs": ("tf.data", "keras", "keras-workers"),
    "records": ("tf.data",),
    "arrays": ("fit", "tf.data", "keras", "keras-workers"),
}
PALETTE = ((0, 0, 0), (255, 0, 0), (0, 255, 0), (10, 20, 30))
LOW = 0.9  # no form that people write is faster than 1.1 times the printed one


def draw(folder: Path, rows_of_arrays: int) -> None:
    """Write the data."""
    random = np.random.default_rng(0)
    photos, small, masks = [], [], []
    for _ in range(DISTINCT):
        pixels = cv2.resize(random.integers(0, 256, (12, 16, 3), np.uint8), (500, 375), interpolation=cv2.INTER_CUBIC)
        photos.append(cv2.imencode(".jpg", pixels)[1].tobytes())
        small.append(cv2.imencode(".jpg", cv2.resize(pixels, (320, 240)))[1].tobytes())
        classes = cv2.resize(random.integers(0, 4, (6, 8), np.uint8), (320, 240), interpolation=cv2.INTER_NEAREST)
        masks.append(cv2.imencode(".png", np.asarray(PALETTE, np.uint8)[classes][..., ::-1])[1].tobytes())
    rows, records = ["path,label"], []
    for number in range(IMAGES):
        name = f"photos/{number % 10}/{number}.jpg"
        write(folder / name, folder / f"photos/{number % DISTINCT % 10}/{number % DISTINCT}.jpg", photos)
        rows.append(f"{name},{number % 10}")
        records.append({"image/encoded": photos[number % DISTINCT], "image/class/label": number % 10})
    for part, files, suffix in (("images", small, "jpg"), ("masks", masks, "png")):
        for number in range(IMAGES):
            write(folder / part / f"{number}.{suffix}", folder / part / f"{number % DISTINCT}.{suffix}", files)
    (folder / "photos.csv").write_text("\n".join(rows))
    from autopipe.workload.data.records import frame, serialise

    (folder / "photos.tfrecord").write_bytes(b"".join(frame(serialise(each)) for each in records))
    np.save(folder / "x.npy", random.integers(0, 256, (rows_of_arrays, 24, 24, 3), np.uint8))
    np.save(folder / "y.npy", random.integers(0, 10, rows_of_arrays))


def write(path: Path, first: Path, contents: list[bytes]) -> None:
    """Write a file, or link it to the first one of the same content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path == first:
        path.write_bytes(contents[int(path.stem)])
    else:
        os.link(first, path)


def classifier() -> Any:
    """Return a model that is next to nothing: what is timed is its data."""
    import keras

    pooled = [keras.layers.AveragePooling2D(8), keras.layers.Flatten(), keras.layers.Dense(10)]
    model = keras.Sequential(pooled)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def segmenter() -> Any:
    """Return the same for masks."""
    import keras

    model = keras.Sequential([keras.layers.Conv2D(4, 1)])
    model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
    return model


def workloads(folder: Path) -> dict[str, Callable[[], ap.Workload]]:
    """Return a workload for each kind of data."""
    photo = (ap.Decode(), ap.Resize(SIZE, SIZE), ap.RandomFlip(), ap.Rescale(1 / 255))
    masked = (ap.Decode(), ap.MaskToClass(PALETTE), ap.RandomCrop(SIZE, SIZE), ap.OneHot(4), ap.Rescale(1 / 255))

    def of(
        data: Callable[[], Any], ops: Any, batch_size: int = BATCH, model: Any = classifier
    ) -> Callable[[], ap.Workload]:
        return lambda: ap.Workload(data=data(), ops=ops, batch_size=batch_size, model=model)

    def arrays() -> ap.Arrays:
        return ap.Arrays(np.load(folder / "x.npy"), np.load(folder / "y.npy"))

    scaled = (ap.Rescale(1 / 255),)
    return {
        "folder": of(lambda: ap.ImageFolder(folder / "photos"), photo),
        "pairs": of(lambda: ap.ImagePairs(folder / "images", folder / "masks"), masked, model=segmenter),
        "table": of(lambda: ap.Table(folder / "photos.csv"), photo),
        "records": of(lambda: ap.TFRecords(str(folder / "photos.tfrecord")), photo),
        "arrays": of(arrays, scaled, 128),
    }


def workload() -> ap.Workload:
    """Return the workload that the process which runs a baseline is about."""
    folder, kind = os.environ[FOLDER].rsplit(":", 1)
    return workloads(Path(folder))[kind]()


def serve(folder: Path, kind: str, form: str) -> None:
    """Be the outside script: answer each line `SECONDS` with images/s of `fit` on the form written by hand."""
    import people
    from stopwatch import Stopwatch

    made = workloads(folder)[kind]()
    data = people.made(kind, form, folder)
    fed = {"x": data} if not isinstance(data, tuple) else {"x": data[0], "y": data[1], "batch_size": made.batch_size}
    if not isinstance(data, tuple | people.Batches):
        fed["shuffle"] = False  # Keras warns of its own default
    model = made.model()  # type: ignore[misc]  # a function
    stopwatch = Stopwatch()
    for line in sys.stdin:
        stopwatch.seconds = float(line)
        model.fit(**fed, epochs=10**6, callbacks=[stopwatch], verbose=0)
        gc.collect()  # what an iterator still reads ahead ends with it
        print("rate", made.batch_size * stopwatch.steps_per_second(), flush=True)


@contextlib.contextmanager
def outside(folder: Path, kind: str, form: str) -> Iterator[Callable[[float], float]]:
    """Yield what asks the outside script for a block."""
    command = [sys.executable, __file__, "--serve", kind, "--folder", str(folder), "--forms", form]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(seconds: float) -> float:
        print(seconds, file=process.stdin, flush=True)
        assert process.stdout is not None
        return float(next(line for line in process.stdout if line.startswith("rate")).split()[1])

    try:
        yield ask
    finally:
        process.kill()
        process.wait()


def compared(folder: Path, kind: str, form: str, rounds: int, seconds: float) -> list[tuple[float, float]]:
    """Return the printed and the outside rate of each round."""
    from autopipe.measure.outcome import Measurement
    from autopipe.pipeline.config import PipelineConfig
    from autopipe.pipeline.loaders.wrapped import Foreign
    from autopipe.search import searching

    os.environ[FOLDER] = f"{folder}:{kind}"
    config = PipelineConfig(loader=Foreign(code=form), finish="host", device_prefetch=0)
    options = {"min_seconds": seconds, "max_seconds": seconds, "page_cache": "warm"}
    found = []
    named = f"{Path(__file__).absolute()}:workload"
    with (
        searching.runner_for(named) as runner,
        searching.foreign_runner(runner, form) as measures,
        outside(folder, kind, form) as ask,
    ):
        for number in range(rounds + 1):  # the first compiles
            before = ask(seconds) if number % 2 else None
            outcome = measures.measure(config, options)
            theirs = before or ask(seconds)
            if not isinstance(outcome, Measurement):
                print(f"{kind}, {form}: a block is left out: {outcome.message}", file=sys.stderr)
            elif number:
                found.append((outcome.images_per_second.value, theirs))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="folder,pairs,table,records,arrays")
    parser.add_argument("--forms", default=",".join(dict.fromkeys(form for forms in FORMS.values() for form in forms)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rows", type=int, default=ROWS, help="of the arrays, which are drawn in whole batches")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.folder, arguments.serve, arguments.forms)
        return
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = arguments.folder or Path(place)
        if not (folder / "x.npy").exists():
            draw(folder, arguments.rows)
        for kind in arguments.only.split(","):
            for form in (each for each in FORMS[kind] if each in arguments.forms.split(",")):
                if not (blocks := compared(folder, kind, form, arguments.rounds, arguments.seconds)):
                    continue
                printed, outer = (median([pair[side] for pair in blocks]) for side in (0, 1))
                ratio = median([mine / theirs for mine, theirs in blocks])
                found[f"{kind}, {form}"] = {"printed": printed, "outside": outer, "ratio": ratio, "blocks": blocks}
                if not arguments.json:
                    what = f"{kind}, {form}: printed {printed:,.0f}, outside {outer:,.0f} images/s"
                    print(Claim(what, f"{ratio:.3f}", f"at least {LOW:g}", ratio >= LOW), flush=True)
    if arguments.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
