"""Autopipe's ops in plain NumPy and OpenCV, as lines of code on `x` and `y`; random ones draw from `rng`.

The counterpart of `autopipe.tuned.eject.tensorflow`, for a `keras.utils.PyDataset`.
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

_RESIZE_BY: Final = {"bilinear": "LINEAR", "area": "AREA", "bicubic": "CUBIC"}


def reason_against(step: Step) -> str | None:
    """Return why an op has no plain form, or None if it has one."""
    if type(step.op) not in _WRITERS:
        return f"`{type(step.op).__name__}` runs code of your own"
    if "bfloat16" in (getattr(step.op, "dtype", None),):
        return "NumPy has no bfloat16"
    return None


def lines(step: Step) -> Lines:
    """Return the code of an op that has a plain form."""
    return _WRITERS[type(step.op)](step.op, step)


def _decode(op: Any, step: Step) -> Lines:
    found = []
    if is_encoded(step, "x"):
        found.append(f"x = {_read('x', grey=op.channels == 1)}{'[..., None]' if op.channels == 1 else ''}")
    if is_encoded(step, "y"):
        found.append(f"y = {_read('y', grey=not is_coloured_after(step))}")
    return found


def _read(part: str, *, grey: bool) -> str:
    flag = "GRAYSCALE" if grey else "COLOR_RGB"
    return f"cv2.imread({part}, cv2.IMREAD_{flag} | cv2.IMREAD_IGNORE_ORIENTATION)"


def _resize(op: Any, step: Step) -> Lines:
    found = []
    for part in parts(step):
        if is_mask(step, part) or op.interpolation == "nearest":
            found += [
                f"rows = (2 * np.arange({op.height}) + 1) * {part}.shape[0] // {2 * op.height}",
                f"columns = (2 * np.arange({op.width}) + 1) * {part}.shape[1] // {2 * op.width}",
                f"{part} = {part}[rows][:, columns]",
            ]
            continue
        method = _RESIZE_BY[op.interpolation]
        resized = f"cv2.resize({part}, ({op.width}, {op.height}), interpolation=cv2.INTER_{method})"
        grey = not is_flat(step, part) and _channels(step, part) == 1
        found.append(f"{part} = {resized}{'[..., None]' if grey else ''}")
    return found


def _channels(step: Step, part: str) -> int | None:
    field = step.before.x if part == "x" else step.before.y
    return field.shape[-1] if field is not None and field.shape is not None and field.rank == 3 else None


def _center_crop(op: Any, step: Step) -> Lines:
    first = parts(step)[0]
    place = f"top, left = ({first}.shape[0] - {op.height} + 1) // 2, ({first}.shape[1] - {op.width} + 1) // 2"
    return [place, *_cuts(op, step)]


def _random_crop(op: Any, step: Step) -> Lines:
    first = parts(step)[0]
    place = f"top, left = rng.integers(({first}.shape[0] - {op.height} + 1, {first}.shape[1] - {op.width} + 1))"
    return [place, *_cuts(op, step)]


def _cuts(op: Any, step: Step) -> Lines:
    return [f"{part} = {part}[top : top + {op.height}, left : left + {op.width}]" for part in parts(step)]


def _flip(op: Any, step: Step) -> Lines:
    names = ", ".join(parts(step))
    found = []
    for wanted, mirrored in (
        (op.horizontal, "np.ascontiguousarray({}[:, ::-1])"),
        (op.vertical, "np.ascontiguousarray({}[::-1])"),
    ):
        if wanted:
            turned = ", ".join(mirrored.format(part) for part in parts(step))
            found += ["if rng.random() < 0.5:", f"    {names} = {turned}"]
    return found


def _pad(op: Any, step: Step) -> Lines:
    found = []
    for part in parts(step):
        value = op.mask_value if is_mask(step, part) else op.value
        edges = "(top, down - top), (left, right - left)" + ("" if is_flat(step, part) else ", (0, 0)")
        found += [
            f"down, right = max(0, {op.height} - {part}.shape[0]), max(0, {op.width} - {part}.shape[1])",
            "top, left = down // 2, right // 2",
            f"{part} = np.pad({part}, ({edges}), constant_values={value!r})",
        ]
    return found


def _brightness(op: Any, step: Step) -> Lines:
    shift = f"rng.uniform(-{op.delta!r}, {op.delta!r})"
    if not is_integer(step, "x"):
        return [f"x = x + {shift}"]
    return [f"x = np.clip(np.rint(x + 255 * {shift}), 0, 255).astype(np.uint8)"]


def _contrast(op: Any, step: Step) -> Lines:
    factor = f"rng.uniform({op.lower!r}, {op.upper!r})"
    stretched = f"(x - mean) * {factor} + mean"
    if is_integer(step, "x"):
        stretched = f"np.clip(np.rint({stretched}), 0, 255).astype(np.uint8)"
    return ["mean = x.mean(axis=(0, 1))", f"x = {stretched}"]


def _mask_to_class(op: Any, step: Step) -> Lines:
    return ["y = CLASS_OF_COLOUR[y.astype(np.int32) @ (1, 256, 65536)]"]


def _one_hot(op: Any, step: Step) -> Lines:
    return [f"y = (np.asarray(y)[..., None] == np.arange({op.classes})).astype(np.{op.dtype})"]


def _rescale(op: Any, step: Step) -> Lines:
    offset = f" + np.{op.dtype}({op.offset!r})" if op.offset else ""
    return [f"x = x.astype(np.{op.dtype}) * np.{op.dtype}({op.scale!r}){offset}"]


def _normalize(op: Any, step: Step) -> Lines:
    mean, std = (f"np.asarray({value!r}, np.{op.dtype})" for value in (op.mean, op.std))
    return [f"x = (x.astype(np.{op.dtype}) - {mean}) / {std}"]


def _cast(op: Any, step: Step) -> Lines:
    return [f"{part} = {part}.astype(np.{op.dtype})" for part in parts(step)]


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
