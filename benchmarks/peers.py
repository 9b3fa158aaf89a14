"""Pipelines of other systems, each in the form that its own documentation advises. Each is an endless iterator over
batch sizes, but for those that return a tf.data dataset, which `fit` takes as well (`crop_rows.py`).

Every photo pipeline does the same work: read, decode, resize to 224x224, flip half of the images, batch 32, shuffled
anew in each epoch; those that say float32 also divide by 255. With `crops`, a rectangle of 8 to 100 % of the image and
of 3:4 to 4:3 is cut out at random before the resize. Resizing is bilinear without antialiasing, as OpenCV and
TensorFlow do it: DALI's default is a costlier filter. How many workers a peer gets is tried out before it is timed
(`searched`). What else each does that others do not:

- tf.data: AUTOTUNE everywhere, `prefetch` last, and `repeat` in place of a new iterator for each epoch, with which
  AUTOTUNE begins anew. https://www.tensorflow.org/guide/data_performance
  Crops: only the crop is decoded, as in TensorFlow's ResNet examples, or it is cut from decoded photographs in `cache`.
- Keras: `workers`, and `use_multiprocessing` for work that holds Python's lock.
  https://keras.io/api/utils/python_utils/#pydataset-class
- Grain: `mp_prefetch` for CPU-bound work, threads for reading. It brings no decoder: OpenCV's decodes whole images.
  https://google-grain.readthedocs.io/en/latest/
- DALI: `antialias=False`, which gives OpenCV's pixels within one level (3 with its default). Crops: only the crop is
  decoded, by `image_random_crop`, whose decoder is nvImageCodec's on libjpeg-turbo.
  https://docs.nvidia.com/deeplearning/dali/user-guide/docs/advanced_topics_performance_tuning.html
- SPDL: one stage of threads that make whole batches, by OpenCV as the others do; or by its own decoder (`spdl_ffmpeg`),
  which needs FFmpeg 4 to 8, decodes whole images, and cuts, resizes and flips them in YUV, in one graph of filters.
  https://facebookresearch.github.io/spdl/latest/
- FFCV: a file of its own in the page cache, with JPEG images of the photographs' quality or with raw pixels. It decodes
  whole images and reduces crops by the mean of the pixels. The extra `bench` does not bring it: it needs PyTorch and
  Numba, and is built with the headers of OpenCV and libjpeg-turbo.
  https://docs.ffcv.io/performance_guide.html
"""

from __future__ import annotations

import csv
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

SIZE = 224
BATCH = 32
CAMVID_BATCH = 3
CAMVID_CROP = 512


_TRIED_SECONDS = 2.0
_FIRST_BATCHES = 20  # that say nothing of the rate


def searched(make: Callable[..., Iterator[int]], folder: Path, *, cores: int, **settings: Any) -> Iterator[int]:
    """Yield the batches of a pipeline with as many workers as suit it best: the cores, one more, or twice as many."""
    rates = {}
    for workers in sorted({cores, cores + 1, 2 * cores}):
        batches = make(folder, workers=workers, **settings)
        for _ in itertools.islice(batches, _FIRST_BATCHES):
            pass
        images, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < _TRIED_SECONDS:
            images += next(batches)
        rates[workers] = images / spent
        batches.close()  # type: ignore[attr-defined]  # a generator
    best = max(rates, key=rates.__getitem__)
    print(f"{make.__name__}: {best} workers", file=sys.stderr)
    yield from make(folder, workers=best, **settings)


def files_and_labels(folder: Path) -> tuple[list[str], list[int]]:
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    found = [(str(path), label) for label, name in enumerate(classes) for path in sorted((folder / name).iterdir())]
    return [path for path, _ in found], [label for _, label in found]


def box(height: int, width: int, random: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw the top, left, height and width of a random resized crop, as torchvision does."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        tall, wide = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if tall <= height and wide <= width:
            return int(random.integers(height - tall + 1)), int(random.integers(width - wide + 1)), tall, wide
    return 0, 0, height, width


def _cut(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    top, left, height, width = box(*image.shape[:2], random)
    return image[top : top + height, left : left + width]


def tf_autotune(folder: Path) -> Iterator[int]:
    import tensorflow as tf

    def load(path: Any, label: Any) -> Any:
        image = tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), (SIZE, SIZE))
        return tf.image.random_flip_left_right(image) / 255.0, label

    paths, labels = files_and_labels(folder)
    dataset = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths)).repeat()
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH, drop_remainder=True)
    for x, _ in dataset.prefetch(tf.data.AUTOTUNE):
        yield int(x.shape[0])


