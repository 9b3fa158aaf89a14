"""What the batches of a dataset are like: their parts, containers, shapes and dtypes, whoever makes them."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from autopipe.errors import DataError, WorkloadError, shortened
from autopipe.workload.ops.planner import normalise
from autopipe.workload.sample import SLOTS, Batch, Structure, label, leaves, paths_of

_LEAST_SIDE = 16  # pixels of what may be an image
_SHOWN = 4  # parts of a tuple or list, in a message
AXES_OF_IMAGES = 4  # of a batch of them


def parts_of(element: Any) -> tuple[Any, ...]:
    """Return a batch as (x,), (x, y) or (x, y, sample_weight). Raise WorkloadError if it has another form."""
    slots = tuple(element) if isinstance(element, tuple | list) else (element,)
    parts = [part for slot in slots if slot is not None for part in leaves(slot)]
    if not 1 <= len(slots) <= len(SLOTS) or not parts or not all(len(getattr(part, "shape", ())) > 0 for part in parts):
        listed = " Give a tuple in place of a list of arrays." if any(isinstance(slot, list) for slot in slots) else ""
        raise WorkloadError(
            "A wrapped dataset must give batches x, (x, y) or (x, y, sample_weight), of an array each, or of tuples or "
            f"dictionaries of arrays, but gave {_outline(element)}.",
            hint="If that is one sample, batch it; or pass ap.Workload(data=...) a source whose `read(i)` returns it."
            f"{listed} Tuples and dictionaries within others cannot be wrapped.",
        )
    return slots


def _outline(element: Any) -> str:
    """Describe a batch by the shapes of its arrays."""
    if isinstance(element, dict):
        return f"{{{', '.join(f'{key!r}: {_outline(value)}' for key, value in element.items())}}}"
    if isinstance(element, tuple | list):
        inside = ", ".join(map(_outline, element[:_SHOWN])) + ", …" * (len(element) > _SHOWN)
        return f"({inside})" if isinstance(element, tuple) else f"[{inside}]"
    shape = getattr(element, "shape", None)
    return shortened(element) if shape is None else f"array {tuple(shape)}"


def flat(element: Any, structure: Structure | None) -> tuple[Any, ...]:
    """Return a batch as (x, y, *others). Raise WorkloadError if it is none, or built unlike the first one."""
    slots = parts_of(element)
    if structure is None and len(slots) < len(SLOTS):
        return slots if len(slots) > 1 else (*slots, None)
    try:
        return normalise(slots, structure)
    except DataError as error:
        raise WorkloadError(f"A wrapped dataset must give batches that are built alike. {error.message}") from error


def bytes_of(batch: Any) -> list[bytes]:
    """Return the values of each part of a batch."""
    return [np.asarray(part).tobytes() for slot in parts_of(batch) if slot is not None for part in leaves(slot)]


def in_containers(function: Callable[[Any], Any], element: Any) -> Any:
    """Return a batch in the same tuples, lists and dictionaries, with a function applied to each part that is there."""
    if isinstance(element, dict):
        return {key: in_containers(function, part) for key, part in element.items()}
    if isinstance(element, tuple | list):
        parts, kind = [in_containers(function, part) for part in element], type(element)
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    return None if element is None else function(element)


def outline_of(element: Any) -> Any:
    """Return what other batches of a dataset look like: the containers of this one, with the package of each array."""
    return in_containers(lambda part: type(part).__module__.partition(".")[0], element)


def rebuilt(outline: Any, parts: Iterable[Any]) -> Any:
    """Return NumPy arrays, without those that are missing, as a batch with such an outline: the inverse of `flat`."""
    parts = iter(parts)

    def made(package: str) -> Any:
        array = next(parts)
        if package == "torch":
            torch = importlib.import_module(package)
            tensor = torch.from_numpy(array)
            return tensor.pin_memory() if torch.cuda.is_available() else tensor
        if package == "tensorflow":
            return importlib.import_module(package).convert_to_tensor(array)
        return importlib.import_module("jax").numpy.asarray(array) if package == "jaxlib" else array

    return in_containers(made, outline)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Like:
    """What all batches of a dataset are like, by its first ones."""

    batch_size: int
    structure: Structure | None
    dtypes: tuple[np.dtype[Any] | None, ...]  # of each part
    shapes: Mapping[int, tuple[int | None, ...]]  # of a sample's parts in x, by number; axes of any length are None
    against_threads: str | None = None  # why `dataset[i]` must not run in several at once, if that was seen

    def unlike(self, batch: Batch) -> int | None:
        """Return the number of a part of x of another shape; None if there is none. Fewer samples are not unlike."""
        for number, like in self.shapes.items():
            rows, *shape = batch[number].shape
            fits = len(shape) == len(like) and all(b in (None, a) for a, b in zip(shape, like, strict=True))
            if not 0 < rows <= self.batch_size or not fits:
                return number
        return None

    def checked(self, element: Any, call: str) -> Batch:
        """Return the parts of the batch that `call` returned as arrays. Raise WorkloadError if it is unlike others."""
        batch = tuple(None if part is None else np.asarray(part) for part in flat(element, self.structure))
        labels = tuple(map(label, paths_of(self.structure)))
        rows = {name: len(part) for name, part in zip(labels, batch, strict=True) if part is not None}
        if len(set(rows.values())) > 1:
            listed = ", ".join(f"{count} in {name}" for name, count in rows.items())
            raise WorkloadError(
                f"`{call}` must be a batch with as many samples in each of its parts, but there are {listed}.",
                hint="`dataset[i]` returns a whole batch, and not one sample.",
            )
        unlike = self.unlike(batch)
        for number, (name, part, dtype) in enumerate(zip(labels, batch, self.dtypes, strict=True)):
            if (part is None) != (dtype is None):
                there = "has no" if part is None else "has a"
                raise WorkloadError(f"All batches must have the parts of the first one, but `{call}` {there} {name}.")
            if part is not None and (part.dtype != dtype or number == unlike):
                axes = (self.batch_size, *self.shapes.get(number, part.shape[1:]))
                like = ", ".join("any" if axis is None else str(axis) for axis in axes)
                raise WorkloadError(
                    f"All batches must be like the first one, in which {name} is ({like}) {dtype}, but in `{call}` it "
                    f"is {part.shape} {part.dtype}.",
                    hint="Pad, crop or convert it in `__getitem__`. Only an axis in which the first two batches differ "
                    "may be of any length, and a batch may have fewer samples than the first, but not none.",
                )
        return batch


def like_one_image(batch: Batch) -> str | None:
    """Say that a batch looks like one image, in place of several, if so: its rows are taken for samples."""
    x, y = batch[:2]
    if x is None or x.ndim != AXES_OF_IMAGES - 1 or x.shape[2] not in (1, 3, 4) or min(x.shape[:2]) < _LEAST_SIDE:
        return None
    if x.dtype != np.uint8 and (y is None or y.shape[:2] != x.shape[:2]):  # bytes, or a mask beside it
        return None
    return (
        f"The dataset gives x of the shape {x.shape}, which looks like one image: its {x.shape[0]} rows are taken for "
        "samples, and counted as images. If it is one image, let the dataset give batches, such as by `.batch(32)`."
    )
