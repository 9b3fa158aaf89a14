"""The operations of `ops.py` as other people write them; nothing here knows autopipe.

A function for each library, which may be missing, returns a `Peer` for images of one size.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import random
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 32
LOWER, UPPER, DELTA, HUE, DEGREES, PADDING = 0.8, 1.2, 0.2, 0.05, 20, 32
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
BRIGHTNESS, CONTRAST, SATURATION, TURN = "RandomBrightness", "RandomContrast", "RandomSaturation", "RandomHue"
LIGHT, TINT = f"{BRIGHTNESS}, {CONTRAST}", f"{SATURATION}, {TURN}"
ALL_COLOURS = f"{LIGHT}, {TINT}"

Way: TypeAlias = Callable[[Any], Any]
Work: TypeAlias = Callable[[int], object]


@dataclasses.dataclass(frozen=True)
class Peer:
    """A library's operations.

    Attributes:
        ways: from an operation's name to a function of what `works` gives it: an image or a batch.
        works: from such a function and images, shape (count, height, width, 3), uint8, to what runs it over all of them
            a number of times; and the library's own loop without it, unless that is only Python's.
    """

    ways: dict[str, Way]
    works: Callable[[Way, NDArray[np.uint8]], tuple[Work, Work | None]]


def _in_turn(*ways: Way) -> Way:
    return lambda image: functools.reduce(lambda changed, way: way(changed), ways, image)


def _with_pairs(ways: dict[str, Way]) -> dict[str, Way]:
    for name in (LIGHT, TINT, ALL_COLOURS):
        ways.setdefault(name, _in_turn(*(ways[each] for each in name.split(", "))))
    return ways


def _once(convert: Callable[[NDArray[np.uint8]], Any]) -> Callable[[NDArray[np.uint8]], Any]:
    """Return the conversion with its results kept: many operations take the same images."""
    kept: dict[int, Any] = {}

    def converted(images: NDArray[np.uint8]) -> Any:
        if id(images) not in kept:
            kept[id(images)] = convert(images)
        return kept[id(images)]

    return converted


def _loop(convert: Callable[[NDArray[np.uint8]], Any]) -> Callable[[Way, NDArray[np.uint8]], tuple[Work, None]]:
    """Return the `works` of a library that is called for each image, which is converted before."""
    converted = _once(lambda images: list(map(convert, images)))

    def works(way: Way, images: NDArray[np.uint8]) -> tuple[Work, None]:
        given = converted(images)

        def run(times: int) -> None:
            for _ in range(times):
                for image in given:
                    way(image)

        return run, None

    return works


def _mapped(way: Way, images: Any, batch: int | None) -> tuple[Work, Work]:
    """Return the `works` of tf.data: a map that no visit to Python interrupts, with and without its function."""
    import tensorflow as tf

    def counted(change: Way | None, times: Any) -> Any:
        data = tf.data.Dataset.from_tensor_slices(images).repeat(times)
        data = data if batch is None else data.batch(batch, drop_remainder=True)
        data = data if change is None else data.map(change)
        return data.reduce(np.int64(0), lambda count, _: count + 1)

    def work(change: Way | None) -> Work:
        compiled = tf.function(functools.partial(counted, change))
        return lambda times: compiled(tf.constant(times, tf.int64)).numpy()

    return work(way), work(None)


def _tensorflow_in_one_thread() -> Any:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return tf


def tensorflow(size: int) -> Peer:
    """tf.image; colours of float32 images from 0 to 1, which a resize gives and which none of them converts."""
    tf = _tensorflow_in_one_thread()

    def resized_crop(image: Any) -> Any:
        drawn = {"min_object_covered": 0.0, "area_range": AREA, "aspect_ratio_range": RATIO}
        whole = [[[0.0, 0.0, 1.0, 1.0]]]
        begin, extent, _ = tf.image.sample_distorted_bounding_box(tf.shape(image), whole, **drawn)
        return tf.image.resize(tf.slice(image, begin, extent), (size, size))

    floating: dict[str, Way] = {
        BRIGHTNESS: lambda image: tf.image.random_brightness(image, DELTA),
        CONTRAST: lambda image: tf.image.random_contrast(image, LOWER, UPPER),
        SATURATION: lambda image: tf.image.random_saturation(image, LOWER, UPPER),
        TURN: lambda image: tf.image.random_hue(image, HUE),
        "RandomGrayscale": lambda image: tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image)),
    }
    _with_pairs(floating)
    ways: dict[str, Way] = {
        "RandomFlip": tf.image.random_flip_left_right,
        "RandomCrop": lambda image: tf.image.random_crop(image, (size, size, 3)),
        "CenterCrop": lambda image: tf.image.resize_with_crop_or_pad(image, size, size),
        "RandomResizedCrop": resized_crop,
        "Resize": lambda image: tf.image.resize(image, (size, size)),
        "Resize, area": lambda image: tf.image.resize(image, (size, size), "area"),
        "Resize, bicubic": lambda image: tf.image.resize(image, (size, size), "bicubic"),
        "ResizeKeepingAspect": lambda image: tf.image.resize_with_pad(image, size, size),
        "Pad": lambda image: tf.image.resize_with_crop_or_pad(image, size + PADDING, size + PADDING),
        "Cast": lambda image: tf.cast(image, tf.float32),
        "Rescale": lambda image: tf.cast(image, tf.float32) / 255.0,
        "Normalize": lambda image: (tf.cast(image, tf.float32) / 255.0 - MEAN) / STD,
        **floating,
    }

    bytes_of = _once(tf.constant)
    floats_of = _once(lambda images: tf.constant(images.astype(np.float32) / np.float32(255)))

    def works(way: Way, images: NDArray[np.uint8]) -> tuple[Work, Work]:
        return _mapped(way, (floats_of if way in floating.values() else bytes_of)(images), None)

    return Peer(ways, works)


def keras_layers(size: int) -> Peer:
    """Keras's layers on batches in a map of tf.data, as its guide on preprocessing has them."""
    tf = _tensorflow_in_one_thread()
    from keras import layers

    turned = DEGREES / 360
    given: dict[str, Any] = {
        "RandomFlip": layers.RandomFlip("horizontal"),
        "RandomCrop": layers.RandomCrop(size, size),
        "CenterCrop": layers.CenterCrop(size, size),
        "Resize": layers.Resizing(size, size),
        "Resize, area": layers.Resizing(size, size, "area"),
        "Resize, bicubic": layers.Resizing(size, size, "bicubic"),
        "ResizeKeepingAspect": layers.Resizing(size, size, pad_to_aspect_ratio=True),
        BRIGHTNESS: layers.RandomBrightness(DELTA),
        CONTRAST: layers.RandomContrast((1 - LOWER, UPPER - 1)),
        SATURATION: layers.RandomSaturation((0.4, 0.6)),  # 0.5 changes nothing
        TURN: layers.RandomHue(HUE),
        "RandomGrayscale": layers.RandomGrayscale(1.0),
        "GaussianBlur": layers.RandomGaussianBlur(kernel_size=3, sigma=(0.1, 2.0)),
        "RandomErasing": layers.RandomErasing(),
        "RandomAffine, rotation": layers.RandomRotation(turned),
        "Rescale": layers.Rescaling(1 / 255),
        "Normalize": layers.Normalization(mean=[255 * each for each in MEAN], variance=[(255 * e) ** 2 for e in STD]),
    }
    moved = layers.RandomRotation(turned), layers.RandomTranslation(0.1, 0.1), layers.RandomZoom(0.2)
    ways = {name: _trained(layer, size) for name, layer in given.items()}
    ways["RandomAffine"] = _in_turn(*(_trained(layer, size) for layer in moved))
    bytes_of = _once(tf.constant)
    return Peer(_with_pairs(ways), lambda way, images: _mapped(way, bytes_of(images), BATCH))


