"""OneHot: from class numbers to vectors of zeros and a one."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from autopipe.core.array_namespace import NUMPY, ArrayNamespace
from autopipe.core.op import Op, Target
from autopipe.core.plain_code import Lines, parts, quoted
from autopipe.core.plan import Step
from autopipe.core.sample import Part, Sample, SampleSpec
from autopipe.errors import ConfigError, DataWarning, OpError

_VOID: Final = 255  # pixels of a mask that belong to no class, as in Pascal VOC and Cityscapes


@dataclasses.dataclass(frozen=True)
class OneHot(Op):
    """Give the label or mask a last axis of length `classes`. A number outside 0..classes-1 becomes all zeros.

    A warning tells where samples have such numbers, unless they are pixels of a mask that are left out, 255 or below 0.
    It is no error, as zeros add nothing to a cross-entropy: a label of -1 may be meant so, too.

    Best done on the device: 32 classes in float32 are 128 times the bytes of the class numbers.

    Attributes:
        classes: how many.
        dtype: of the result.
    """

    classes: int
    dtype: str = "float32"
    batchable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.classes, bool) or not isinstance(self.classes, int) or self.classes < 1:
            raise ConfigError(f"`classes` of OneHot must be a whole number >= 1, but got classes={self.classes!r}.")

    @property
    def target(self) -> Target:
        return "mask"

    def look(self, samples: Sequence[Sample], spec: SampleSpec) -> None:
        others = [self._others(np.asarray(sample[1])) for sample in samples if sample[1] is not None]
        first = next((found for found in others if found is not None), None)
        if first is not None:
            warnings.warn(
                f"`OneHot({self.classes})` knows the classes 0 to {self.classes - 1} and makes zeros of others, and "
                f"{sum(found is not None for found in others)} of {len(samples)} samples that were looked at have "
                f"others, such as {first}. Pass the number of all classes, or number them from 0 first: "
                'ap.Map(function, on="mask").',
                DataWarning,
                stacklevel=3,
            )

    def _others(self, y: NDArray[Any]) -> int | None:
        """Return a number that is none of the classes, if there is one; not where pixels of a mask are left out."""
        if y.dtype.kind not in "iu":
            return None  # `apply` refuses it
        is_known = (y >= 0) & (y < self.classes)
        known, others = y[is_known], y[~is_known]
        if others.size == 0:
            return None
        is_void = ((others == _VOID) | (others < 0)).all() and known.size > 0 and known.min() < known.max()
        return None if is_void else int(others[0])

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Sample:
        x, y = sample
        if y is not None and (dtype := np.asarray(y).dtype).kind not in "iu":
            raise OpError(
                f"`OneHot` needs whole numbers in y, but got {dtype}.",
                hint='Put ap.Cast("int64", on="mask") before it.',
            )
        return x, self._encoded(y, NUMPY)

    def apply_batch(self, x: Any, y: Any, spec: SampleSpec, xp: ArrayNamespace) -> tuple[Any, Any]:
        return x, self._encoded(y, xp)

    def _encoded(self, y: Any, xp: ArrayNamespace) -> Any:
        if y is None:
            raise OpError("`OneHot` needs a label or a mask, but the data have no y.")
        return xp.one_hot(y, self.classes, self.dtype)

    def plain_numpy(self, step: Step) -> Lines:
        classes, dtype = f"np.arange({self.classes})", quoted(self.dtype)
        return [f"{part} = (np.asarray({part})[..., None] == {classes}).astype({dtype})" for part in parts(step)]

    def plain_tensorflow(self, step: Step) -> Lines:
        how = f"{self.classes}, dtype=tf.{self.dtype}"
        return [f"{part} = tf.one_hot(tf.cast({part}, tf.int32), {how})" for part in parts(step)]
