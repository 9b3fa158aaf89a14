"""MixUp and CutMix: combine two samples of a batch, and their targets with them.

They act on finished samples, so they come after all ops on single ones. The pairs are a permutation of the batch that
its samples' own random numbers make; the last, short batch is mixed within itself.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Iterator
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import OpError
from autopipe.workload.op import Op, Step, Target
from autopipe.workload.ops.pixels import check_number, plain_levels, to_levels, widened
from autopipe.workload.order import generator
from autopipe.workload.plain_code import Library, Lines, Variable, names
from autopipe.workload.sample import Batch, FieldKind, Sample, SampleSpec


@dataclasses.dataclass(frozen=True)
class _Mixing(Op):
    """An op that combines two samples of a batch. `alpha` is of the beta distribution of the first one's share: small
    values leave most samples nearly as they are. `probability` is that of mixing a sample at all.
    """

    alpha: float
    probability: float = 1.0
    mixes: ClassVar[bool] = True
    any_y: ClassVar[bool] = True
    on: ClassVar[Target] = "both"
    draws: ClassVar[int] = 6  # order, chance, two for the share, two for a place

    def __post_init__(self) -> None:
        check_number(self, "alpha", most=math.inf, above=True)
        check_number(self, "probability", above=True)

    def check(self, sample: Sample, spec: SampleSpec) -> None:
        name, x, y = self.name, spec.x, spec.y
        if x.dtype is None or x.dtype.kind not in "uf":
            hint = "Put ap.Decode() before it." if x.dtype is None else 'Put ap.Cast("float32") before it.'
            raise OpError(f"`{name}` mixes levels or floats, but got {x.dtype or 'encoded bytes'}.", hint=hint)
        if y is not None and y.kind is not FieldKind.MASK and (y.dtype is None or y.dtype.kind != "f"):
            raise OpError(
                f"`{name}` needs targets that can be mixed, but got {y.dtype or 'encoded'} labels.",
                hint=f"Put ap.OneHot(classes) before ap.{name}.",
            )

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        return sample

    def mix(self, batch: Batch, random: NDArray[np.float64]) -> Batch:
        x, y = batch
        parts = [(part, self._cuts(part, x)) for part in batch if part is not None]
        if native.mix(parts, random, self.alpha, self.probability):
            return batch
        order = np.argsort(random[:, 0], kind="stable")
        others = x[order], None if y is None else y[order]
        for row in np.flatnonzero(random[:, 1] < self.probability).tolist():
            share = float(generator(random[row, 2:4]).beta(self.alpha, self.alpha))
            self._mix((x, y), others, row, share, random[row, 4:])
        return x, y

    def _cuts(self, part: NDArray[Any], images: NDArray[Any]) -> bool:
        """Return True if a part of the batch gets a rectangle of another sample; the values of others are added."""
        return False

    @abc.abstractmethod
    def _mix(self, batch: Batch, others: Batch, row: int, share: float, random: NDArray[np.float64]) -> None:
        """Put the other sample of a row into that row, which keeps about `share` of itself."""

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        alpha = self.alpha
        if library == "np":
            yield "order = rng.permutation(len(x))"
            yield f"share = rng.beta({alpha}, {alpha}, len(x)).astype(np.float32)"
            chosen = f"np.where(rng.random(len(x)) < {self.probability}, share, np.float32(1))"
        else:
            yield "rows = tf.shape(x)[0]"
            yield "order = tf.random.shuffle(tf.range(rows))"
            yield f"one, other = tf.random.gamma((rows,), {alpha}), tf.random.gamma((rows,), {alpha})"
            yield "share = tf.math.divide_no_nan(one, one + other)  # of a beta distribution"
            chosen = f"tf.where(tf.random.uniform((rows,)) < {self.probability}, share, 1.0)"
        if self.probability < 1:
            yield f"share = {chosen}"
        yield from self._plain_mixed(step, library)

    @abc.abstractmethod
    def _plain_mixed(self, step: Step, library: Library) -> Iterator[str]:
        """Yield lines that mix with the samples at `order`, by the shares in `share`."""


@dataclasses.dataclass(frozen=True)
class MixUp(_Mixing):
    """Add another sample of the batch to each, image and target by the same shares (Zhang et al., 2017).

    Targets must be floating point (behind `OneHot`), masks too.
    """

    alpha: float = 0.2

    def check(self, sample: Sample, spec: SampleSpec) -> None:
        super().check(sample, spec)
        if spec.y is not None and spec.y.dtype is not None and spec.y.dtype.kind != "f":
            hint = "Put ap.OneHot(classes) before ap.MixUp."
            raise OpError(f"`MixUp` needs masks that can be mixed, but got {spec.y.dtype} class numbers.", hint=hint)

    def _mix(self, batch: Batch, others: Batch, row: int, share: float, random: NDArray[np.float64]) -> None:
        for mine, other in zip(batch, others, strict=True):
            if mine is not None and other is not None:
                mine[row] = _sum(mine[row], other[row], share)

    def _plain_mixed(self, step: Step, library: Library) -> Iterator[str]:
        for part in names(step.before):
            yield from _plain_sum(part, "share", library)


@dataclasses.dataclass(frozen=True)
class CutMix(_Mixing):
    """Put a rectangle of another sample of the batch into each (Yun et al., 2019).

    The rectangle has the image's own proportions and a place of the sample's own. A mask's rectangle is put in alike;
    other targets are mixed by its share of the image.
    """

    alpha: float = 1.0

    def _cuts(self, part: NDArray[Any], images: NDArray[Any]) -> bool:
        return part.shape[1:3] == images.shape[1:3]

    def _mix(self, batch: Batch, others: Batch, row: int, share: float, random: NDArray[np.float64]) -> None:
        x, y = batch
        height, width = x.shape[1:3]
        side = (1 - share) ** 0.5
        tall, wide = int(height * side + 0.5), int(width * side + 0.5)
        top, left = int(random[0] * (height - tall + 1)), int(random[1] * (width - wide + 1))
        inside = (row, slice(top, top + tall), slice(left, left + wide))
        x[inside] = others[0][inside]
        if y is None or others[1] is None:
            return
        if self._cuts(y, x):
            y[inside] = others[1][inside]
        else:
            y[row] = _sum(y[row], others[1][row], 1 - tall * wide / (height * width))

    def _plain_mixed(self, step: Step, library: Library) -> Iterator[str]:
        yield from _PLACES[library]
        for part in names(step.before):
            shape, image = part.field.shape, step.before.x.shape
            if shape is None or image is None or shape[:2] != image[:2]:
                yield from _plain_sum(part, "kept", library)
                continue
            others = f"{part}[order]" if library == "np" else f"tf.gather({part}, order)"
            inside = "inside" if part.is_flat else "inside[..., None]"
            yield f"{part} = {library}.where({inside}, {others}, {part})"


_INSIDE: Final = (
    "down = (down >= top[:, None]) & (down < (top + tall)[:, None])",
    "across = (across >= left[:, None]) & (across < (left + wide)[:, None])",
    "inside = down[:, :, None] & across[:, None, :]",
)
_PLACES: Final = {
    "np": [
        "height, width = x.shape[1:3]",
        "side = np.sqrt(1 - share)",
        "tall, wide = (height * side + 0.5).astype(int), (width * side + 0.5).astype(int)",
        "top = (rng.random(len(x)) * (height - tall + 1)).astype(int)",
        "left = (rng.random(len(x)) * (width - wide + 1)).astype(int)",
        "down, across = np.arange(height), np.arange(width)",
        *_INSIDE,
        "kept = (1 - tall * wide / (height * width)).astype(np.float32)",
    ],
    "tf": [
        "height, width = tf.unstack(tf.cast(tf.shape(x)[1:3], tf.float32))",
        "side = tf.sqrt(1 - share)",
        "tall, wide = tf.floor(height * side + 0.5), tf.floor(width * side + 0.5)",
        "top = tf.floor(tf.random.uniform((rows,)) * (height - tall + 1))",
        "left = tf.floor(tf.random.uniform((rows,)) * (width - wide + 1))",
        "down, across = tf.range(height), tf.range(width)",
        *_INSIDE,
        "kept = 1 - tall * wide / (height * width)",
    ],
}
"""Lines that draw the rectangles, as in `CutMix._mix`: where they are `inside`, and the share that is `kept`."""


def _plain_sum(part: Variable, share: str, library: Library) -> Lines:
    ones = ", 1" * (part.field.rank or 0)
    if library == "np":
        mixed = f"{part} * weight + {part}[order] * (1 - weight)"
        weight = f"weight = {share}.reshape((-1{ones}))"
    else:
        mixed = "levels * weight + tf.gather(levels, order) * (1 - weight)"
        weight = f"weight, levels = tf.reshape({share}, (-1{ones})), tf.cast({part}, tf.float32)"
    return [weight, f"{part} = {plain_levels(mixed, part, library)}"]


def _sum(one: NDArray[Any], other: NDArray[Any], share: float) -> NDArray[Any]:
    kept, rest = np.float32(share), np.float32(1 - share)
    return to_levels(widened(one) * kept + widened(other) * rest, one.dtype)
