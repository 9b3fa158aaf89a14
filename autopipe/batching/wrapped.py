"""Datasets that somebody else makes: a function that returns a `tf.data.Dataset` or a `keras.utils.PyDataset`.

Says what their batches are like, and reads them epoch by epoch. The loader of such data is `autopipe.loaders.wrapped`;
nothing here changes what a dataset gives.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autopipe.core.params import Value
from autopipe.errors import AutopipeError, WorkloadError, near, shortened

_INFINITE = -1  # tf.data.INFINITE_CARDINALITY; -2 is UNKNOWN_CARDINALITY


class WrappedData:
    """The samples of a dataset that is made by a function, as far as they can be told from outside.

    Attributes:
        function: makes the dataset.
        choices: the values that each of the function's parameters may take in a search.
        defaults: the parameters that make the dataset as it is today.
        batch_size: samples in its batches.
        steps: batches of an epoch.

    Raises:
        WorkloadError: the function has no such parameters, or what it returns is no dataset of (x, y) batches.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        choices: Mapping[str, Sequence[Value]],
        steps: int | None = None,
    ) -> None:
        """Make the dataset as it is today, and look at its first batch. `steps` is needed where it has no length."""
        self.function = function
        self.choices = {name: tuple(values) for name, values in choices.items()}
        self.defaults = _defaults(function, self.choices)
        feeder = self.make(self.defaults)
        self.steps = _steps(feeder, steps, self)
        self._x, self._y = arrays_of(next(iter(feeder.arrays()), None))
        self.batch_size = len(self._x)

    def make(self, parameters: Mapping[str, Value]) -> Feeder:
        """Call the function.

        Raises:
            WorkloadError: it raises, or returns no dataset.
        """
        call = f"{_name(self.function)}({', '.join(f'{name}={value!r}' for name, value in parameters.items())})"
        try:
            return _feeder(self.function(**parameters), call)
        except AutopipeError:
            raise
        except Exception as error:
            raise WorkloadError(f"`{call}` raised {type(error).__name__}: {error}") from error

    def __len__(self) -> int:
        return self.steps * self.batch_size

    def __repr__(self) -> str:
        return f"WrappedData({_name(self.function)}: {self.steps} batches of {self.batch_size})"

    def read(self, index: int) -> object:
        """Return a sample of the first batch: what all are like."""
        row = index % self.batch_size
        return self._x[row] if self._y is None else (self._x[row], self._y[row])

    def mean_bytes(self) -> float:
        """Return the size of a sample in a batch."""
        return (self._x.nbytes + (0 if self._y is None else self._y.nbytes)) / self.batch_size

    def digest(self) -> str:
        """Describe the dataset by the name of its function and by its first batch's shapes."""
        shapes = ",".join(f"{part.dtype}{list(part.shape[1:])}" for part in (self._x, self._y) if part is not None)
        return f"function={_name(self.function)} samples={len(self)} shapes={shapes.replace(' ', '')}"

    def is_like(self, x: Any) -> bool:
        """Return whether a batch's x has the shape of the first batch, but for the number of samples."""
        return len(x) <= self.batch_size and tuple(x.shape[1:]) == self._x.shape[1:]


class Feeder(Protocol):
    """A dataset of either kind.

    Attributes:
        endless: whether it is known to have no end.
    """

    endless: bool

    def length(self) -> int | None:
        """Return the batches of an epoch; None if it is endless, or nobody knows."""

    def arrays(self) -> Iterator[Any]:
        """Begin an epoch, an endless one where the last stopped; yield its batches as NumPy arrays."""

    def elements(self) -> Iterator[Any]:
        """Do the same; yield them as `fit` gets them where TensorFlow is Keras's backend."""


