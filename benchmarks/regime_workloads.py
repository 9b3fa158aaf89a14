"""The workloads of `benchmarks/regimes.py`: photographs behind storages that are synthetic, and arrays.

`AUTOPIPE_PHOTOS` names a folder of 500x375 JPEG in class folders. What waits or is throttled is this file's code, and
is synthetic; decoding, resizing and the models are real, unless an accelerator is simulated in a model's place.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import autopipe as ap

_SCALED = 800  # photographs that `of_size` makes
_VARIED = 1200  # and `varied`

PHOTOS = Path(os.environ.get("AUTOPIPE_PHOTOS", "photos"))


class Waiting:
    """The photographs, each behind a read that waits."""

    def __init__(self, seconds: float, photos: Path = PHOTOS) -> None:
        self._photos = ap.ImageFolder(photos.absolute())
        self._seconds = seconds

    def __len__(self) -> int:
        return len(self._photos)

    def read(self, index: int) -> Any:
        time.sleep(self._seconds)
        return self._photos.read(index)


class Throttled:
    """The photographs behind a storage that gives so many bytes a second, to all threads and processes together."""

    def __init__(self, bytes_per_second: float) -> None:
        self._photos = ap.ImageFolder(PHOTOS.absolute())
        self._rate = bytes_per_second
        self._clock = Path(tempfile.gettempdir()) / f"autopipe-benchmark-throttle-{os.getuid()}"

    def __len__(self) -> int:
        return len(self._photos)

    def read(self, index: int) -> Any:
        found = self._photos.read(index)
        with self._clock.open("a+b") as file:  # when the storage has given what was asked for so far
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            known = file.read(8)
            now = time.monotonic()
            ready = max(now, struct.unpack("d", known)[0] if len(known) == 8 else 0.0) + len(found[0]) / self._rate
            ready = min(ready, now + 60.0)  # of another boot
            file.truncate(0)
            file.write(struct.pack("d", ready))
            file.flush()
        time.sleep(max(0.0, ready - now))
        return found


class HeavyTail:
    """The photographs, of which one in fifty is thirty times as large."""

    def __init__(self) -> None:
        self._photos = ap.ImageFolder(PHOTOS.absolute())
        image = cv2.imdecode(np.frombuffer(self._photos.read(0)[0], np.uint8), cv2.IMREAD_COLOR)
        self._large = cv2.imencode(".jpg", cv2.resize(image, None, fx=5.5, fy=5.5))[1].tobytes()

    def __len__(self) -> int:
        return len(self._photos)

    def read(self, index: int) -> Any:
        encoded, label = self._photos.read(index)
        return (self._large if index % 50 == 7 else encoded), label


def _beside(name: str) -> Path:
    """Return the folder of a set that is made of the photographs: trials have temporary folders of their own."""
    return PHOTOS.absolute().with_name(f"{PHOTOS.name}-{name}")


def of_size(width: int, height: int, mean_bytes: int) -> Path:
    """Return a folder of the photographs scaled to a size, in the quality that makes files of so many bytes."""
    folder = _beside(f"{width}x{height}-{mean_bytes}")
    if folder.exists():
        return folder
    paths = sorted(PHOTOS.glob("*/*.jpg"))[:_SCALED]
    images = [cv2.resize(cv2.imread(str(path)), (width, height), interpolation=cv2.INTER_CUBIC) for path in paths]
    some = [images[each] for each in np.random.default_rng(0).permutation(len(images))[:200]]
    quality = min(range(50, 101, 2), key=lambda each: abs(_mean_bytes(some, each) - mean_bytes))
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        for path, image in zip(paths, images, strict=True):
            Path(made, path.parent.name).mkdir(exist_ok=True)
            Path(made, path.parent.name, path.name).write_bytes(_encoded(image, quality))
        shutil.copytree(made, folder)
    return folder


def varied(*settings: int) -> Path:
    """Return a folder of the photographs, 320 to 560 pixels across, encoded with these settings of OpenCV's."""
    folder = _beside("-".join(map(str, ("varied", *settings))))
    if folder.exists():
        return folder
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        for path in sorted(PHOTOS.glob("*/*.jpg"))[:_VARIED]:
            width = int(generator.integers(320, 561))
            image = cv2.resize(cv2.imread(str(path)), (width, int(width * generator.uniform(0.6, 0.9))))
            Path(made, path.parent.name).mkdir(exist_ok=True)
            quality = [cv2.IMWRITE_JPEG_QUALITY, 90, *settings]
            Path(made, path.parent.name, path.name).write_bytes(cv2.imencode(".jpg", image, quality)[1].tobytes())
        shutil.copytree(made, folder)
    return folder


