"""TFRecord files that TensorFlow wrote are read here, and those written here are read by TensorFlow."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

import autopipe as ap
from autopipe.artifact import converting
from tests.fakes.damage import in_classes

pytestmark = pytest.mark.usefixtures("cache")

IMAGES = [b"", b"a", bytes(range(256)) * 700]


def test_what_tensorflow_wrote_is_read(tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for label, image in enumerate(IMAGES, -1):
            feature = {
                "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                "image/object/bbox/xmin": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, 0.25])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    data = ap.TFRecords(tmp_path / "a.tfrecord")
    assert [data.read(i) for i in range(len(data))] == [(image, n) for n, image in enumerate(IMAGES, -1)]


def test_a_converted_set_is_read_by_tensorflow(tmp_path: Path) -> None:
    data = ap.ImageFolder(in_classes(tmp_path / "photos", 40, (4, 4)))
    converting.job(ap.Workload(data=data, ops=[ap.Decode()], batch_size=2), "tfrecord", tmp_path / "set").run(workers=1)
    files = sorted(str(path) for path in (tmp_path / "set").glob("*.tfrecord"))
    kinds = {"image/encoded": tf.string, "image/class/label": tf.int64}
    keys = {key: tf.io.FixedLenFeature([], kind) for key, kind in kinds.items()}
    parsed = [tf.io.parse_single_example(record, keys) for record in tf.data.TFRecordDataset(files)]
    found = [(p["image/encoded"].numpy(), int(p["image/class/label"])) for p in parsed]
    assert found == [data.read(index) for index in range(len(data))]
