"""Which parts of a sample an op acts on: each image of x with the mask that belongs to it, or what a workload names.

What the op then does is for `autopipe.ops.on_parts`.
"""

from __future__ import annotations

from typing import TypeAlias

from autopipe.core.op import Op
from autopipe.core.sample import FieldKind, SampleSpec
from autopipe.errors import WorkloadError, near

Lane: TypeAlias = tuple[int, int | None]
"""The positions of what is x to an op, and of what is y; None if nothing is."""

_IMAGES = (FieldKind.IMAGE, FieldKind.ENCODED)
_MASKS = (FieldKind.MASK, FieldKind.ENCODED)


def lanes_of(op: Op, spec: SampleSpec, names: tuple[str, ...] | None) -> tuple[Lane, ...]:
    """Return the lanes of an op: of the parts that are named, or else of all that it can act on.

    Raises:
        WorkloadError: it cannot be told on which parts it is to act, or there is none such.
    """
    named = None if names is None else [_position(name, spec) for name in names]
    images, targets = _chosen(spec, "x", named), _chosen(spec, "y", named)
    if op.target == "mask":
        if not targets or (named is None and len(targets) > 1):
            raise _unclear(op, spec, "y")
        return tuple((0, target) for target in targets)
    if named is None and len(images) > 1:
        images = _of_kind(spec, images, _IMAGES)
    if not images:
        raise _unclear(op, spec, "x")
    if op.target == "image":
        return tuple((image, None) for image in images)
    if named is None and len(targets) > 1:
        targets = _of_kind(spec, targets, _MASKS)
    last = len(images) - 1  # masks that are left over go with the last image
    return tuple(
        (images[min(number, last)], targets[number] if number < len(targets) else None)
        for number in range(max(len(images), len(targets)))
    )


def _chosen(spec: SampleSpec, slot: str, named: list[int] | None) -> list[int]:
    """Return the positions of those parts of x or y that exist, and are named if any are."""
    assert spec.structure is not None
    places = [at for at in spec.structure.positions(slot) if spec.columns[at] is not None]
    return places if named is None else [at for at in named if at in places]


def _of_kind(spec: SampleSpec, places: list[int], kinds: tuple[FieldKind, ...]) -> list[int]:
    return [at for at in places if (field := spec.columns[at]) is not None and field.kind in kinds]


def _position(name: str, spec: SampleSpec) -> int:
    assert spec.structure is not None
    if (place := spec.structure.named(name)) is not None:
        return place
    raise WorkloadError(
        f"`On` must name parts of the samples, which are {_listed(spec)}, but got {name!r}.{near(name, spec.labels)}"
    )


def _unclear(op: Op, spec: SampleSpec, slot: str) -> WorkloadError:
    return WorkloadError(
        f"`{op.name}` must act on {'an image of x' if slot == 'x' else 'one part of y'}, "
        f"but it cannot be told on which; the parts are {_listed(spec)}.",
        hint=f'Name it: ap.On("...", ap.{op.name}(...)).',
    )


def _listed(spec: SampleSpec) -> str:
    return ", ".join(
        f"`{label}` ({field.kind})" for label, field in zip(spec.labels, spec.columns, strict=True) if field is not None
    )
