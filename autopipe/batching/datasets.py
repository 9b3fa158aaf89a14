"""Reads somebody else's dataset epoch by epoch: a `tf.data.Dataset`, or a `keras.utils.PyDataset` by Keras's adapter.

Nothing here changes what a dataset gives, or knows who made it: `autopipe.batching.wrapped_data` does.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autopipe import frameworks
from autopipe.errors import WorkloadError, shortened

_NUMBERS = "biufc"  # kinds of NumPy's dtypes


class Feeder(Protocol):
    """A dataset of either kind.

    Attributes:
        goes_on: whether each epoch goes on where the one before stopped, because the dataset has no end, or because an
            epoch is a part of it.
    """

    goes_on: bool

    def length(self) -> int | None:
        """Return the batches of an epoch; None if it is endless, or nobody knows."""

    def shape(self) -> Sequence[int | None] | None:
        """Return the shape that x is known to have, None for axes of any length; None if the batches have to tell."""

    def arrays(self) -> Generator[Any, None, None]:
        """Begin an epoch, or go on where the last stopped; yield its batches as NumPy arrays."""

    def elements(self) -> Generator[Any, None, None]:
        """Do the same; yield them as `fit` gets them where TensorFlow is Keras's backend."""


class _Epochs:
    """Reads a dataset epoch by epoch: from its start, or, if it goes on, from where the last epoch stopped."""

    def __init__(self, *, goes_on: bool) -> None:
        self._goes_on = goes_on
        self._running: dict[str, Iterator[Any]] = {}

    def next(self, form: str, begin: Callable[[], Iterable[Any]]) -> Generator[Any, None, None]:
        """Yield the batches of the next epoch, and beyond, in one of the forms in which the dataset can be begun."""
        if not self._goes_on:
            yield from begin()
            return
        empty = False
        while not empty:  # one that goes on, and ends after all, is begun anew
            empty = form not in self._running
            running = self._running.setdefault(form, iter(begin()) if empty else iter(()))
            try:
                for element in itertools.chain(running):  # without `chain` it would be closed with the epoch
                    empty = False
                    yield element
            except Exception:
                del self._running[form]  # it cannot go on
                raise
            del self._running[form]


class _Tensors:
    """A `tf.data.Dataset`."""

    def __init__(self, dataset: Any, steps: int | None) -> None:
        self._dataset = dataset
        self._count = int(dataset.cardinality())
        self.goes_on = self._count < 0 or steps not in (None, self._count)  # as in `fit(dataset, steps_per_epoch=...)`
        self._epochs = _Epochs(goes_on=self.goes_on)

    def length(self) -> int | None:
        return self._count if self._count >= 0 else None

    def shape(self) -> Sequence[int | None] | None:
        spec = self._dataset.element_spec
        parts = spec if isinstance(spec, tuple | list) else (spec,)
        for part in parts:
            if (kind := type(part).__name__) in ("SparseTensorSpec", "RaggedTensorSpec"):
                raise _not_dense(kind.removesuffix("Spec"))
        shape = getattr(parts[0], "shape", None)
        return None if shape is None or shape.rank is None else tuple(shape)

    def arrays(self) -> Generator[Any, None, None]:
        return self._epochs.next("arrays", self._dataset.as_numpy_iterator)

    def elements(self) -> Generator[Any, None, None]:
        return self._epochs.next("elements", lambda: self._dataset)


