from __future__ import annotations

import importlib.util
import types
from typing import Any

import pytest

from autopipe.errors import ConfigError, MissingExtraError
from autopipe.hardware.backend import BACKENDS, keras_backend, require_installed, require_known

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


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_a_backend_that_is_not_installed_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=f"`{name}` is not installed; the extra `{name}` brings it") as raised:
        require_installed({"KERAS_BACKEND": name})
    hint = str(raised.value.hint)
    assert f"'{name}" in hint  # with bounds in the order of whichever tool built the package's metadata
    assert ">=" in hint


def test_any_other_backend_is_kerass_own_matter() -> None:
    for environment in ({}, {"KERAS_BACKEND": "tensorflow"}, {"KERAS_BACKEND": "numpy"}):
        require_installed(environment)


@pytest.mark.parametrize(
    ("asked", "guess"), [("jx", " Did you mean `jax`?"), ("JAX", " Did you mean `jax`?"), ("mxnet", "")]
)
def test_a_backend_that_keras_does_not_have_is_refused_by_the_name_of_its_variable(asked: str, guess: str) -> None:
    with pytest.raises(ConfigError) as raised:
        require_known({"KERAS_BACKEND": asked})
    assert raised.value.message == (
        "The environment variable KERAS_BACKEND must be one of jax, numpy, openvino, tensorflow, torch, "
        f"but got {asked!r}.{guess}"
    )
    assert "unset it" in str(raised.value.hint)


def test_backends_that_keras_has_and_none_are_taken() -> None:
    for environment in ({}, {"KERAS_BACKEND": ""}, *({"KERAS_BACKEND": name} for name in BACKENDS)):
        require_known(environment)
