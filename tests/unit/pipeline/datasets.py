"""Datasets of ten samples, and what wraps them."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import autopipe as ap
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.wrap import WrappedData

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = np.arange(10)


def make_tensors(calls: int = 1, prefetch: int = 0) -> Any:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y))
    return dataset.map(lambda x, y: (x, y), num_parallel_calls=calls).batch(4).prefetch(prefetch)


class Items(keras.utils.PyDataset):
    def __init__(self, count: int, make: Callable[[int], Any], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._make(index)


def rows(index: int) -> tuple[Any, Any]:
    return X[4 * index :][:4], Y[4 * index :][:4]


def wrapped(function: Callable[..., Any] = make_tensors, steps: int | None = None, **choices: Any) -> ap.Workload:
    return wrap.wrap(function, model=None, parameters=choices or {"calls": [1, 2]}, steps=steps, shuffle=False)


def as_it_is(workload: ap.Workload) -> ap.PipelineConfig:
    config = wrap.as_it_is(workload)
    assert config is not None
    return config


def choices(workload: ap.Workload) -> dict[str, Any]:
    assert isinstance(workload.data, WrappedData)
    return workload.data.choices


def opened(workload: ap.Workload) -> ap.Loader:
    return assembly.make_loader(workload, as_it_is(workload))