def tf_cached(folder: Path) -> Iterator[int]:
    """The uint8 images in memory after the resize; compact out."""
    import tensorflow as tf

    def load(path: Any, label: Any) -> Any:
        image = tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), (SIZE, SIZE))
        return tf.cast(tf.round(image), tf.uint8), label

    def flip(image: Any, label: Any) -> Any:
        return tf.image.random_flip_left_right(image), label

    paths, labels = files_and_labels(folder)
    cached = tf.data.Dataset.from_tensor_slices((paths, labels)).map(load, num_parallel_calls=tf.data.AUTOTUNE).cache()
    dataset = cached.shuffle(len(paths)).repeat().map(flip, num_parallel_calls=tf.data.AUTOTUNE)
    for x, _ in dataset.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE):
        yield int(x.shape[0])


def _tf_box(shape: Any) -> tuple[Any, Any, Any, Any]:
    import tensorflow as tf

    begin, extent, _ = tf.image.sample_distorted_bounding_box(
        shape,
        [[[0.0, 0.0, 1.0, 1.0]]],
        min_object_covered=0.0,
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
    )
    return begin[0], begin[1], extent[0], extent[1]


def _tf_finished(image: Any) -> Any:
    import tensorflow as tf

    return tf.image.random_flip_left_right(tf.image.resize(image, (SIZE, SIZE))) / 255.0


def tf_crops(folder: Path) -> Any:
    """Return a dataset that decodes the crop only."""
    import tensorflow as tf

    def load(path: Any, label: Any) -> Any:
        data = tf.io.read_file(path)
        window = tf.stack(_tf_box(tf.io.extract_jpeg_shape(data)))
        return _tf_finished(tf.image.decode_and_crop_jpeg(data, window, channels=3)), label

    return _tf_batches(folder, load)


def tf_crops_cached(folder: Path) -> Any:
    """Return a dataset that keeps decoded photographs of any size in memory."""
    import tensorflow as tf

    def decode(path: Any, label: Any) -> Any:
        return tf.io.decode_jpeg(tf.io.read_file(path), channels=3), label

    def crop(image: Any, label: Any) -> Any:
        top, left, height, width = _tf_box(tf.shape(image))
        return _tf_finished(image[top : top + height, left : left + width]), label

    dataset = tf.data.Dataset.from_tensor_slices(files_and_labels(folder))
    dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE).cache().shuffle(256)
    dataset = dataset.map(crop, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH, drop_remainder=True)
    return dataset.prefetch(tf.data.AUTOTUNE)


def tf_colours(folder: Path) -> Any:
    """Return a dataset of whole photographs whose colours are changed."""
    import tensorflow as tf

    def load(path: Any, label: Any) -> Any:
        image = _tf_finished(tf.io.decode_jpeg(tf.io.read_file(path), channels=3))
        image = tf.image.random_contrast(tf.image.random_brightness(image, 0.2), 0.8, 1.2)
        image = tf.image.random_hue(tf.image.random_saturation(image, 0.8, 1.2), 0.05)
        return tf.clip_by_value(image, 0.0, 1.0), label

    return _tf_batches(folder, load)


def _tf_batches(folder: Path, load: Callable[[Any, Any], Any]) -> Any:
    import tensorflow as tf

    paths, labels = files_and_labels(folder)
    dataset = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths))
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH, drop_remainder=True)
    return dataset.prefetch(tf.data.AUTOTUNE)


def keras_dataset(folder: Path, workers: int, processes: bool) -> Iterator[int]:
    import cv2
    import keras
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    paths, labels = files_and_labels(folder)

    class Photos(keras.utils.PyDataset):
        def __init__(self, **knobs: Any) -> None:
            super().__init__(**knobs)
            self.order = np.random.permutation(len(paths))

        def __len__(self) -> int:
            return len(paths) // BATCH

        def __getitem__(self, number: int) -> Any:
            chosen = self.order[number * BATCH : (number + 1) * BATCH]
            return np.stack([self.load(paths[i]) for i in chosen]), np.array([labels[i] for i in chosen])

        def load(self, path: str) -> Any:
            image = cv2.cvtColor(cv2.resize(cv2.imread(path), (SIZE, SIZE)), cv2.COLOR_BGR2RGB)
            return (image[:, ::-1] if np.random.rand() < 0.5 else image).astype("float32") / 255

        def on_epoch_end(self) -> None:
            np.random.shuffle(self.order)

    knobs = {"workers": workers, "use_multiprocessing": processes} if workers else {}
    adapter = PyDatasetAdapter(Photos(**knobs))
    while True:
        adapter.on_epoch_begin()
        for x, _ in adapter.get_numpy_iterator():
            yield len(x)
        adapter.on_epoch_end()


