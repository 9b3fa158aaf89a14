"""Layers of a model that draw random changes of its input in training, and the model without them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from autopipe import frameworks
from autopipe.workload.stand_in import standing_in

_OTHERS = {"AugMix", "CutMix", "MixUp", "RandAugment"}  # that Keras ships besides those called Random...


def augmenting_layers(model: Any) -> list[Any]:
    """Return the layers of the Random* kind in a model, at any depth, that let everything pass when not in training."""
    return [
        layer
        for layer in frameworks.layers(model)
        if any(kind.__name__.startswith("Random") or kind.__name__ in _OTHERS for kind in type(layer).__mro__)
        and "training" in inspect.signature(layer.call).parameters
    ]


@contextlib.contextmanager
def turned_off(layers: Sequence[Any]) -> Iterator[None]:
    """Let these layers do in training what they do when a model predicts."""
    with contextlib.ExitStack() as stack:
        for layer in layers:
            stack.enter_context(standing_in(layer, "call", _as_in_prediction(layer.call)))
        yield


def _as_in_prediction(call: Callable[..., Any]) -> Callable[..., Any]:
    def predicting(*inputs: Any, **others: Any) -> Any:
        return call(*inputs, **{**others, "training": False})

    return predicting