def _trained(layer: Any, size: int) -> Way:
    layer(np.zeros((1, size, size, 3), np.float32), training=True)  # makes its variables outside of the map
    return lambda images: layer(images, training=True)


def albumentations(size: int) -> Peer:
    """One transform in a `Compose`, on arrays of uint8."""
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it asks a server otherwise
    import albumentations as A

    same = {"brightness": (1, 1), "contrast": (1, 1), "saturation": (1, 1), "hue": (0, 0)}
    factors = LOWER, UPPER
    jitter = {BRIGHTNESS: "brightness", CONTRAST: "contrast", SATURATION: "saturation", TURN: "hue"}

    def jittered(*names: str) -> Any:
        chosen = {jitter[name]: (-HUE, HUE) if name == TURN else factors for name in names}
        return A.ColorJitter(**(same | chosen), p=1)

    given: dict[str, Any] = {
        "RandomFlip": A.HorizontalFlip(p=0.5),
        "RandomCrop": A.RandomCrop(size, size),
        "CenterCrop": A.CenterCrop(size, size),
        "RandomResizedCrop": A.RandomResizedCrop((size, size), AREA, RATIO),
        "Resize": A.Resize(size, size),
        "Resize, area": A.Resize(size, size, interpolation=3),  # cv2.INTER_AREA
        "Resize, bicubic": A.Resize(size, size, interpolation=2),  # cv2.INTER_CUBIC
        "ResizeKeepingAspect": [A.LongestMaxSize(size), A.PadIfNeeded(size, size, border_mode=0)],
        "Pad": A.PadIfNeeded(size + PADDING, size + PADDING, border_mode=0),
        **{name: jittered(name) for name in jitter},
        LIGHT: A.RandomBrightnessContrast(DELTA, (LOWER - 1, UPPER - 1), p=1),
        TINT: jittered(SATURATION, TURN),
        ALL_COLOURS: jittered(*jitter),
        "RandomGrayscale": A.ToGray(p=1),
        "GaussianBlur": A.GaussianBlur(blur_limit=(3, 3), sigma_limit=(0.1, 2.0), p=1),
        "RandomErasing": A.Erasing(p=1),
        "RandomAffine, rotation": A.Affine(rotate=(-DEGREES, DEGREES), border_mode=2, p=1),  # cv2.BORDER_REFLECT
        "RandomAffine": A.Affine(rotate=(-DEGREES, DEGREES), translate_percent=(-0.1, 0.1), shear=(-10, 10),
                                 scale=(0.8, 1.2), border_mode=2, p=1),
        "Rescale": A.ToFloat(max_value=255),
        "Normalize": A.Normalize(MEAN, STD),
    }  # fmt: skip
    ways: dict[str, Way] = {}
    for name, transform in given.items():
        composed = A.Compose(transform if isinstance(transform, list) else [transform])
        ways[name] = functools.partial(_composed, composed)
    return Peer(ways, _loop(np.ascontiguousarray))