def grain(folder: Path, workers: int, processes: bool, as_float: bool = False, crops: bool = False) -> Iterator[int]:
    import cv2
    import grain.python as pygrain
    from absl import flags

    flags.FLAGS.mark_as_parsed()  # Grain's workers read them
    cv2.setNumThreads(0)
    paths, labels = files_and_labels(folder)

    class Source:
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int) -> Any:
            return Path(paths[index]).read_bytes(), labels[index]

    class Load(pygrain.RandomMapTransform):
        def random_map(self, element: Any, rng: np.random.Generator) -> Any:
            data, label = element
            image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
            image = cv2.resize(_cut(image, rng) if crops else image, (SIZE, SIZE))
            image = cv2.flip(image, 1) if rng.random() < 0.5 else image
            return (image.astype(np.float32) / 255 if as_float else image), label

    dataset = pygrain.MapDataset.source(Source()).seed(0).shuffle().repeat().random_map(Load())
    threads = pygrain.ReadOptions(num_threads=1 if processes else workers, prefetch_buffer_size=4 * BATCH)
    batches = dataset.to_iter_dataset(threads).batch(BATCH, drop_remainder=True)
    if processes:
        batches = batches.mp_prefetch(pygrain.MultiprocessingOptions(num_workers=workers))
    for x, _ in batches:
        yield len(x)


def dali(folder: Path, workers: int, crops: bool = False) -> Iterator[int]:
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=workers, device_id=None, seed=0)
    def pipeline() -> Any:
        data, labels = fn.readers.file(file_root=str(folder), random_shuffle=True, name="reader")
        if crops:
            images = fn.decoders.image_random_crop(data, output_type=types.RGB, random_area=[0.08, 1.0])
        else:
            images = fn.decoders.image(data, output_type=types.RGB)
        images = fn.resize(images, resize_x=SIZE, resize_y=SIZE, interp_type=types.INTERP_LINEAR, antialias=False)
        return fn.flip(images, horizontal=fn.random.coin_flip()), labels

    made = pipeline()
    made.build()
    while True:
        images, _ = made.run()
        yield len(images.as_array())


def spdl(folder: Path, workers: int, crops: bool = False) -> Iterator[int]:
    """Threads that make whole batches by OpenCV, which lets go of Python's lock."""
    import cv2

    cv2.setNumThreads(0)

    def load(paths: list[str], rng: np.random.Generator) -> np.ndarray:
        batch = np.empty((len(paths), SIZE, SIZE, 3), np.uint8)
        for row, path in zip(batch, paths, strict=True):
            image = cv2.imdecode(np.frombuffer(Path(path).read_bytes(), np.uint8), cv2.IMREAD_COLOR_RGB)
            image = cv2.resize(_cut(image, rng) if crops else image, (SIZE, SIZE))
            row[...] = image[:, ::-1] if rng.random() < 0.5 else image
        return batch

    return _spdl(folder, workers, load)


def spdl_ffmpeg(folder: Path, workers: int, crops: bool = False) -> Iterator[int]:
    """Threads that make whole batches by FFmpeg and its filters, as SPDL's own examples do."""
    import spdl.io

    def load(paths: list[str], rng: np.random.Generator) -> np.ndarray:
        frames = []
        for path in paths:
            packets = spdl.io.demux_image(path)
            filters = [f"scale={SIZE}:{SIZE}:flags=bilinear"]
            if crops:
                top, left, height, width = box(packets.height, packets.width, rng)
                filters.insert(0, f"crop={width}:{height}:{left}:{top}")
            filters += ["hflip"] if rng.random() < 0.5 else []
            frames.append(spdl.io.decode_packets(packets, filter_desc=",".join([*filters, "format=rgb24"])))
        return spdl.io.to_numpy(spdl.io.convert_frames(frames))

    return _spdl(folder, workers, load)


