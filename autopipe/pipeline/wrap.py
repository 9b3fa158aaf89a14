"""`ap.wrap`: tune a tf.data pipeline, a `keras.utils.PyDataset`, or another iterable of batches, as it is.

A wrapped dataset is a workload whose data are its function (`WrappedData`) and whose op list is empty. The function's
parameters are the knobs of a loader (`loaders.wrapped`); their values in `wrap` make the search space (`space`), in the
place of a file. Caches, storages, finish and channels do not apply; `device_prefetch` does. The baseline is the dataset
with its function's own defaults (`as_it_is`). Autopipe cannot make such a dataset repeat its batches, resume exactly in
mid-epoch, or share it out. `batching.datasets` reads it.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from autopipe.errors import AutopipeError, ConfigError, WorkloadError, near, shortened
from autopipe.pipeline.batching.datasets import Feeder, feeder, first_batch
from autopipe.pipeline.config import LOADERS, PipelineConfig, Value
from autopipe.workload.sample import label, paths_of
from autopipe.workload.workload import Workload

if TYPE_CHECKING:
    from autopipe.pipeline.space import Space

_COUNT_SECONDS = 20.0
_DEVICE_PREFETCH: Final = (0, 2)


def wrap(
    make_dataset: Callable[..., Any],
    *,
    model: Callable[[], Any] | Any,
    parameters: Mapping[str, Sequence[Value]] | None = None,
    steps: int | None = None,
    epochs: int | None = None,
) -> Workload:
    """Return a workload that trains on a user's own dataset.

    Args:
        make_dataset: returns batches: a `tf.data.Dataset`, a `keras.utils.PyDataset`, a generator, a Grain dataset, or
            another iterable of batches, such as a torch `DataLoader`, whose workers must not be forked
            (`multiprocessing_context="forkserver"`). They are x, (x, y) or (x, y, sample_weight); for a model of
            several inputs or targets, x and y are tuples or dictionaries of arrays. It is called with a value for each
            of `parameters`; its own defaults are the baseline of the tuning. Its batches may depend on them in speed
            only.
        model: a function without arguments that returns a compiled `keras.Model`, or such a model.
        parameters: the values to try for each parameter of `make_dataset`: numbers, texts or truth values. Beside
            them, what can be set around the dataset is tuned: whether the process keeps freed memory, OpenCV's threads,
            the options of a `tf.data.Dataset`, and batches put on the device ahead.
        steps: batches of an epoch, if the dataset has no length, or another one. An epoch then goes on after the one
            before, as in Keras's `fit(dataset, steps_per_epoch=...)`. If the length is unknown, the batches are counted
            once if that takes less than 20 s.
        epochs: how many epochs the training will take, if known.

    Raises:
        WorkloadError: the function has no such parameter, raises, or returns no dataset of batches.

    Example:
        ```python
        def make_dataset(num_parallel_calls=2, prefetch=1):
            dataset = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths))
            return dataset.map(load, num_parallel_calls=num_parallel_calls).batch(32).prefetch(prefetch)

        workload = ap.wrap(
            make_dataset,
            model=build_model,
            parameters={"num_parallel_calls": [1, 2, 4, 8], "prefetch": [1, 2, 8]},
        )
        ap.tune(workload).make_trainer().fit(epochs=3)
        ```
    """
    if not callable(make_dataset):
        raise WorkloadError(
            f"`make_dataset` must be a function that returns a dataset, but got {shortened(make_dataset)}.",
            hint="Put what makes the dataset into a function, and pass the function: ap.wrap(make_dataset, ...).",
        )
    data = WrappedData(make_dataset, parameters or {}, steps)
    return Workload(data=data, ops=(), batch_size=data.batch_size, model=model, shuffle=False, epochs=epochs)


def as_it_is(workload: Workload) -> PipelineConfig | None:
    """Return the configuration of a wrapped dataset with its function's defaults; None for any other workload."""
    if not isinstance(workload.data, WrappedData):
        return None
    loader = LOADERS["wrapped"].model_validate(workload.data.defaults)
    return PipelineConfig(loader=loader, finish="host", device_prefetch=0)


def choices(workload: Workload) -> dict[str, tuple[Value, ...]]:
    """Return the values of a wrapped dataset's parameters; empty for any other workload."""
    return dict(workload.data.choices) if isinstance(workload.data, WrappedData) else {}


def space(parameters: Mapping[str, Sequence[Value]]) -> Space:
    """Return the search space of a wrapped dataset with these parameters, and what can be set around it."""
    from autopipe.pipeline.space import Parameter, Space  # which a training does not need

    knobs = (
        Parameter(name=f"wrapped.{name}", values=tuple(values), when=(("loader", ("wrapped",)),))
        for name, values in parameters.items()
    )
    return Space(
        (
            Parameter(name="loader", values=("wrapped",)),
            *knobs,
            Parameter(name="finish", values=("host",)),
            Parameter(name="device_prefetch", values=_DEVICE_PREFETCH),
        )
    )


# -------------------- data: the function in the place of samples


