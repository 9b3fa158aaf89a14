"""Map: a user's own NumPy function as an op."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from autopipe import frameworks
from autopipe.errors import ConfigError, OpError, PlainCodeError, shortened
from autopipe.workload.op import Op, Step
from autopipe.workload.ops.pixels import check_choice
from autopipe.workload.order import generator
from autopipe.workload.plain_code import SEED, Library, Lines, Variable, names, parts, through_python
from autopipe.workload.sample import Part, Sample, SampleSpec

_CALLS = 7  # a flip by chance stays unnoticed in fewer than one of a hundred
_PATIENCE_SECONDS = 0.02  # after the second call


@dataclasses.dataclass(frozen=True)
class Map(Op):
    """Apply a function of NumPy arrays to each sample.

    With `on="image"` or `"mask"` it is called as `function(array)` and returns an array; with `on="both"` as
    `function(x, y)` and returns both. A random one gets the sample's own generator as its last argument, so that its
    randomness, too, is a function of (seed, epoch, sample):

        def jitter(image, rng):
            return augment(image=image, seed=int(rng.integers(2**32)))["image"]

        ops = [ap.Decode(), ap.Map(jitter, random=True), ...]

    The function must not write to its arguments and must give every sample the same shape before batching. Called again
    on the same sample (and the same generator) it must return the same: this is tried on one sample. A converted set
    knows it by its code and by what it has captured: convert again after an edit of what it looks up in its module.

    Attributes:
        function: the function; for the `Processes` loader it must pickle (cloudpickle is used, so lambdas do).
        random: whether it takes a `numpy.random.Generator` as its last argument.
        on: "image", "mask" (any y) or "both".
    """

    any_y: ClassVar[bool] = True
    _is_checked: ClassVar[bool] = False  # of the object itself once its function was tried

    function: Callable[..., Any]
    random: bool = False
    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(f"`function` of Map must be callable, but got {shortened(self.function)}.")
        check_choice(self, "on", ("image", "mask", "both"))

    @property
    def draws(self) -> int:  # type: ignore[override]  # the other ops fix it by class
        """Random numbers a sample: two make the key of its generator."""
        return 2 if self.random else 0

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        x, y = sample
        extra = (generator(random),) if self.random else ()
        if self.on == "image":
            return _array(self.function(x, *extra)), y
        if self.on == "mask":
            return x, _array(self.function(y, *extra))
        both = self.function(x, y, *extra)
        if not isinstance(both, tuple) or len(both) != 2:
            raise OpError(f'`Map` with on="both" must return (x, y), but its function returned {shortened(both)}.')
        return _array(both[0]), None if both[1] is None else _array(both[1])

    def check(self, sample: Sample, spec: SampleSpec) -> None:
        if self._is_checked:
            return
        taken = {"image": ["image"], "mask": ["y"], "both": ["x", "y"]}[self.on] + (["rng"] if self.random else [])
        with contextlib.suppress(ValueError):  # of some functions written in C the arguments are not known
            try:
                inspect.signature(self.function).bind(*taken)
            except TypeError as error:
                raise OpError(
                    f"`function` of Map is called as function({', '.join(taken)}), but cannot be: {error}.",
                    hint='on="mask" passes y alone, on="both" passes x and y; random=True adds a generator.',
                ) from None
        if (layer := frameworks.random_layer(self.function)) is not None:
            raise OpError(
                "`Map` must return the same for a sample whenever it is called, "
                f"but the Keras layer {layer} draws from a random state of its own.",
                hint="Use autopipe's own op (ap.RandomFlip, ...), put the layer into the model, or pass a function "
                "that draws from the generator it is given, and random=True.",
            )
        if not self._repeats(sample, spec):
            when, does = "it is called, unless it is random", "does not: a cache or a conversion would freeze it"
            hint = "Let it draw from a generator that it takes as its last argument, and pass random=True."
            if self.random:
                when, does = "it gets the same generator", "draws from others, too"
                hint = "Draw from its last argument only; for a library's own: seed=int(rng.integers(2**32))."
            said = f"`Map` must return the same for a sample whenever {when}, but {shortened(self.function)} {does}."
            raise OpError(said, hint=hint)
        object.__setattr__(self, "_is_checked", True)

    def _repeats(self, sample: Sample, spec: SampleSpec) -> bool:
        def made() -> Sample:
            copied = tuple(part.copy() if isinstance(part, np.ndarray) else part for part in sample)
            return self.apply(copied, spec, np.full(self.draws, 0.5))

        first = made()
        state, until = _global_state(), time.perf_counter() + _PATIENCE_SECONDS
        for _ in range(_CALLS):
            again = made()
            if _global_state() != state or not all(map(_alike, first, again)):
                return False
            if time.perf_counter() > until:
                break
        return True

    def plain_functions(self, step: Step) -> Mapping[str, Callable[..., Any]]:
        return {self._plain_name(step): self.function}

    def _plain_name(self, step: Step) -> str:
        name = getattr(self.function, "__name__", "")
        return f"{name if name.isidentifier() else 'function'}_{step.stream}"

    def _plain_calls(self, step: Step) -> list[tuple[Variable, ...]]:
        if self.on != "both":
            return [(part,) for part in parts(step)]
        if len([part for part in parts(step) if part.startswith("x")]) > 1 or len(parts(step)) > 2:
            raise PlainCodeError(
                f"the function of `Map` would get x and y of several parts at once ({', '.join(parts(step))}); "
                "an ap.On for each image and its target tells them apart"
            )
        return [parts(step)]

    def plain(self, step: Step, library: Library) -> Lines:
        name, calls = self._plain_name(step), [(", ".join(taken), taken) for taken in self._plain_calls(step)]
        if library == "tf":
            made = [[part for part in names(step.after) if part in taken] for _, taken in calls]
            each = zip(calls, made, strict=True)
            lines = [through_python(name, given, after, random=self.random) for (given, _), after in each]
            return [SEED] * self.random + [line for of_call in lines for line in of_call]
        if not self.random or len(calls) == 1:
            return [f"{named} = {name}({named}{', rng' if self.random else ''})" for named, _ in calls]
        shared = [f"{named} = {name}({named}, np.random.default_rng(seed))" for named, _ in calls]
        return ["seed = rng.integers(2**32)", *shared]


def _array(value: Any) -> NDArray[Any]:
    if isinstance(value, tuple | dict):
        raise OpError(
            f"`Map` must return one array for x and one for y, but its function returned {shortened(value)}.",
            hint="Numbers that belong together go into one array; parts by name come from a source whose `read(i)` "
            "returns a dictionary.",
        )
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        raise OpError(f"`Map` must return an array of numbers, but its function returned {shortened(value)}.")
    return array


def _global_state() -> tuple[object, ...]:
    """Return the states of the process's global generators, which any draw changes."""
    state: Any = np.random.get_state()
    return random.getstate(), *((state[1].tobytes(), *state[2:]) if isinstance(state, tuple) else ())


def _alike(first: Part, second: Part) -> bool:
    if first is None or second is None or isinstance(first, bytes):
        return first is second or first == second
    a, b = np.asarray(first), np.asarray(second)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(np.allclose(a, b, 1e-4, 1e-6, equal_nan=True) if a.dtype.kind == "f" else np.array_equal(a, b))
