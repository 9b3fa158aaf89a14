"""Which backend Keras trains on in this process, as far as can be told without importing Keras."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from autopipe.errors import ConfigError, MissingExtraError, near

BACKENDS: Final = ("jax", "numpy", "openvino", "tensorflow", "torch")
"""Those that Keras has."""
_EXTRAS: Final = ("jax", "torch")  # backends that an extra of the same name brings


def keras_backend(environment: Mapping[str, str] = os.environ, modules: Mapping[str, Any] = sys.modules) -> str | None:
    """Return "tensorflow", "jax", "torch", ...; None where Keras is not imported yet and nothing is set.

    Keras's own file, ~/.keras/keras.json, is not asked: a training script may still choose another before it imports.
    """
    config = getattr(modules.get("keras"), "config", None)
    if config is not None:
        return str(config.backend())
    return environment.get("KERAS_BACKEND") or None


def require_installed(environment: Mapping[str, str] = os.environ) -> None:
    """Do nothing if the backend that is asked for by `KERAS_BACKEND` is there, or is one that Keras itself knows of.

    Raises:
        MissingExtraError: it is one of an extra that is not installed.
    """
    asked = environment.get("KERAS_BACKEND", "")
    if asked in _EXTRAS and importlib.util.find_spec(asked) is None:
        raise MissingExtraError.of(asked, asked)


def require_known(environment: Mapping[str, str] = os.environ) -> None:
    """Do nothing if `KERAS_BACKEND` asks for none, or for one that Keras has.

    Raises:
        ConfigError: it asks for another, which Keras would fail at without naming the variable.
    """
    asked = environment.get("KERAS_BACKEND", "")
    if asked and asked not in BACKENDS:
        raise ConfigError(
            f"The environment variable KERAS_BACKEND must be one of {', '.join(BACKENDS)}, but got {asked!r}."
            f"{near(asked.lower(), BACKENDS)}",
            hint="Set it to the backend that the workload trains on, or unset it for Keras's own choice.",
        )