def _composed(composed: Any, image: Any) -> Any:
    return composed(image=image)["image"]


def pillow(size: int) -> Peer:
    """Pillow, and NumPy where numbers come out, on images of Pillow's own."""
    from PIL import Image, ImageEnhance, ImageFilter, ImageOps

    chance, bilinear = random.Random(0), Image.Resampling.BILINEAR

    def crop(image: Any, *, centre: bool) -> Any:
        free = image.width - size, image.height - size
        left, top = (side // 2 if centre else chance.randint(0, side) for side in free)
        return image.crop((left, top, left + size, top + size))

    def resized_crop(image: Any) -> Any:
        share = image.width * image.height * chance.uniform(*AREA)
        ratio = np.exp(chance.uniform(*np.log(RATIO)))
        width, height = min(image.width, (share * ratio) ** 0.5), min(image.height, (share / ratio) ** 0.5)
        left, top = chance.uniform(0, image.width - width), chance.uniform(0, image.height - height)
        return image.resize((size, size), bilinear, (left, top, left + width, top + height))

    def turned_hue(image: Any) -> Any:  # as in torchvision
        hue, saturation, value = image.convert("HSV").split()
        shift = int(chance.uniform(-HUE, HUE) * 255) % 256
        hue = Image.fromarray(np.asarray(hue) + np.uint8(shift))
        return Image.merge("HSV", (hue, saturation, value)).convert("RGB")

    def affine(image: Any) -> Any:
        numbers = [1 + chance.uniform(-0.2, 0.2), chance.uniform(-0.3, 0.3), chance.uniform(-20, 20)]
        across, lean, shift = numbers
        places = (across, lean, shift, -lean, across, shift)
        return image.transform(image.size, Image.Transform.AFFINE, places, bilinear)

    def enhanced(kind: Any) -> Way:
        return lambda image: kind(image).enhance(chance.uniform(LOWER, UPPER))

    def floating(image: Any) -> NDArray[np.float32]:
        return np.asarray(image, np.float32)

    mean, std = np.float32(MEAN), np.float32(STD)
    ways: dict[str, Way] = {
        "RandomFlip": lambda image: ImageOps.mirror(image) if chance.random() < 0.5 else image,
        "RandomCrop": functools.partial(crop, centre=False),
        "CenterCrop": functools.partial(crop, centre=True),
        "RandomResizedCrop": resized_crop,
        "Resize": lambda image: image.resize((size, size), bilinear),
        "Resize, area": lambda image: image.resize((size, size), Image.Resampling.BOX),
        "Resize, bicubic": lambda image: image.resize((size, size), Image.Resampling.BICUBIC),
        "ResizeKeepingAspect": lambda image: ImageOps.pad(image, (size, size), bilinear),
        "Pad": lambda image: ImageOps.expand(image, PADDING // 2),
        BRIGHTNESS: enhanced(ImageEnhance.Brightness),
        CONTRAST: enhanced(ImageEnhance.Contrast),
        SATURATION: enhanced(ImageEnhance.Color),
        TURN: turned_hue,
        "RandomGrayscale": lambda image: image.convert("L").convert("RGB"),
        "GaussianBlur": lambda image: image.filter(ImageFilter.GaussianBlur(chance.uniform(0.1, 2))),
        "RandomAffine, rotation": lambda image: image.rotate(chance.uniform(-DEGREES, DEGREES), bilinear),
        "RandomAffine": affine,
        "Cast": floating,
        "Rescale": lambda image: floating(image) / 255,
        "Normalize": lambda image: (floating(image) / 255 - mean) / std,
    }
    return Peer(_with_pairs(ways), _loop(Image.fromarray))


def torchvision(size: int) -> Peer:
    """Transforms of torchvision, version 2, on tensors (3, height, width) of uint8, in one thread."""
    import torch
    from torchvision.transforms import InterpolationMode, v2

    torch.set_num_threads(1)
    plain: dict[str, Any] = {"antialias": False}  # as OpenCV and TensorFlow
    bilinear = InterpolationMode.BILINEAR
    to_float = v2.ToDtype(torch.float32, scale=True)
    ways: dict[str, Way] = {
        "RandomFlip": v2.RandomHorizontalFlip(),
        "RandomCrop": v2.RandomCrop(size),
        "CenterCrop": v2.CenterCrop(size),
        "RandomResizedCrop": v2.RandomResizedCrop(size, AREA, RATIO, **plain),
        "Resize": v2.Resize((size, size), **plain),
        "Resize, bicubic": v2.Resize((size, size), InterpolationMode.BICUBIC, **plain),
        "Pad": v2.Pad(PADDING // 2),
        BRIGHTNESS: v2.ColorJitter(brightness=DELTA),
        CONTRAST: v2.ColorJitter(contrast=(LOWER, UPPER)),
        SATURATION: v2.ColorJitter(saturation=(LOWER, UPPER)),
        TURN: v2.ColorJitter(hue=HUE),
        "RandomGrayscale": v2.RandomGrayscale(1.0),
        "GaussianBlur": v2.GaussianBlur(3, (0.1, 2.0)),
        "RandomErasing": v2.RandomErasing(1.0),
        "RandomAffine, rotation": v2.RandomRotation(DEGREES, bilinear),
        "RandomAffine": v2.RandomAffine(DEGREES, (0.1, 0.1), (0.8, 1.2), 10, bilinear),
        "Cast": v2.ToDtype(torch.float32),
        "Rescale": to_float,
        "Normalize": v2.Compose([to_float, v2.Normalize(MEAN, STD)]),
    }
    return Peer(_with_pairs(ways), _loop(lambda image: torch.from_numpy(image.transpose(2, 0, 1).copy())))


# Each library by its name in the table, and the package that it needs.
PEERS: dict[str, tuple[str, Callable[[int], Peer]]] = {
    "tf.image": ("tensorflow", tensorflow),
    "Keras": ("keras", keras_layers),
    "albumentations": ("albumentations", albumentations),
    "Pillow": ("PIL", pillow),
    "torchvision": ("torchvision", torchvision),
}
