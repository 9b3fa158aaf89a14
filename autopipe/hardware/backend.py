"""Which backend Keras trains on in this process, as far as can be told without importing Keras."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any


def keras_backend(environment: Mapping[str, str] = os.environ, modules: Mapping[str, Any] = sys.modules) -> str | None:
    """Return "tensorflow", "jax", "torch", ...; None where Keras is not imported yet and nothing is set.

    Keras's own file, ~/.keras/keras.json, is not asked: a training script may still choose another before it imports.
    """
    config = getattr(modules.get("keras"), "config", None)
    if config is not None:
        return str(config.backend())
    return environment.get("KERAS_BACKEND") or None
