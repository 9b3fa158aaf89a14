"""What training reaches of what it could: the rows of loaders.py through `fit`, each over its bound.

    python benchmarks/fit_shares.py --photos DIR --camvid DIR [--only ROW,ROW] [--rounds N] [--json]

DIR as for loaders.py. A row is a configuration that trains a small model. Its bound is the least of what the model does
alone, what the loader does alone, and what both may do where they share cores: autopipe's own ceilings, read between
two trials in one process, in as many processes as rounds. Shown is the median share over rounds; the target is 0.95.
Rows without a folder make their own data (small_rows.py).
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import claims
import rows
import small_rows
from measurement import share_of_bound

import autopipe as ap
from autopipe.core.config import PipelineConfig
from autopipe.core.workload import Workload
from autopipe.trial.child import Launch

ROW, FOLDER = "AUTOPIPE_SHARES_ROW", "AUTOPIPE_SHARES_DATA"
TARGET = 0.95


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
    "photos, threads, cached": (photos, "photos", {"loader": THREADS, "cache": "memory"}),
    "camvid, processes": (camvid, "camvid", {"loader": PROCESSES}),
    "arrays, flip": (arrays, "", {"loader": ONE, "steps_per_execution": 32}),
    "64x64, cached": (small, "", {"loader": ONE, "cache": "memory", "steps_per_execution": 8}),
    "12 megapixels, reduced": (large, "", {"loader": THREADS}),
    "MLP": (mlp, "", {"loader": ONE, "steps_per_execution": small_rows.TOGETHER}),
}


def workload() -> Workload:
    """Return the workload that a trial's process is about."""
    return ROWS[os.environ[ROW]][0](Path(os.environ[FOLDER]))


def main() -> None:
    parser = claims.arguments(__doc__)
    parser.add_argument("--only", default=",".join(name.replace(",", ";") for name in ROWS), help="`;` for a row's `,`")
    arguments = parser.parse_args()
    folders = {"photos": arguments.photos, "camvid": arguments.camvid}
    found: dict[str, float] = {}
    for name in (each.replace(";", ",") for each in arguments.only.split(",")):
        _, data, chosen = ROWS[name]
        if data and not folders[data]:
            continue
        with tempfile.TemporaryDirectory() as own:
            place = Path(folders[data] if data else own).resolve()
            environment = ((ROW, name), (FOLDER, str(place)), ("TF_CPP_MIN_LOG_LEVEL", "2"))
            launch = Launch(workload=f"{Path(__file__).resolve()}:workload", environment=environment)
            config = PipelineConfig.model_validate(chosen)
            found[name] = share_of_bound(launch, [config], rounds=arguments.rounds)
        if not arguments.json:
            print(claims.at_least(f"fit over its bound: {name}", TARGET, found[name]), flush=True)
    if arguments.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