def _spdl(folder: Path, workers: int, load: Callable[[list[str], np.random.Generator], np.ndarray]) -> Iterator[int]:
    from spdl.pipeline import PipelineBuilder

    paths, labels = files_and_labels(folder)
    random = np.random.default_rng(0)
    load(paths[:1], random)  # SPDL leaves out a batch that fails, so it would look for a sound one for ever

    def chosen() -> Iterator[tuple[int, Any]]:
        for epoch in itertools.count():
            order = random.permutation(len(paths))
            for start in range(0, len(order) - BATCH + 1, BATCH):
                yield epoch, order[start : start + BATCH]

    def loaded(wanted: tuple[int, Any]) -> tuple[Any, Any]:
        epoch, indices = wanted
        batch = load([paths[index] for index in indices], np.random.default_rng((epoch, int(indices[0]))))
        return batch, np.array([labels[index] for index in indices])

    pipeline = PipelineBuilder().add_source(chosen()).pipe(loaded, concurrency=workers).add_sink(4)
    made = pipeline.build(num_threads=workers)
    with made.auto_stop():
        for x, _ in made:
            yield len(x)


def ffcv(folder: Path, workers: int, mode: str) -> Iterator[int]:
    """Crops, by threads that run code which Numba compiled; `mode` is "jpg", or "raw" for decoded images."""
    from ffcv import loader, transforms
    from ffcv.fields import decoders

    image = [decoders.RandomResizedCropRGBImageDecoder((SIZE, SIZE)), transforms.RandomHorizontalFlip()]
    pipelines = {
        "image": [*image, transforms.ToTensor()],
        "label": [decoders.IntDecoder(), transforms.ToTensor(), transforms.Squeeze()],
    }
    batches = loader.Loader(
        str(_beton(folder, mode)),
        batch_size=BATCH,
        num_workers=workers,
        os_cache=True,
        order=loader.OrderOption.RANDOM,
        pipelines=pipelines,
        drop_last=True,
    )
    while True:
        for x, _ in batches:
            yield len(x)


class _Images:
    """The samples that FFCV writes into its file."""

    def __init__(self, folder: Path) -> None:
        self.files, self.labels = files_and_labels(folder)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        import cv2

        return cv2.imread(self.files[index])[..., ::-1].copy(), self.labels[index]


def _beton(folder: Path, mode: str) -> Path:
    """Return FFCV's file of a folder of photographs of quality 90, which is made beside it at the first call."""
    from ffcv import fields, writer

    path = folder.with_name(f"{folder.name}-ffcv-{mode}.beton")
    if not path.exists():
        made = path.with_suffix(".part")
        image = fields.RGBImageField(write_mode=mode, jpeg_quality=90)
        columns = {"image": image, "label": fields.IntField()}
        writer.DatasetWriter(str(made), columns).from_indexed_dataset(_Images(folder))
        made.rename(path)
    return path


def tf_camvid(folder: Path) -> Iterator[int]:
    """Crop, and one comparison a class: the one-hot that most segmentation code has."""
    import tensorflow as tf

    with (folder / "palette.csv").open(newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    colours = [tuple(map(int, row[-3:])) for row in rows if row[-1].strip().isdigit()]

    def load(image_path: Any, mask_path: Any) -> Any:
        image = tf.io.decode_png(tf.io.read_file(image_path), channels=3)
        mask = tf.io.decode_png(tf.io.read_file(mask_path), channels=3)
        both = tf.image.random_crop(tf.concat([image, mask], axis=-1), (CAMVID_CROP, CAMVID_CROP, 6))
        both = tf.image.random_flip_left_right(both)
        planes = [tf.reduce_all(tf.equal(both[..., 3:], colour), axis=-1) for colour in colours]
        return tf.cast(both[..., :3], tf.float32) / 255.0, tf.cast(tf.stack(planes, axis=-1), tf.float32)

    images, masks = (sorted(os.fspath(path) for path in (folder / part).iterdir()) for part in ("images", "masks"))
    dataset = tf.data.Dataset.from_tensor_slices((images, masks)).shuffle(len(images)).repeat()
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(CAMVID_BATCH, drop_remainder=True)
    for x, _ in dataset.prefetch(tf.data.AUTOTUNE):
        yield int(x.shape[0])