class _Sequence:
    """A `keras.utils.PyDataset`, read by Keras's own adapter."""

    def __init__(self, dataset: Any) -> None:
        self._forks = dataset.use_multiprocessing and dataset.workers > 0
        self._require_safe_fork()
        self._adapter = frameworks.py_dataset_adapter(dataset)
        self._tensors: Any = None
        self.goes_on = self._adapter.num_batches is None
        self._epochs = _Epochs(goes_on=self.goes_on)

    def length(self) -> int | None:
        count = self._adapter.num_batches
        return None if count is None else int(count)

    def shape(self) -> Sequence[int | None] | None:
        return None

    def arrays(self) -> Generator[Any, None, None]:
        return self._epoch("arrays", self._adapter.get_numpy_iterator)

    def elements(self) -> Generator[Any, None, None]:
        if self._tensors is None:
            self._tensors = self._adapter.get_tf_dataset()
        return self._epoch("elements", lambda: self._tensors)

    def _epoch(self, form: str, begin: Callable[[], Iterable[Any]]) -> Generator[Any, None, None]:
        self._require_safe_fork()
        self._adapter.on_epoch_begin()
        try:
            yield from self._epochs.next(form, begin)
        finally:
            self._adapter.on_epoch_end()

    def _require_safe_fork(self) -> None:
        if self._forks:
            frameworks.require_safe_fork(
                "Make the PyDataset with use_multiprocessing=False: its workers are threads then."
            )


def feeder(dataset: Any, call: str, steps: int | None) -> Feeder:
    """Return what reads the dataset that `call` returned, where an epoch has `steps` batches, or all of them.

    Raises:
        WorkloadError: it is no dataset.
    """
    # Imported already, if the dataset is one of theirs.
    tensorflow, keras = sys.modules.get("tensorflow"), sys.modules.get("keras")
    if tensorflow is not None and isinstance(dataset, tensorflow.data.Dataset):
        return _Tensors(dataset, steps)
    if keras is not None and isinstance(dataset, keras.utils.PyDataset):
        return _Sequence(dataset)
    raise WorkloadError(
        f"`{call}` must return a tf.data.Dataset or a keras.utils.PyDataset, but returned {shortened(dataset)}.",
        hint="Is a `return` missing?" if dataset is None else None,
    )


def arrays_of(element: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return x and y of a batch as NumPy arrays."""
    x, y = parts_of(element)
    return np.asarray(x), None if y is None else np.asarray(y)


def parts_of(element: Any) -> tuple[Any, Any]:
    """Return x and y of a batch; y is None where there is none.

    Raises:
        WorkloadError: it is no such batch.
    """
    parts = tuple(element) if isinstance(element, tuple | list) else (element,)
    if len(parts) > 2 or not all(hasattr(part, "shape") and len(part.shape) > 0 for part in parts):
        raise WorkloadError(
            f"A wrapped dataset must give batches (x, y), or x, of one array each, but gave {shortened(element)}.",
            hint="Batch it in its function. Several inputs, dictionaries and sample weights cannot be wrapped.",
        )
    return (parts[0], None) if len(parts) == 1 else (parts[0], parts[1])


def first_batch(dataset: Feeder) -> tuple[NDArray[Any], NDArray[Any] | None, tuple[int | None, ...]]:
    """Return x and y of the first batch, and the shape of a sample that batches of the dataset have in common.

    Raises:
        WorkloadError: it gives no such batches, or other than dense arrays of numbers.
    """
    shape = dataset.shape()
    with contextlib.closing(dataset.arrays()) as batches:
        # What a PyDataset gives, its batches tell, and of them the first two, as to Keras.
        read = [parts_of(element) for element in itertools.islice(batches, 2 if shape is None else 1)]
    x, y = read[0] if read else parts_of(None)
    for part in (x, y):
        if part is not None and (array := np.asarray(part)).dtype.kind not in _NUMBERS and array.dtype != "bfloat16":
            raise _not_dense(f"{type(part).__name__} of {array.dtype}")
    return np.asarray(x), None if y is None else np.asarray(y), tuple((shape or _common([x for x, _ in read]))[1:])


def _not_dense(kind: str) -> WorkloadError:
    return WorkloadError(
        f"A wrapped dataset must give batches of dense arrays of numbers, but gave a {kind}.",
        hint="Make it dense in its function, by tf.sparse.to_dense or .to_tensor() say.",
    )


def _common(arrays: Sequence[Any]) -> list[int | None]:
    """Return the shape of arrays of one rank, None for axes in which they differ."""
    return [lengths[0] if len(set(lengths)) == 1 else None for lengths in zip(*(x.shape for x in arrays), strict=False)]