class WrappedData:
    """The samples of a dataset that a function makes, as far as they are visible from outside.

    Raises:
        WorkloadError: the function has no such parameters, or does not return a dataset of batches.
    """

    def __init__(
        self, function: Callable[..., Any], choices: Mapping[str, Sequence[Value]], steps: int | None = None
    ) -> None:
        """Make the dataset with the function's defaults, and look at its first batch.

        Without a length, `steps` is needed; if the length is unknown, the batches are counted if that is quick.
        """
        self.function = function  # makes the dataset
        # The values that each of its parameters may take in a search.
        self.choices = {name: tuple(_plain(value) for value in values) for name, values in choices.items()}
        self.defaults = _defaults(function, self.choices)  # the parameters that make the dataset as it is today
        self.wanted_steps = steps  # batches of an epoch, if given
        dataset = self.make(self.defaults)
        self.steps = _steps(dataset, steps, self)  # batches of an epoch
        self._batch, self.structure, self._like = first_batch(dataset)
        self.batch_size = len(self._batch[0])

    def make(self, parameters: Mapping[str, Value]) -> Feeder:
        """Raise WorkloadError if the function raises, or returns no dataset."""
        call = f"{_name(self.function)}({', '.join(f'{name}={value!r}' for name, value in parameters.items())})"
        made = functools.partial(self.function, **parameters)
        try:
            return feeder(made(), call, self.wanted_steps, made)
        except AutopipeError:
            raise
        except Exception as error:
            raise WorkloadError(f"`{call}` raised {type(error).__name__}: {error}") from error

    def __len__(self) -> int:
        return self.steps * self.batch_size

    def __repr__(self) -> str:
        return f"WrappedData({_name(self.function)}: {self.steps} batches of {self.batch_size})"

    def read(self, index: int) -> object:
        """Return a sample of the first batch, as an example of all."""
        row = index % self.batch_size
        sample = tuple(None if part is None else part[row] for part in self._batch)
        slots = sample if self.structure is None else self.structure.packed(sample)
        return slots[0] if all(slot is None for slot in slots[1:]) else slots

    def mean_bytes(self) -> float:
        return float(sum(part.nbytes for part in self._batch if part is not None)) / self.batch_size

    def digest(self) -> str:
        """Describe the dataset by the name of its function and by its first batch's shapes."""
        shapes = ",".join(
            f"{label(path)}:{part.dtype}{list(part.shape[1:])}"
            for path, part in zip(paths_of(self.structure), self._batch, strict=True)
            if part is not None
        )
        return f"function={_name(self.function)} samples={len(self)} shapes={shapes.replace(' ', '')}"

    def unlike(self, batch: Sequence[Any]) -> int | None:
        """Return the number of a part of x whose shape is not that in the first batch; None if all have it.

        The number of samples may be less. Axes in which the dataset's batches differ by themselves may be of any
        length.
        """
        for number, like in self._like.items():
            rows, *shape = batch[number].shape
            fits = len(shape) == len(like) and all(b in (None, a) for a, b in zip(shape, like, strict=True))
            if rows > self.batch_size or not fits:
                return number
        return None


def _defaults(function: Callable[..., Any], choices: Mapping[str, Sequence[Value]]) -> dict[str, Value]:
    """Return the parameters' present values: the function's own defaults, or else the first choice.

    A default that cannot be written down (None, say) is left to the function.
    """
    known = inspect.signature(function).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    found: dict[str, Value] = {}
    for name, values in choices.items():
        if name in LOADERS["wrapped"].model_fields:
            raise WorkloadError(f"`{name}` is autopipe's own setting. Give the function's parameter another name.")
        if name not in known and not takes_any:
            raise WorkloadError(f"`{_name(function)}` has no parameter `{name}`.{near(name, known)}")
        if not values or not all(isinstance(value, bool | int | float | str) for value in values):
            raise WorkloadError(
                f"`{name}` must have some values to try (numbers, texts, truth values), but got {values!r}."
            )
        default: Any = _plain(known[name].default) if name in known else inspect.Parameter.empty
        if default is inspect.Parameter.empty:
            found[name] = values[0]
        elif isinstance(default, bool | int | float | str):
            found[name] = default
    return found


def _steps(dataset: Feeder, wanted: int | None, data: WrappedData) -> int:
    steps = wanted if wanted is not None else dataset.length
    if steps is None and not dataset.is_endless:
        steps = _counted(data.make(data.defaults))
    if steps is None or steps < 1:
        raise WorkloadError(
            f"The dataset of `{_name(data.function)}` has no length, or none that could be counted in "
            f"{_COUNT_SECONDS:.0f} s.",
            hint="Say how many batches an epoch has: ap.wrap(..., steps=1000)",
        )
    return steps


def _counted(dataset: Feeder) -> int | None:
    """Return how many batches a dataset has, by reading them; None if that takes too long."""
    until, count = time.monotonic() + _COUNT_SECONDS, 0
    for _ in dataset.begin("elements"):
        count += 1
        if time.monotonic() > until:
            return None
    return count


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def require_feedable(workload: Workload, config: PipelineConfig, rank: tuple[int, int]) -> None:
    """Raise ConfigError if a configuration cannot feed a workload, or this process, `(i, n)` of n, its part of it."""
    if isinstance(workload.data, WrappedData) and config.loader.kind != "wrapped":
        raise ConfigError(
            f"A wrapped dataset makes its own batches: `{config.loader.kind}` cannot feed it.",
            hint="Use the `wrapped` loader with the parameters of its function.",
        )
    if isinstance(workload.data, WrappedData) and rank != (0, 1):
        raise ConfigError(
            f"A wrapped dataset makes its own batches: {rank[1]} processes cannot share them.",
            hint="Make a workload of the files, with ap.ImageFolder say.",
        )
    mixing = next((type(op).__name__ for op in workload.ops if op.mixes), None)
    if rank[1] > 1 and mixing is not None:
        raise ConfigError(
            f"`{mixing}` mixes the samples of a whole batch, but each of {rank[1]} processes makes only a part of it.",
            hint="Leave it out, or mix inside the model.",
        )
