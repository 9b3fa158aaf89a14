"""The batches of somebody else's dataset, taken apart into their parts. Reading the dataset is `datasets`' business."""

from __future__ import annotations

from typing import Any

from autopipe.core.structure import SLOTS, Structure, leaves
from autopipe.errors import DataError, WorkloadError, shortened
from autopipe.ops.planner import normalise


def parts_of(element: Any) -> tuple[Any, ...]:
    """Return a batch as (x,), (x, y) or (x, y, sample_weight), each one array, a tuple or a dictionary of them.

    Raises:
        WorkloadError: it is no such batch.
    """
    slots = tuple(element) if isinstance(element, tuple | list) else (element,)
    parts = [part for slot in slots if slot is not None for part in leaves(slot)]
    if not 1 <= len(slots) <= len(SLOTS) or not parts or not all(len(getattr(part, "shape", ())) > 0 for part in parts):
        raise WorkloadError(
            "A wrapped dataset must give batches x, (x, y) or (x, y, sample_weight), of an array each, or of tuples or "
            f"dictionaries of arrays, but gave {shortened(element)}.",
            hint="Batch it in its function. Tuples and dictionaries within others cannot be wrapped.",
        )
    return slots


def flat(element: Any, structure: Structure | None) -> tuple[Any, ...]:
    """Return the parts of a batch as (x, y, *others).

    Raises:
        WorkloadError: it is no batch, or built otherwise than the first one.
    """
    slots = parts_of(element)
    if structure is None and len(slots) < len(SLOTS):
        return slots if len(slots) > 1 else (*slots, None)
    try:
        return normalise(slots, structure)
    except DataError as error:
        raise WorkloadError(f"A wrapped dataset must give batches that are built alike. {error.message}") from error


def not_dense(kind: str) -> WorkloadError:
    """Return the error for what is no dense array."""
    return WorkloadError(
        f"A wrapped dataset must give batches of dense arrays of numbers, but gave a {kind}.",
        hint="Make it dense in its function, by tf.sparse.to_dense or .to_tensor() say.",
    )
