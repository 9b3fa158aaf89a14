"""Autopipe's ops in plain TensorFlow, as lines of code on `x` and `y`, for pipelines that do without autopipe.

The lines say what a person would write; the random ones draw TensorFlow's own numbers. How they come into a pipeline is
in `autopipe.tuned.eject.module`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from autopipe.core.op import Op
from autopipe.core.plan import Step
from autopipe.ops.color import RandomBrightness, RandomContrast
from autopipe.ops.crop import CenterCrop, RandomCrop
from autopipe.ops.decode import Decode
from autopipe.ops.flip import RandomFlip
from autopipe.ops.mask import MaskToClass
from autopipe.ops.onehot import OneHot
from autopipe.ops.pad import Pad
from autopipe.ops.resize import Resize
from autopipe.ops.scale import Cast, Normalize, Rescale
from autopipe.tuned.eject.steps import Lines, is_coloured_after, is_encoded, is_flat, is_integer, is_mask, parts


def reason_against(step: Step) -> str | None:
    """Return why an op has no plain form, or None if it has one."""
    if type(step.op) not in _WRITERS:
        return f"`{type(step.op).__name__}` runs code of your own"
    if isinstance(step.op, Resize) and step.op.interpolation not in ("bilinear", "nearest"):
        return f"tf.image.resize places pixels differently with interpolation={step.op.interpolation!r}"
    return None


def lines(step: Step) -> Lines:
    """Return the code of an op that has a plain form."""
    return _WRITERS[type(step.op)](step.op, step)


def _decode(op: Any, step: Step) -> Lines:
    found = []
    if is_encoded(step, "x"):
        found.append(f'x = tf.io.decode_jpeg(x, channels={op.channels}, dct_method="INTEGER_ACCURATE")  # PNG, too')
    if is_encoded(step, "y"):
        coloured = is_coloured_after(step)
        found.append(
            "y = tf.io.decode_png(y, channels=3)" if coloured else "y = tf.io.decode_png(y, channels=1)[..., 0]"
        )
    return found


def _resize(op: Any, step: Step) -> Lines:
    return [line for part in parts(step) for line in _resized(op, step, part)]


def _resized(op: Any, step: Step, part: str) -> Lines:
    if is_mask(step, part) or op.interpolation == "nearest":
        return [
            f"rows = (2 * tf.range({op.height}) + 1) * tf.shape({part})[0] // {2 * op.height}",
            f"columns = (2 * tf.range({op.width}) + 1) * tf.shape({part})[1] // {2 * op.width}",
            f"{part} = tf.gather(tf.gather({part}, rows), columns, axis=1)",
        ]
    resized = f"tf.image.resize({part}, ({op.height}, {op.width}))"
    integer = is_integer(step, part)
    return [f"{part} = tf.saturate_cast(tf.round({resized}), tf.uint8)" if integer else f"{part} = {resized}"]


def _center_crop(op: Any, step: Step) -> Lines:
    first = parts(step)[0]
    place = [f"top, left = tf.unstack((tf.shape({first})[:2] - ({op.height}, {op.width}) + 1) // 2)"]
    return place + [_cut(op, step, part) for part in parts(step)]


def _random_crop(op: Any, step: Step) -> Lines:
    return [
        f"free = tf.cast(tf.shape({parts(step)[0]})[:2] - ({op.height}, {op.width}) + 1, tf.float32)",
        "top, left = tf.unstack(tf.cast(tf.random.uniform((2,)) * free, tf.int32))",
        *(_cut(op, step, part) for part in parts(step)),
    ]


def _cut(op: Any, step: Step, part: str) -> str:
    if is_flat(step, part):
        return f"{part} = tf.slice({part}, (top, left), ({op.height}, {op.width}))"
    return f"{part} = tf.slice({part}, (top, left, 0), ({op.height}, {op.width}, -1))"


def _flip(op: Any, step: Step) -> Lines:
    names = ", ".join(parts(step))
    found = []
    for wanted, mirrored in ((op.horizontal, "{}[:, ::-1]"), (op.vertical, "{}[::-1]")):
        if wanted:
            turned = ", ".join(mirrored.format(part) for part in parts(step))
            found += ["if tf.random.uniform(()) < 0.5:", f"    {names} = {turned}"]
    return found


def _pad(op: Any, step: Step) -> Lines:
    found = []
    for part in parts(step):
        value = op.mask_value if is_mask(step, part) else op.value
        edges = "[[top, down - top], [left, right - left]" + ("]" if is_flat(step, part) else ", [0, 0]]")
        found += [
            f"down, right = tf.unstack(tf.maximum(0, ({op.height}, {op.width}) - tf.shape({part})[:2]))",
            "top, left = down // 2, right // 2",
            f"{part} = tf.pad({part}, {edges}, constant_values=tf.cast({value!r}, {part}.dtype))",
        ]
    return found


def _brightness(op: Any, step: Step) -> Lines:
    if not is_integer(step, "x"):
        return [f"x = x + tf.random.uniform((), -{op.delta!r}, {op.delta!r}, x.dtype)"]
    shift = f"255.0 * tf.random.uniform((), -{op.delta!r}, {op.delta!r})"
    return [f"x = tf.saturate_cast(tf.round(tf.cast(x, tf.float32) + {shift}), tf.uint8)"]


def _contrast(op: Any, step: Step) -> Lines:
    factor = f"tf.random.uniform((), {op.lower!r}, {op.upper!r})"
    if not is_integer(step, "x"):
        return [f"x = tf.image.adjust_contrast(x, {factor})"]
    return [
        f"x = tf.image.adjust_contrast(tf.cast(x, tf.float32), {factor})",
        "x = tf.saturate_cast(tf.round(x), tf.uint8)",
    ]


def _mask_to_class(op: Any, step: Step) -> Lines:
    return ["y = tf.gather(CLASS_OF_COLOUR, tf.reduce_sum(tf.cast(y, tf.int32) * (1, 256, 65536), axis=-1))"]


def _one_hot(op: Any, step: Step) -> Lines:
    return [f"y = tf.one_hot(y, {op.classes}, dtype=tf.{op.dtype})"]


def _rescale(op: Any, step: Step) -> Lines:
    offset = f" + {op.offset!r}" if op.offset else ""
    return [f"x = tf.cast(x, tf.{op.dtype}) * {op.scale!r}{offset}"]


def _normalize(op: Any, step: Step) -> Lines:
    return [f"x = (tf.cast(x, tf.{op.dtype}) - {op.mean!r}) / {op.std!r}"]


def _cast(op: Any, step: Step) -> Lines:
    return [f"{part} = tf.cast({part}, tf.{op.dtype})" for part in parts(step)]


_WRITERS: Final[dict[type[Op], Callable[[Any, Step], Lines]]] = {
    Decode: _decode,
    Resize: _resize,
    CenterCrop: _center_crop,
    RandomCrop: _random_crop,
    RandomFlip: _flip,
    Pad: _pad,
    RandomBrightness: _brightness,
    RandomContrast: _contrast,
    MaskToClass: _mask_to_class,
    OneHot: _one_hot,
    Rescale: _rescale,
    Normalize: _normalize,
    Cast: _cast,
}
