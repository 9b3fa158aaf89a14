"""Map: a user's own NumPy function as an op."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autopipe.core.op import Op, Target
from autopipe.core.sample import Part, Sample, SampleSpec
from autopipe.errors import ConfigError, OpError, shortened


@dataclasses.dataclass(frozen=True)
class Map(Op):
    """Apply a function of NumPy arrays to each sample.

    With `on="image"` or `"mask"` it is called as `function(array)` and returns an array; with `on="both"` as
    `function(x, y)` and returns both. A random one gets the sample's own generator as its last argument, so that its
    randomness, too, is a function of (seed, epoch, sample):

        def jitter(image, rng):
            return augment(image=image, seed=int(rng.integers(2**32)))["image"]

        ops = [ap.Decode(), ap.Map(jitter, random=True), ...]

    The function must not write to its arguments and must give every sample the same shape before batching.

    Attributes:
        function: the function; for the `Processes` loader it must pickle (cloudpickle is used, so lambdas do).
        random: whether it takes a `numpy.random.Generator` as its last argument.
        on: "image", "mask" (any y) or "both".
    """

    function: Callable[..., Any]
    random: bool = False
    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(f"`function` of Map must be callable, but got {shortened(self.function)}.")
        if self.on not in ("image", "mask", "both"):
            raise ConfigError(f'`on` of Map must be "image", "mask" or "both", but got {self.on!r}.')

    @property
    def draws(self) -> int:  # type: ignore[override]  # the other ops fix it by class
        """Random numbers a sample: two make the key of its generator."""
        return 2 if self.random else 0

    @property
    def target(self) -> Target:
        return self.on

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Sample:
        x, y = sample
        extra = (_generator(random),) if self.random else ()
        if self.on == "image":
            return np.asarray(self.function(x, *extra)), y
        if self.on == "mask":
            return x, np.asarray(self.function(y, *extra))
        both = self.function(x, y, *extra)
        if not isinstance(both, tuple) or len(both) != 2:
            raise OpError(f'`Map` with on="both" must return (x, y), but its function returned {shortened(both)}.')
        return np.asarray(both[0]), None if both[1] is None else np.asarray(both[1])


def _generator(random: NDArray[np.float64]) -> np.random.Generator:
    words = [int(number * 2**53) for number in random]
    return np.random.Generator(np.random.Philox(key=words))
