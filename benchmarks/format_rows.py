"""The rows of `formats.py`: one storage form or one peer each, as an endless iterator over batch sizes.

Sets are looked for in the folder that `formats.py` has prepared: DIR/<data>/<form>, and DIR/<data>/npy for np.load.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import peers
import rows
from rows import Row

from autopipe.pipeline.assembly import build_loader
from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.loaders.processes import Processes
from autopipe.pipeline.loaders.threads import Threads
from autopipe.pipeline.storage.tfrecord import IMAGE_KEY, LABEL_KEY
from autopipe.workload.data.images import ImagePairs
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.ops.values import MaskToClass, OneHot, Rescale
from autopipe.workload.workload import Workload

CAMVID_SIZE = 512


def camvid(folder: Path) -> Workload:
    """Street scenes and their masks at 512x512: the resize is deterministic, so that all of it can be kept."""
    ops = [
        Decode(),
        MaskToClass(folder / "palette.csv"),
        Resize(CAMVID_SIZE, CAMVID_SIZE),
        RandomFlip(),
        OneHot(32),
        Rescale(1 / 255),
    ]
    data = ImagePairs(folder / "images", folder / "masks")
    return Workload(data=data, ops=ops, batch_size=4, drop_remainder=True)


WORKLOADS = {"photos": rows.photos, "camvid": camvid}


def kept(folder: Path, data: str, sets: Path) -> Workload:
    """Return a workload whose converted sets lie in `sets`."""
    return dataclasses.replace(WORKLOADS[data](folder), converted=str(sets / data))


def ours(folder: Path, data: str, sets: Path, loader: LoaderConfig, settings: dict[str, Any]) -> Iterator[int]:
    config = PipelineConfig.model_validate({"loader": loader, **settings})
    with build_loader(kept(folder, data, sets), config) as made:
        yield from rows.endless(made)


def tf_records(folder: Path, sets: Path, as_float: bool) -> Iterator[int]:
    """tf.data on the very files that `keep="tfrecord"` has written."""
    import tensorflow as tf

    features = {IMAGE_KEY: tf.io.FixedLenFeature([], tf.string), LABEL_KEY: tf.io.FixedLenFeature([], tf.int64)}

    def load(record: Any) -> Any:
        parsed = tf.io.parse_single_example(record, features)
        image = tf.image.resize(tf.io.decode_jpeg(parsed[IMAGE_KEY], channels=3), (peers.SIZE, peers.SIZE))
        image = tf.image.random_flip_left_right(image)
        return (image / 255.0 if as_float else tf.cast(tf.round(image), tf.uint8)), parsed[LABEL_KEY]

    files = tf.data.Dataset.list_files(str(sets / "photos" / "tfrecord" / "*.tfrecord"), shuffle=True)
    records = tf.data.TFRecordDataset(files, num_parallel_reads=tf.data.AUTOTUNE).shuffle(2000).repeat()
    dataset = records.map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(peers.BATCH, drop_remainder=True)
    for x, _ in dataset.prefetch(tf.data.AUTOTUNE):
        yield int(x.shape[0])


def np_load(folder: Path, sets: Path) -> Iterator[int]:
    """A PyDataset with one .npy file a sample, with Keras's defaults."""
    import keras
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    paths = sorted((sets / "photos" / "npy").iterdir())

    class Photos(keras.utils.PyDataset):
        def __len__(self) -> int:
            return len(paths) // peers.BATCH

        def __getitem__(self, number: int) -> Any:
            chosen = np.random.randint(0, len(paths), peers.BATCH)
            return np.stack([self.load(paths[i]) for i in chosen]), np.zeros(peers.BATCH)

        def load(self, path: Path) -> Any:
            image = np.load(path)
            return (image[:, ::-1] if np.random.rand() < 0.5 else image).astype("float32") / 255

    adapter = PyDatasetAdapter(Photos())
    while True:
        adapter.on_epoch_begin()
        for x, _ in adapter.get_numpy_iterator():
            yield len(x)
        adapter.on_epoch_end()


def table(cores: int, sets: Path) -> dict[str, Row]:
    """Return the rows by name, for a machine with so many cores."""

    def row(loader: LoaderConfig, data: str = "photos", **settings: str) -> Row:
        output = "float32" if settings.get("finish") == "host" else "uint8" + (" + ids" if data == "camvid" else "")
        run = functools.partial(ours, data=data, sets=sets, loader=loader, settings=settings)
        decodes = settings.get("keep") in (None, "tfrecord")
        whole = {"photos": 4000, "camvid": 900}[data]  # twice all samples: the cache is full, files are in memory
        return Row(run, output, data, 60 if data == "camvid" and decodes else whole)

    both = {"threads": Threads(workers=cores), "processes": Processes(workers=cores)}
    forms: dict[str, dict[str, str]] = {
        "files": {},
        "tfrecord": {"keep": "tfrecord"},
        "array": {"keep": "array"},
        "array + memory": {"keep": "array+memory"},
        "files + memory": {"keep": "memory"},
    }
    found = {
        f"{prefix}{form}, {name}": row(loader, data, **settings)
        for data, prefix in (("photos", ""), ("camvid", "camvid "))
        for form, settings in forms.items()
        for name, loader in both.items()
    }
    found["tfrecord, processes, host"] = row(both["processes"], keep="tfrecord", finish="host")
    found["tf.data on TFRecords"] = Row(
        functools.partial(tf_records, sets=sets, as_float=True), "float32", warm_images=16000
    )
    found["tf.data on TFRecords, uint8"] = Row(
        functools.partial(tf_records, sets=sets, as_float=False), "uint8", warm_images=16000
    )
    found["np.load, PyDataset"] = Row(functools.partial(np_load, sets=sets), "float32", warm_images=2000)
    return found
