from __future__ import annotations

import types
from typing import Any

import pytest

from autopipe.hardware.backend import keras_backend

IMPORTED = types.SimpleNamespace(config=types.SimpleNamespace(backend=lambda: "jax"))


@pytest.mark.parametrize(
    ("environment", "modules", "backend"),
    [
        ({}, {}, None),
        ({"KERAS_BACKEND": ""}, {}, None),
        ({"KERAS_BACKEND": "torch"}, {}, "torch"),
        ({"KERAS_BACKEND": "torch"}, {"keras": types.SimpleNamespace()}, "torch"),  # in the middle of its import
        ({"KERAS_BACKEND": "torch"}, {"keras": IMPORTED}, "jax"),  # set too late
    ],
)
def test_an_imported_keras_knows_its_backend_and_the_environment_says_what_it_will_be(
    environment: dict[str, str], modules: dict[str, Any], backend: str | None
) -> None:
    assert backend == keras_backend(environment, modules)
