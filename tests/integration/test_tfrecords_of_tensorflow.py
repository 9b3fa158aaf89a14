"""TFRecord files that TensorFlow wrote are read here, and those written here are read by TensorFlow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage.convert import convert
from autopipe.pipeline.storage.form import Conversion
from autopipe.workload.data.images import ImageFolder
from autopipe.workload.data.records import TFRecords
from autopipe.workload.sample import Field, FieldKind, SampleSpec

pytestmark = pytest.mark.usefixtures("cache")

IMAGES = [b"", b"a", bytes(range(256)) * 700]


def test_what_tensorflow_wrote_is_read(tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for label, image in enumerate(IMAGES):
            feature = {
                "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label - 1])),
                "image/object/bbox/xmin": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, 0.25])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    data = TFRecords(tmp_path / "a.tfrecord")
    assert [data.read(i) for i in range(len(data))] == [(image, n - 1) for n, image in enumerate(IMAGES)]


def test_a_converted_set_is_read_by_tensorflow(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / "photos" / f"class_{number % 2}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / f"class_{number % 2}" / f"{number:02d}.jpg").write_bytes(b"photo %d" % number)
    data = ImageFolder(tmp_path / "photos")
    spec = SampleSpec(Field(FieldKind.ENCODED, None, None), Field(FieldKind.LABEL, (), np.dtype(np.int64)))
    conversion = Conversion(source=data, steps=(), spec=spec, source_digest=data.digest(), ops_digest="")
    convert(conversion, STORAGES["tfrecord"], tmp_path / "set")
    files = sorted(str(path) for path in (tmp_path / "set").glob("*.tfrecord"))
    keys = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    parsed = [tf.io.parse_single_example(record, keys) for record in tf.data.TFRecordDataset(files)]
    found = [(p["image/encoded"].numpy(), int(p["image/class/label"])) for p in parsed]
    assert found == [data.read(index) for index in range(len(data))]
