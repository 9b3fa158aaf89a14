"""Rows for random resized crops of photographs of varied size, and for changes of colour; see `rows`.

The photographs are those of `regime_workloads.varied`, 320 to 560 pixels across; colours are changed on the photographs
themselves. A row in `fit` trains a model that is next to nothing, over whole epochs with their pauses, as a script
does: autopipe by its trainer, tf.data by Keras's own `fit` on a dataset without `repeat`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import runpy
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peers
import small_rows

import autopipe as ap
from autopipe.pipeline.config import LoaderConfig
from autopipe.pipeline.eject.module import eject

EPOCHS = 5  # that one call of `fit` trains
Sizes = Iterator[int]


def varied(photos: Path) -> Path:
    """Return the folder of photographs of varied size, which is made of `photos` at the first call."""
    os.environ["AUTOPIPE_PHOTOS"] = str(photos)
    import regime_workloads  # which reads it

    return regime_workloads.varied()


def model() -> Any:
    import keras

    layers = [
        keras.Input((peers.SIZE, peers.SIZE, 3)),
        keras.layers.Conv2D(8, 8, strides=8, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(1000),
    ]
    made = keras.Sequential(layers)
    made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


def crops(photos: Path) -> ap.Workload:
    ops = (ap.Decode(), ap.RandomResizedCrop(peers.SIZE, peers.SIZE), ap.RandomFlip(), ap.Rescale(1 / 255))
    return _workload(varied(photos), ops)


def late_crops(photos: Path) -> ap.Workload:
    """Return the same behind reads that wait 20 ms each."""
    folder = varied(photos)
    from regime_workloads import Waiting  # which reads where the photographs are

    return dataclasses.replace(crops(photos), data=Waiting(0.020, folder))


def colours(photos: Path) -> ap.Workload:
    changes = (ap.RandomBrightness(0.2), ap.RandomContrast(0.8, 1.2), ap.RandomSaturation(0.8, 1.2), ap.RandomHue(0.05))
    resized = (ap.Decode(), ap.Resize(peers.SIZE, peers.SIZE), ap.RandomFlip())
    return _workload(photos, (*resized, *changes, ap.Rescale(1 / 255)))


def _workload(folder: Path, ops: Any) -> ap.Workload:
    data = ap.ImageFolder(folder.absolute())
    return ap.Workload(data=data, ops=ops, batch_size=peers.BATCH, model=model, drop_remainder=True)


def _config(loader: LoaderConfig, keep: str) -> ap.PipelineConfig:
    return ap.PipelineConfig.model_validate({"loader": loader, "keep": keep, "device_prefetch": 0})


def alone(photos: Path, workload: Callable[[Path], ap.Workload], loader: LoaderConfig, keep: str) -> Sizes:
    return small_rows.batches(workload(photos), _config(loader, keep))


def fit(photos: Path, workload: Callable[[Path], ap.Workload], loader: LoaderConfig, keep: str) -> Sizes:
    with ap.make_trainer(workload(photos), _config(loader, keep)) as trainer:
        while True:
            trainer.fit(epochs=EPOCHS, verbose=0)
            yield EPOCHS * len(trainer.loader) * peers.BATCH


def tf_alone(photos: Path, dataset: Callable[[Path], Any]) -> Sizes:
    for x, _ in dataset(_folder(photos, dataset)).repeat():
        yield int(x.shape[0])


def tf_fit(photos: Path, dataset: Callable[[Path], Any]) -> Sizes:
    return _keras_fit(dataset(_folder(photos, dataset)))


def ejected_fit(photos: Path, form: str) -> Sizes:
    """Train on what `autopipe eject` writes, which is also what a tune prints as a baseline."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ejected.py")  # TensorFlow reads the source of functions
        file.write_text(eject(crops(photos), form))
        yield from _keras_fit(runpy.run_path(str(file))["make_dataset"]())


def _keras_fit(data: Any) -> Sizes:
    trained = model()
    while True:
        trained.fit(data, epochs=EPOCHS, verbose=0)
        yield EPOCHS * len(data) * peers.BATCH


def _folder(photos: Path, dataset: Callable[[Path], Any]) -> Path:
    return photos if dataset is peers.tf_colours else varied(photos)


def peer(photos: Path, make: Callable[..., Sizes], **settings: Any) -> Sizes:
    """Run a pipeline of another system with as many workers as suit it."""
    return peers.searched(make, varied(photos), cores=small_rows.cores(), crops=True, **settings)


def ffcv(photos: Path, mode: str) -> Sizes:
    """Run FFCV, whose threads are at most the cores."""
    return peers.ffcv(varied(photos), small_rows.cores(), mode)


Row = tuple[Callable[[Path], Sizes], str, str, int, int, str]
"""As of `small_rows.ROWS`, and whose code it is."""
_PEERS: dict[str, tuple[Callable[..., Sizes], dict[str, Any], str]] = {
    "DALI": (peers.dali, {}, "DALI; pixels within some levels"),
    "Grain threads": (peers.grain, {"processes": False}, "Grain and OpenCV"),
    "Grain processes": (peers.grain, {"processes": True}, "Grain and OpenCV"),
    "SPDL": (peers.spdl, {}, "SPDL and OpenCV"),
    "SPDL, FFmpeg": (peers.spdl_ffmpeg, {}, "SPDL and FFmpeg; its own pixels"),
}


def _rows() -> dict[str, Row]:
    found: dict[str, Row] = {}
    cores = small_rows.cores()
    loaders = {"threads": ap.Threads(workers=cores), "processes": ap.Processes(workers=cores)}
    for what, workload in (("crops", crops), ("colours", colours)):
        for name, loader in loaders.items():
            for keep, kept in (("none", ""), ("encoded", " encoded"), ("memory", " cached")):
                made = functools.partial(alone, workload=workload, loader=loader, keep=keep)
                trained = functools.partial(fit, workload=workload, loader=loader, keep=keep)
                found[f"{what}: {name}{kept}"] = (made, "uint8", "photos", 4000, 16, "autopipe")
                found[f"{what}: {name}{kept}, fit"] = (trained, "trained", "photos", 1, 0, "autopipe")
    for name, loader in loaders.items():
        made = functools.partial(alone, workload=late_crops, loader=loader, keep="encoded")
        found[f"crops: {name} encoded, 20 ms reads"] = (made, "uint8", "photos", 4000, 16, "autopipe")
    for name, dataset in (
        ("crops: tf.data", peers.tf_crops),
        ("crops: tf.data cached", peers.tf_crops_cached),
        ("colours: tf.data", peers.tf_colours),
    ):
        of = functools.partial(tf_alone, dataset=dataset), functools.partial(tf_fit, dataset=dataset)
        found[name] = (of[0], "float32", "photos", 16_000, 16, "plain tf.data")
        found[f"{name}, fit"] = (of[1], "trained", "photos", 16_000, 0, "plain tf.data")
    for kept, form in (("", "tf.data"), (" cached", "tf.data-cache")):
        made = functools.partial(ejected_fit, form=form)
        found[f"crops: ejected{kept}, fit"] = (made, "trained", "photos", 16_000, 0, "plain tf.data, by eject")
    for name, (make, settings, code) in _PEERS.items():
        found[f"crops: {name}"] = (functools.partial(peer, make=make, **settings), "uint8", "photos", 600, 16, code)
    for name, mode in (("FFCV", "jpg"), ("FFCV raw", "raw")):
        made = functools.partial(ffcv, mode=mode)
        found[f"crops: {name}"] = (made, "uint8", "photos", 4000, 16, "FFCV; its own pixels")
    return found


ROWS = _rows()
