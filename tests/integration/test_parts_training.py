"""Training on samples of several parts gives what Keras's own `fit` gives of the same arrays."""

from __future__ import annotations

import json

import pytest

from tests.fakes.commands import ROOT, python, succeeded

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_inputs_targets_and_weights_train_as_by_keras_alone(backend: str) -> None:
    run = ("-W", "error::UserWarning", "-m", "tests.integration.parts_training_run")
    done = succeeded(python(*run, cwd=ROOT, backend=backend))
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["weights matter"] > 1e-3
    assert set(told["found"]) == ({"device", "steps", "tfdata"} if backend == "tensorflow" else {"device"})
    for way, (weights, validation) in told["found"].items():
        assert weights < 1e-5, way
        assert validation < 1e-5, way
