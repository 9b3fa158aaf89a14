"""Runs the cheap last ops of a workload inside the compiled step, for as long as a Keras call lasts.

While `applied()` is entered, the model's `train_step`, `test_step` and `predict_step` finish the batch first; after it
the model is as its owner made it, so that saving, pickling and calling `fit` on other data are unaffected. Within a
`fit`, callbacks may evaluate and predict on data of their own, so there `validated()` finishes what `fit` itself
evaluates. Compiled functions are kept here between calls, so that the next `fit`, or the next trial on the same model,
compiles nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras

from autopipe import frameworks
from autopipe.pipeline.devices.keras_ops import KERAS_OPS
from autopipe.workload.finish import Finish
from autopipe.workload.stand_in import standing_in

_KINDS = ("train", "test", "predict")


@dataclasses.dataclass(frozen=True, slots=True)
class _Compiled:
    kind: str
    finish: Finish
    together: int
    compiled_by: Any  # what `compile()` made; it makes another each time
    function: Any


class FinishedSteps:
    """The steps of one model, with the finish of the batches before them."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._compiled: list[_Compiled] = []

    @contextlib.contextmanager
    def applied(self, *, train: Finish, test: Finish, together: int | None = None) -> Iterator[None]:
        """Let the model's steps take compact batches; `test` is for evaluation and prediction.

        One call trains `together` batches; None: as many as the model was compiled for.
        """
        model = self._model
        owners = model.steps_per_execution
        with contextlib.ExitStack() as stack:
            if together is not None:
                stack.callback(setattr, model, "steps_per_execution", owners)
                model.steps_per_execution = together
            for kind, finish in zip(_KINDS, (train, test, test), strict=True):
                if not finish.is_identity or model.steps_per_execution != owners:
                    stack.enter_context(self._finishing(kind, finish))
            yield

    @contextlib.contextmanager
    def validated(self, feed: Any, finish: Finish) -> Iterator[None]:
        """Let a `fit` finish the batches of `feed`, its validation data, when it evaluates the model on them."""
        evaluate = self._model.evaluate

        @functools.wraps(evaluate)
        def finishing(*arguments: Any, **named: Any) -> Any:
            if named.get("x") is not feed:  # a callback's own
                return evaluate(*arguments, **named)
            with contextlib.nullcontext() if finish.is_identity else self._finishing("test", finish):
                return evaluate(*arguments, **named)

        with standing_in(self._model, "evaluate", finishing):
            yield

    @contextlib.contextmanager
    def _finishing(self, kind: str, finish: Finish) -> Iterator[None]:
        model, step, function = self._model, f"{kind}_step", f"{kind}_function"
        owners_function = getattr(model, function)
        with standing_in(model, step, _finished(getattr(model, step), finish)):
            setattr(model, function, self._find(kind, finish))
            try:
                yield
            finally:
                self._keep(kind, finish, getattr(model, function))
                setattr(model, function, owners_function)

    def _find(self, kind: str, finish: Finish) -> Any:
        made_by = frameworks.compilation(self._model)
        self._compiled = [entry for entry in self._compiled if entry.compiled_by is made_by]
        wanted = kind, finish, self._model.steps_per_execution
        for entry in self._compiled:
            if (entry.kind, entry.finish, entry.together) == wanted:
                return entry.function
        return None  # Keras makes it from the step that it finds

    def _keep(self, kind: str, finish: Finish, function: Any) -> None:
        if isinstance(getattr(function, "__self__", None), keras.callbacks.Callback):
            return  # it stands there in the function's place, because an error kept it from being told of the end
        if function is not None and self._find(kind, finish) is None:
            together, made_by = self._model.steps_per_execution, frameworks.compilation(self._model)
            self._compiled.append(_Compiled(kind, finish, together, made_by, function))


def _finished(step: Callable[..., Any], finish: Finish) -> Callable[..., Any]:
    def finished_step(*arguments: Any) -> Any:
        *state, data = arguments  # the batch comes last on every backend; JAX puts the state before it
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        x, y, sample_weight = finish.step_data(x, y, sample_weight, KERAS_OPS)
        return step(*state, keras.utils.pack_x_y_sample_weight(x, y, sample_weight))

    return finished_step
