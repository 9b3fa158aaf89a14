"""What is private to Keras, TensorFlow, JAX and torch, and is used all the same: here and nowhere else.

Importing this imports none of them.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from typing import Any

from autopipe.errors import LoaderError


def require_safe_fork(instead: str) -> None:
    """Refuse to let Keras fork worker processes where they would hang.

    Args:
        instead: what to do about it.

    Raises:
        LoaderError: processes are not forked here, or a framework has run in this one.
    """
    if (method := multiprocessing.get_start_method()) != "fork":
        raise LoaderError(
            f"`use_multiprocessing` of Keras is supported with the start method `fork` only, but it is `{method}`.",
            hint=instead,
        )
    if (running := running_framework()) is not None:
        raise LoaderError(
            f"`use_multiprocessing` of Keras forks, and children forked after {running} has run, as it has here, hang.",
            hint=instead,
        )


def running_framework() -> str | None:
    """Return the framework whose threads a fork would lose, without importing any."""
    tensorflow = sys.modules.get("tensorflow.python.eager.context")
    context = tensorflow.context_safe() if tensorflow is not None else None
    if context is not None and getattr(context, "_initialized", True):
        return "TensorFlow"
    jax = sys.modules.get("jax._src.xla_bridge")
    if jax is not None and getattr(jax, "_backends", True):
        return "JAX"
    return None


def layers(model: Any) -> Iterator[Any]:
    """Yield a Keras layer or model and all layers in it."""
    yield from model._flatten_layers()


def random_layer(function: Any) -> str | None:
    """Return the name of the Keras layer's class if `function` is one, or holds one, that draws random numbers."""
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(function, keras.Layer):
        return None
    for layer in layers(function):
        if any(isinstance(value, keras.random.SeedGenerator) for value in vars(layer).values()):
            return type(layer).__name__
    return None
