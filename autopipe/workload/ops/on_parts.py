"""Ops on samples of several parts: the parts on which an op acts, and `On`, by which a workload chooses them.

An op itself knows an image x and a target y. Here it is called for each image, with the mask that belongs to it, and
always with the same random numbers, so that images and masks of a sample stay together.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import ConfigError, PlainCodeError, WorkloadError, near, shortened
from autopipe.workload.op import ArrayNamespace, Op, Step
from autopipe.workload.plain_code import Library, Lines, plain_lines
from autopipe.workload.sample import SLOTS, Batch, FieldKind, Sample, SampleSpec, paths_of

Lane: TypeAlias = tuple[int, int | None]  # the positions of what is x to an op, and of what is y; None if nothing is

_IMAGES = (FieldKind.IMAGE, FieldKind.ENCODED)
_MASKS = (FieldKind.MASK, FieldKind.ENCODED)


def _lanes_of(op: Op, spec: SampleSpec, names: tuple[str, ...] | None) -> tuple[Lane, ...]:
    named = None if names is None else [_position(name, spec) for name in names]
    images, targets = _chosen(spec, "x", named), _chosen(spec, "y", named)
    if op.target == "mask":
        if not targets or (named is None and len(targets) > 1):
            raise _unclear(op, spec, "y")
        return tuple((0, target) for target in targets)

    def of_kind(places: list[int], kinds: tuple[FieldKind, ...]) -> list[int]:
        return [at for at in places if (field := spec.columns[at]) is not None and field.kind in kinds]

    if named is None and len(images) > 1:
        images = of_kind(images, _IMAGES)
    if not images:
        raise _unclear(op, spec, "x")
    if op.target == "image":
        return tuple((image, None) for image in images)
    if named is None and len(targets) > 1:
        targets = of_kind(targets, _MASKS)
    if op.acting.any_y and not targets and _chosen(spec, "y", None):  # a function would get None in its place
        raise _unclear(op, spec, "y")
    last = len(images) - 1  # masks that are left over go with the last image
    return tuple(
        (images[min(number, last)], targets[number] if number < len(targets) else None)
        for number in range(max(len(images), len(targets)))
    )


def _chosen(spec: SampleSpec, slot: str, named: list[int] | None) -> list[int]:
    each = enumerate(zip(paths_of(spec.structure), spec.columns, strict=True))
    places = [at for at, ((owner, _), field) in each if owner == slot and field is not None]
    return places if named is None else [at for at in named if at in places]


def _position(name: str, spec: SampleSpec) -> int:
    assert spec.structure is not None
    if (place := spec.structure.named(name)) is not None:
        return place
    raise WorkloadError(
        f"`On` must name parts of the samples, which are {_listed(spec)}, but got {name!r}.{near(name, spec.labels)}"
    )


def _unclear(op: Op, spec: SampleSpec, slot: str) -> WorkloadError:
    named = '("...", "...")' if op.target == "both" and slot == "y" else '"..."'
    return WorkloadError(
        f"`{op.name}` must act on {'an image of x' if slot == 'x' else 'one part of y'}, "
        f"but it cannot be told on which; the parts are {_listed(spec)}.",
        hint=f"Name it: ap.On({named}, ap.{op.name}(...))" + ', with on="mask" for a part of y.' * (slot == "x"),
    )


def _listed(spec: SampleSpec) -> str:
    return ", ".join(
        f"`{label}` ({field.kind})" for label, field in zip(spec.labels, spec.columns, strict=True) if field is not None
    )


class _Around(Op):
    """Is and does as the op inside, but for what a subclass says."""

    op: Op
    acting: Any = property(operator.attrgetter("op"))
    name: Any = property(operator.attrgetter("op.name"))
    target: Any = property(operator.attrgetter("op.target"))
    draws: ClassVar[Any] = property(operator.attrgetter("op.draws"))
    mixes: ClassVar[Any] = property(operator.attrgetter("op.mixes"))
    batchable: ClassVar[Any] = property(operator.attrgetter("op.batchable"))
    places: Any = property(operator.attrgetter("op.places"))
    plain_constants: Any = property(operator.attrgetter("op.plain_constants"))
    plain_functions: Any = property(operator.attrgetter("op.plain_functions"))


@dataclasses.dataclass(frozen=True)
class On(_Around):
    """Let an op act on some parts of a sample only: `ap.On("left", ap.RandomFlip())`.

    Without it an op on images acts on every image of x, and with it on every mask of y, with the same random numbers;
    an op on targets acts on y if that is one part. Parts that no op acts on are passed through as they are.

    Attributes:
        parts: the key of a part in its dictionary, or its name in messages ("x.left", "y.0"); or several of them, which
            get the same random numbers. Of two ops by two `On`, each draws its own.
        op: the op on them.

    Examples:
        ```python
        ops = [
            ap.Decode(),
            ap.Resize(128, 128),  # of both images
            ap.On("left", ap.RandomBrightness(0.2)),
            ap.On("species", ap.OneHot(37)),
        ]
        ```
    """

    parts: str | tuple[str, ...]
    op: Op

    def __post_init__(self) -> None:
        if not self.names or not all(isinstance(name, str) and name for name in self.names):
            raise ConfigError(f"`parts` of On must be the name of a part, or several, but got {self.parts!r}.")
        if not isinstance(self.op, Op) or isinstance(self.op, On):
            raise ConfigError(f"`op` of On must be an op, but got {shortened(self.op)}.")

    @property
    def names(self) -> tuple[str, ...]:
        given: Any = self.parts
        return (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()

    def followed_by(self, rest: Sequence[Op]) -> Op:
        def acting_on(name: str) -> list[Op]:
            """Return the ops behind it, without `On`, that act on a part: one without names on all that it can."""
            called = {name, *(f"{slot}.{name}" for slot in SLOTS), *(name.removeprefix(f"{slot}.") for slot in SLOTS)}
            theirs = (op for op in rest if not isinstance(op, On) or not called.isdisjoint(op.names))
            return [op.op if isinstance(op, On) else op for op in theirs]

        made = [self.op.followed_by(acting_on(name)) for name in self.names]
        if any(other is not made[0] and other != made[0] for other in made):
            raise ConfigError(
                f"Parts of one `On` must be followed by the same, but `{self.name}` on {shortened(self.parts)} "
                f"would have to be {' and '.join(map(str, made))}.",
                hint="Write one `On` for each part.",
            )
        return dataclasses.replace(self, op=made[0])

    def without_chance(self) -> Op | None:
        op = self.op.without_chance()
        return None if op is None else dataclasses.replace(self, op=op)

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        return placed(self, spec).apply(sample, spec, random)


@dataclasses.dataclass(frozen=True)
class OnParts(_Around):
    """An op in a plan, with the parts of a sample on which it acts."""

    op: Op
    lanes: tuple[Lane, ...]  # the x and the y of each call; if one x is in several, the last one gives it

    def touches(self, spec: SampleSpec) -> tuple[bool, ...]:
        on = set()
        for lane, each in self._lanes(spec):
            on |= {place for place, acts in zip(lane, self.op.touches(each), strict=True) if acts}
        return tuple(number in on for number in range(len(spec.columns)))

    def kinds(self, spec: SampleSpec) -> tuple[FieldKind | None, ...]:
        kinds = [None if field is None else field.kind for field in spec.columns]
        return self._changed(kinds, spec, lambda _, each: self.op.kinds(each))

    def check(self, sample: Sample, spec: SampleSpec) -> None:
        for lane, each in self._lanes(spec):
            self.op.check(_of(sample, lane), each)

    def look(self, samples: Sequence[Sample], spec: SampleSpec) -> None:
        is_one = len({x for x, _ in self.lanes}) == 1  # of several images, that of the mask is ambiguous
        for (x, y), each in self._lanes(spec):
            lane, seen = ((x, y), each) if is_one else ((x, None), SampleSpec(each.x, None))
            self.op.look([_of(sample, lane) for sample in samples], seen)

    def lost(self, sample: Sample, spec: SampleSpec) -> tuple[str, ...]:
        return tuple(each for lane, seen in self._lanes(spec) for each in self.op.lost(_of(sample, lane), seen))

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        return self._changed(sample, spec, lambda both, each: self.op.apply(both, each, random))

    def finish(self, batch: Batch, spec: SampleSpec, xp: ArrayNamespace) -> Batch:
        return self._changed(batch, spec, lambda both, each: self.op.finish(both, each, xp))

    def _changed(
        self, parts: Sequence[Any], spec: SampleSpec, call: Callable[[Sample, SampleSpec], Any]
    ) -> tuple[Any, ...]:
        made = list(parts)
        for (x, y), each in self._lanes(spec):
            made[x], changed = call(_of(parts, (x, y)), each)
            if y is not None:
                made[y] = changed
        return tuple(made)

    def plain(self, step: Step, library: Library) -> Lines:
        together = (dataclasses.replace(self, lanes=lanes) for lanes in self._together(step.before))
        return [line for on in together for line in plain_lines(self.op, dataclasses.replace(step, op=on), library)]

    def _together(self, spec: SampleSpec) -> list[tuple[Lane, ...]]:
        """Group lanes that share random numbers, which plain code draws for one size of images, or an image."""
        if self.is_random:
            sizes = {lane[0]: each.x.shape and each.x.shape[:2] for lane, each in self._lanes(spec)}
            if len(sizes) > 1 and (None in sizes.values() or len({*sizes.values()}) > 1):
                raise PlainCodeError(f"`{self.name}` acts alike on images that differ in size; put ap.Resize before it")
            return [self.lanes]
        found: dict[Hashable, list[Lane]] = {}
        for lane, each in self._lanes(spec):
            on_x, _ = self.op.touches(each)
            found.setdefault(lane[0] if on_x else lane, []).append(lane)
        return [tuple(lanes) for lanes in found.values()]

    def _lanes(self, spec: SampleSpec) -> Iterator[tuple[Lane, SampleSpec]]:
        for lane in self.lanes:
            yield lane, SampleSpec(*_of(spec.columns, lane))


def placed(op: Op, spec: SampleSpec) -> Op:
    """Return the op on samples of `spec` as read; raise WorkloadError if the parts are ambiguous, or there is none."""
    if spec.structure is None:
        if not isinstance(op, On):
            return op
        raise WorkloadError(
            f"`On` needs samples of several parts, but here they are {' and '.join(spec.labels[: len(spec.fields)])}.",
            hint=f"Write ap.{op.name}(...) without ap.On.",
        )
    inner = op.op if isinstance(op, On) else op
    if inner.mixes:
        raise WorkloadError(
            f"`{inner.name}` mixes x and y of whole batches, and cannot mix samples of several parts.",
            hint="Leave it out, or mix inside the model.",
        )
    return OnParts(inner, _lanes_of(inner, spec, op.names if isinstance(op, On) else None))


def _of(parts: Sequence[Any], lane: Lane) -> tuple[Any, Any]:
    return parts[lane[0]], None if lane[1] is None else parts[lane[1]]
