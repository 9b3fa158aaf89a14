"""`ap.wrap`: tune a tf.data pipeline, a `keras.utils.PyDataset`, or another iterable of batches, as it is.

A wrapped dataset is a workload whose data are its function (`batching.wrapped_data.WrappedData`) and whose op list is
empty. The function's parameters are the knobs of a loader (`loaders.wrapped.Wrapped`); their values in `wrap` make the
search space (`space`), in the place of a file. Caches, storages, finish and channels do not apply; `device_prefetch`
does. The baseline is the dataset with its function's own defaults (`as_it_is`). Autopipe cannot make such a dataset
repeat its batches, resume exactly in mid-epoch, or share it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from autopipe.errors import WorkloadError, shortened
from autopipe.pipeline.batching.wrapped_data import WrappedData
from autopipe.pipeline.config import PipelineConfig, Value
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.pipeline.space import Parameter, Space
from autopipe.workload.workload import Workload

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
        parameters: the values to try for each parameter of `make_dataset`: numbers, texts or truth values. Without any,
            only the number of batches put on the device ahead is tuned, and the result is the gap between the dataset's
            speed and the model's.
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
    loader = Wrapped.model_validate(workload.data.defaults)
    return PipelineConfig(loader=loader, finish="host", device_prefetch=0)


def choices(workload: Workload) -> dict[str, tuple[Value, ...]]:
    """Return the values of a wrapped dataset's parameters; empty for any other workload."""
    return dict(workload.data.choices) if isinstance(workload.data, WrappedData) else {}


def space(parameters: Mapping[str, Sequence[Value]]) -> Space:
    """Return the search space of a wrapped dataset with these parameters."""
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
