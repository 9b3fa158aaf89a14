"""A digest of the structure of a model, for the fingerprint of a workload. Keras is not imported."""

from __future__ import annotations

import json
from typing import Any

from autopipe import frameworks
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.workload import digests

_NO_SETTINGS = frozenset({"name", "seed", "built"})


def model_digest(model: Any) -> str:
    """Return a digest of a Keras model's structure: its layers' kinds, settings and weights' shapes, in order.

    Values of weights do not count, nor do names, which Keras numbers from model to model, nor connections of layers. Of
    a simulated accelerator the step time counts, as it has nothing else.
    """
    layers = frameworks.layers(model) if hasattr(model, "layers") else [model]
    optimizer = type(getattr(model, "optimizer", None)).__name__
    step = _simulated_step(model)
    return digests.digest(str(getattr(model, "input_shape", None)), optimizer, *step, *map(_layer_text, layers))


def _simulated_step(model: Any) -> list[str]:
    """Return the step time of a simulated accelerator; empty for any other model, whose digest it must not change."""
    found = getattr(model, "accelerator", None)
    return [f"{found.step_seconds!r} {found.batch_size!r}"] if isinstance(found, SimulatedAccelerator) else []


def _layer_text(layer: Any) -> str:
    shapes = [tuple(weight.shape) for weight in getattr(layer, "weights", ())]
    policy = getattr(getattr(layer, "dtype_policy", None), "name", None)
    return f"{type(layer).__name__} {policy} {shapes} {json.dumps(_settings(layer), sort_keys=True)}"


def _settings(layer: Any) -> dict[str, Any]:
    """Return a layer's public attributes; `get_config` has them too, but imports TensorFlow for any backend."""
    if hasattr(layer, "layers"):  # a container: its layers follow on their own
        return {}
    public = {name: value for name, value in vars(layer).items() if not name.startswith("_")}
    return {name: _plain(value) for name, value in public.items() if name not in _NO_SETTINGS}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return getattr(value, "__name__", type(value).__name__)  # of an activation, its function's name
