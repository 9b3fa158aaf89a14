"""A real training under the drift monitor: what is logged, and when it warns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CODE = """
import sys, warnings
sys.path.insert(0, {root!r})
import numpy as np, keras
import autopipe as ap
from autopipe.core.value import Estimate
from autopipe.tuned import factory, fingerprint
from autopipe.tuned.drift import DriftMonitor, DriftWarning
from tests.fakes.profiles import digest, figures, profile

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
data = ap.Arrays(np.zeros((64, 4), "float32"), np.zeros((64, 1), "float32"))
workload = ap.Workload(data=data, ops=[ap.Rescale(2.0)], batch_size=4, model=model)
here = fingerprint.detect(data)

def train(promised):
    tuned = factory.of_profile(profile(hardware=here, measurement=figures(promised)), workload)
    with warnings.catch_warnings(record=True) as seen, tuned.make_trainer() as trainer:
        warnings.simplefilter("always")
        loader = trainer.loader
        history = trainer.fit(epochs=3, verbose=0, callbacks=[DriftMonitor()]).history
        assert trainer.loader is loader
    assert len(history["images_per_second"]) == len(history["data_wait_share"]) == 3
    assert min(history["images_per_second"]) > 1 and 0 <= min(history["data_wait_share"]) <= 1
    return sum(issubclass(warning.category, DriftWarning) for warning in seen)

print(train(promised=1.0), train(promised=1e9))
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_training_that_is_slower_than_promised_is_warned_once(backend: str) -> None:
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", CODE.format(root=str(ROOT))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0 1\n"), done.stderr