def _mean_bytes(images: Sequence[np.ndarray], quality: int) -> float:
    return sum(len(_encoded(image, quality)) for image in images) / len(images)


def _encoded(image: np.ndarray, quality: int) -> bytes:
    return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def five_milliseconds(image: np.ndarray) -> np.ndarray:
    """Return the image after 5 ms of Python's own work, under its lock."""
    until = time.thread_time() + 0.005
    while time.thread_time() < until:
        pass
    return image


def small_cnn(size: int = 224, classes: int = 16) -> Callable[[], Any]:
    def build() -> Any:
        import keras

        model = keras.Sequential(
            [
                keras.Input((size, size, 3)),
                keras.layers.Conv2D(8, 3, strides=4, activation="relu"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(classes),
            ]
        )
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    return build


def mlp() -> Any:
    import keras

    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def _photos(data: Any, *, batch_size: int = 32, extra: tuple[Any, ...] = ()) -> ap.Workload:
    ops = [ap.Decode(), ap.Resize(224, 224), *extra, ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=data, ops=ops, batch_size=batch_size, model=small_cnn())


def warm() -> ap.Workload:
    return _photos(ap.ImageFolder(PHOTOS.absolute()))


def latency_5ms() -> ap.Workload:
    return _photos(Waiting(0.005))


def latency_20ms() -> ap.Workload:
    return _photos(Waiting(0.020))


def latency_100ms() -> ap.Workload:
    return _photos(Waiting(0.100))


def bandwidth_20mb() -> ap.Workload:
    return _photos(Throttled(20e6))


def python_lock() -> ap.Workload:
    return _photos(ap.ImageFolder(PHOTOS.absolute()), extra=(ap.Map(five_milliseconds),))


def colours() -> ap.Workload:
    ops = [
        ap.Decode(),
        ap.Resize(224, 224),
        ap.RandomFlip(),
        ap.RandomBrightness(0.2),
        ap.RandomContrast(0.8, 1.2),
        ap.RandomSaturation(0.8, 1.2),
        ap.RandomHue(0.05),
        ap.Rescale(1 / 255),
    ]
    return ap.Workload(data=ap.ImageFolder(PHOTOS.absolute()), ops=ops, batch_size=32, model=small_cnn())


def _crops(data: Any) -> ap.Workload:
    ops = [ap.Decode(), ap.RandomResizedCrop(224, 224), ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=data, ops=ops, batch_size=32, model=small_cnn())


def crops() -> ap.Workload:
    return _crops(ap.ImageFolder(varied()))


def crops_500() -> ap.Workload:
    return _crops(ap.ImageFolder(PHOTOS.absolute()))


def crops_20ms() -> ap.Workload:
    return _crops(Waiting(0.020, varied()))


def progressive() -> ap.Workload:
    return _crops(ap.ImageFolder(varied(cv2.IMWRITE_JPEG_PROGRESSIVE, 1)))


def per_pixel(bands: int, classes: int = 5) -> Callable[[], Any]:
    """Return a small CNN that names a class of each pixel."""

    def build() -> Any:
        import keras
        from keras import layers

        inputs = keras.Input((None, None, bands))
        x = layers.Conv2D(8, 3, strides=4, padding="same", activation="relu")(inputs)
        x = layers.UpSampling2D(4)(layers.Conv2D(classes, 1)(x))
        model = keras.Model(inputs, x)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    return build


def _made(name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder beside the photographs, which `make` fills if it is not there."""
    folder = _beside(name)
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            make(Path(made))
            shutil.copytree(made, folder)
    return folder


def _write_scenes(folder: Path, count: int = 8, side: int = 1024, bands: int = 6) -> None:
    import tifffile

    generator = np.random.default_rng(0)
    for number in range(count):
        smooth = np.cumsum(np.cumsum(generator.normal(0, 3, (side, side, bands)), 0), 1)
        share = (smooth - smooth.min()) / np.ptp(smooth)
        scene = (2000 + 3000 * share + generator.normal(0, 20, smooth.shape)).astype(np.uint16)
        of_tiles = {"photometric": "minisblack", "tile": (256, 256), "compression": "zlib", "predictor": True}
        for name, pixels in (("scene", scene), ("classes", (share[..., 0] * 4.999).astype(np.uint8))):
            planes = "contig" if pixels.ndim == 3 else None
            tifffile.imwrite(folder / f"{number}_{name}.tif", pixels, planarconfig=planes, metadata=None, **of_tiles)


def scenes() -> ap.Workload:
    folder = _made("scenes", _write_scenes)
    data = ap.Windows(folder / "*_scene.tif", folder / "*_classes.tif", size=128, random=64)
    ops = [ap.RandomFlip(), ap.Normalize(3000.0, 1000.0)]
    return ap.Workload(data=data, ops=ops, batch_size=16, model=per_pixel(6))


def _write_deep(folder: Path, count: int = 400) -> None:
    for name in ("images", "masks"):
        (folder / name).mkdir()
    for number, path in enumerate(sorted(PHOTOS.glob("*/*.jpg"))[:count]):
        grey = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        deep = grey.astype(np.uint16) * 257 ^ np.random.default_rng(number).integers(0, 64, grey.shape, np.uint16)
        cv2.imwrite(str(folder / "images" / f"{number:04}.png"), deep)
        cv2.imwrite(str(folder / "masks" / f"{number:04}.png"), cv2.blur(grey, (9, 9)) // 52)


def deep_masks() -> ap.Workload:
    folder = _made("deep", _write_deep)
    ops = [ap.Decode(channels=1, dtype="uint16"), ap.RandomCrop(192, 192), ap.RandomFlip(), ap.Rescale(1 / 65535)]
    return ap.Workload(
        data=ap.ImagePairs(folder / "images", folder / "masks"), ops=ops, batch_size=16, model=per_pixel(1)
    )


def heavy_tail() -> ap.Workload:
    return _photos(HeavyTail())


def mlperf_h100() -> ap.Workload:
    return _photos(ap.ImageFolder(PHOTOS.absolute()), batch_size=400)


def mlperf_h100_own_size() -> ap.Workload:
    return _photos(ap.ImageFolder(of_size(640, 480, 114_660)), batch_size=400)


def mlperf_b200() -> ap.Workload:
    return _photos(ap.ImageFolder(of_size(1024, 768, 322_957)), batch_size=24)


def s3() -> ap.Workload:
    return _photos(ap.ImageFolder(os.environ["AUTOPIPE_BUCKET"]))


def arrays_28() -> ap.Workload:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (60_000, 28, 28, 1)).astype(np.uint8)
    labels = generator.integers(0, 10, 60_000)
    return ap.Workload(data=ap.Arrays(images, labels), ops=[ap.Rescale(1 / 255)], batch_size=128, model=mlp)


def arrays_32() -> ap.Workload:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (50_000, 32, 32, 3)).astype(np.uint8)
    labels = generator.integers(0, 10, 50_000)
    ops = [ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=ap.Arrays(images, labels), ops=ops, batch_size=128, model=small_cnn(32, 10))


def mobilenet() -> ap.Workload:
    def build() -> Any:
        import keras

        model = keras.applications.MobileNetV2(weights=None, classes=16)
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model

    ops = [ap.Decode(), ap.Resize(224, 224), ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=ap.ImageFolder(PHOTOS.absolute()), ops=ops, batch_size=32, model=build)
