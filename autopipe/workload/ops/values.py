"""Rescale, Normalize and Cast: arithmetic on each value alone, at home on a whole batch and on the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import ConfigError, OpError
from autopipe.workload.op import NUMPY, ArrayNamespace, Op, Step, Target
from autopipe.workload.plain_code import Library, Lines, converted, parts, quoted
from autopipe.workload.sample import Batch, Part, Sample, SampleSpec

_DTYPES = ("float16", "float32", "float64", "bfloat16", "uint8", "int32", "int64")


@dataclasses.dataclass(frozen=True)
class _ValueOp(Op):
    """An op on each value of an image alone.

    Attributes:
        dtype: the dtype of the result; float32 unless told.
    """

    dtype: str = dataclasses.field(default="float32", kw_only=True)
    batchable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            name = type(self).__name__
            raise ConfigError(f"`dtype` of {name} must be one of {', '.join(_DTYPES)}, but got {self.dtype!r}.")

    def values(self, array: Any, xp: ArrayNamespace) -> Any:
        """Return the array after the op; the channel axis is the last."""
        raise NotImplementedError

    def values_into(self, array: NDArray[Any], out: NDArray[Any]) -> None:
        """Write the result to `out`, with the same roundings as `values` and without a temporary array."""
        out[...] = self.values(array, NUMPY)

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Sample:
        x, y = sample
        if not isinstance(x, np.ndarray | np.generic):
            raise OpError(
                f"`{type(self).__name__}` needs a decoded image, but got {type(x).__name__}.",
                hint="Put ap.Decode() before it.",
            )
        if out is None:
            return self.values(x, NUMPY), y
        self.values_into(np.asarray(x), out)
        return out, y

    def apply_many(self, batch: Batch, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Batch:
        return self.apply(batch, spec, random, out)  # values do not know whose they are

    def finish(self, batch: Batch, spec: SampleSpec, xp: ArrayNamespace) -> Batch:
        return self.values(batch[0], xp), batch[1]


@dataclasses.dataclass(frozen=True)
class Rescale(_ValueOp):
    """Multiply by `scale` and add `offset`, in the dtype of the result.

    Attributes:
        scale: factor.
        offset: added afterwards.
    """

    scale: float
    offset: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("scale", "offset"):
            value = getattr(self, name)
            if np.asarray(value).dtype.kind not in "iuf":
                raise ConfigError(f"`{name}` of Rescale must be a number, but got {name}={value!r}.")

    def values(self, array: Any, xp: ArrayNamespace) -> Any:
        scaled = xp.cast(array, self.dtype) * xp.constant(self.scale, self.dtype)
        return scaled + xp.constant(self.offset, self.dtype) if self.offset else scaled

    def values_into(self, array: NDArray[Any], out: NDArray[Any]) -> None:
        if out is not array:
            out[...] = array
        out *= out.dtype.type(self.scale)
        if self.offset:
            out += out.dtype.type(self.offset)

    def plain(self, step: Step, library: Library) -> Lines:
        change = f" * {self.scale!r}" + (f" + {self.offset!r}" if self.offset else "")
        return [f"{part} = {converted(part, self.dtype, library)}{change}" for part in parts(step)]


@dataclasses.dataclass(frozen=True)
class Normalize(_ValueOp):
    """Subtract a mean and divide by a standard deviation, for each channel or for all.

    The division is done as a multiplication by the reciprocal, so that every backend rounds alike.

    Attributes:
        mean: one number, or one for each channel.
        std: one positive number, or one for each channel.
    """

    mean: Sequence[float] | float
    std: Sequence[float] | float

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("mean", "std"):
            value = getattr(self, name)
            object.__setattr__(self, name, tuple(value) if isinstance(value, Sequence | np.ndarray) else value)
        if np.any(np.asarray(self.std) <= 0):
            raise ConfigError(f"`std` of Normalize must be positive, but got std={self.std!r}.")

    def _constants(self, xp: ArrayNamespace) -> tuple[Any, Any]:
        return xp.constant(self.mean, self.dtype), xp.constant(1.0 / np.asarray(self.std, np.float64), self.dtype)

    def values(self, array: Any, xp: ArrayNamespace) -> Any:
        mean, reciprocal = self._constants(xp)
        return (xp.cast(array, self.dtype) - mean) * reciprocal

    def values_into(self, array: NDArray[Any], out: NDArray[Any]) -> None:
        mean, reciprocal = self._constants(NUMPY)
        if out is not array:
            out[...] = array
        out -= mean
        out *= reciprocal

    def plain(self, step: Step, library: Library) -> Lines:
        mean, std = repr(self.mean), repr(self.std)
        if library == "np":
            mean, std = (f"np.asarray({value}, {quoted(self.dtype)})" for value in (mean, std))
        return [f"{part} = ({converted(part, self.dtype, library)} - {mean}) / {std}" for part in parts(step)]


@dataclasses.dataclass(frozen=True)
class Cast(_ValueOp):
    """Change the dtype of the image, of the mask or label, or of both.

    Attributes:
        dtype: the dtype of the result, given by position here.
        on: "image", "mask" (any y) or "both".
    """

    dtype: str = "float32"
    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)

    @property
    def target(self) -> Target:
        return self.on

    def values(self, array: Any, xp: ArrayNamespace) -> Any:
        return xp.cast(array, self.dtype)

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Sample:
        return self.finish(sample, spec, NUMPY)

    def finish(self, batch: Batch, spec: SampleSpec, xp: ArrayNamespace) -> Batch:
        x, y = batch
        if self.on in ("image", "both"):
            x = self.values(x, xp)
        if self.on in ("mask", "both") and y is not None:
            y = self.values(y, xp)
        return x, y

    def plain(self, step: Step, library: Library) -> Lines:
        given = "np.asarray({})" if library == "np" else "{}"
        return [f"{part} = {converted(given.format(part), self.dtype, library)}" for part in parts(step)]