class _Epochs:
    """Reads a dataset epoch by epoch: one that ends from its start, an endless one from where it stopped last."""

    def __init__(self, *, endless: bool) -> None:
        self._endless = endless
        self._running: dict[str, Iterator[Any]] = {}

    def next(self, form: str, begin: Callable[[], Iterable[Any]]) -> Iterator[Any]:
        """Yield the batches of the next epoch, and beyond, in one of the forms in which the dataset can be begun."""
        if not self._endless:
            yield from begin()
            return
        if form not in self._running:
            self._running[form] = iter(begin())
        try:
            yield from itertools.chain(self._running[form])  # without `chain` it would be closed with the epoch
        except Exception:
            del self._running[form]  # it cannot go on
            raise


class _Tensors:
    """A `tf.data.Dataset`."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._count = int(dataset.cardinality())
        self.endless = self._count == _INFINITE
        self._epochs = _Epochs(endless=self.endless)

    def length(self) -> int | None:
        return self._count if self._count >= 0 else None

    def arrays(self) -> Iterator[Any]:
        return self._epochs.next("arrays", self._dataset.as_numpy_iterator)

    def elements(self) -> Iterator[Any]:
        return self._epochs.next("elements", lambda: self._dataset)


class _Sequence:
    """A `keras.utils.PyDataset`, read by Keras's own adapter."""

    def __init__(self, dataset: Any) -> None:
        from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

        self._adapter = PyDatasetAdapter(dataset)
        self._tensors: Any = None
        self.endless = self._adapter.num_batches is None
        self._epochs = _Epochs(endless=self.endless)

    def length(self) -> int | None:
        count = self._adapter.num_batches
        return None if count is None else int(count)

    def arrays(self) -> Iterator[Any]:
        return self._epoch("arrays", self._adapter.get_numpy_iterator)

    def elements(self) -> Iterator[Any]:
        if self._tensors is None:
            self._tensors = self._adapter.get_tf_dataset()
        return self._epoch("elements", lambda: self._tensors)

    def _epoch(self, form: str, begin: Callable[[], Iterable[Any]]) -> Iterator[Any]:
        self._adapter.on_epoch_begin()
        try:
            yield from self._epochs.next(form, begin)
        finally:
            self._adapter.on_epoch_end()


def _feeder(dataset: Any, call: str) -> Feeder:
    tensorflow, keras = (
        sys.modules.get("tensorflow"),
        sys.modules.get("keras"),
    )  # imported already, if it is one of theirs
    if tensorflow is not None and isinstance(dataset, tensorflow.data.Dataset):
        return _Tensors(dataset)
    if keras is not None and isinstance(dataset, keras.utils.PyDataset):
        return _Sequence(dataset)
    raise WorkloadError(
        f"`{call}` must return a tf.data.Dataset or a keras.utils.PyDataset, but returned {shortened(dataset)}.",
        hint="Is a `return` missing?" if dataset is None else None,
    )


def _defaults(function: Callable[..., Any], choices: Mapping[str, Sequence[Value]]) -> dict[str, Value]:
    """Return the parameters that the function takes today: its own defaults, or else the first choice."""
    known = inspect.signature(function).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    found: dict[str, Value] = {}
    for name, values in choices.items():
        if name == "kind" or (name not in known and not takes_any):
            raise WorkloadError(f"`{_name(function)}` has no parameter `{name}`.{near(name, known)}")
        if not values or not all(isinstance(value, bool | int | float | str) for value in values):
            raise WorkloadError(
                f"`{name}` must have some values to try (numbers, texts, truth values), but got {values!r}."
            )
        default: Any = known[name].default if name in known else inspect.Parameter.empty
        found[name] = default if isinstance(default, bool | int | float | str) else values[0]
    return found


def _steps(feeder: Feeder, wanted: int | None, data: WrappedData) -> int:
    steps = wanted if wanted is not None else feeder.length()
    if steps is None or steps < 1:
        raise WorkloadError(
            f"The dataset of `{_name(data.function)}` has no length, or none that is known.",
            hint="Say how many batches an epoch has: ap.wrap(..., steps=1000)",
        )
    return steps


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


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
