"""Trains a model of two inputs and two targets with weights of samples: by Keras's own `fit` on the arrays, and by
autopipe in several ways. Prints how far the weights, and what validation says, are apart.

Usage: KERAS_BACKEND=... python -m tests.integration.parts_training_run
"""

from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np

import autopipe as ap
from autopipe.pipeline.assembly import build_trainer

ROWS, BATCH, EPOCHS = 22, 4, 2
_GENERATOR = np.random.default_rng(0)
X: dict[str, Any] = {
    "numbers": _GENERATOR.random((ROWS, 3)).astype(np.float32),
    "photo": _GENERATOR.integers(0, 256, (ROWS, 6, 6, 3)).astype(np.uint8),
}
Y: dict[str, Any] = {"depth": _GENERATOR.random((ROWS, 1)).astype(np.float32), "kind": _GENERATOR.integers(0, 3, ROWS)}
WEIGHT = _GENERATOR.random(ROWS).astype(np.float32)


def build_model() -> keras.Model:
    keras.utils.set_random_seed(1)
    photo, numbers = keras.Input((6, 6, 3), name="photo"), keras.Input((3,), name="numbers")
    both = keras.layers.concatenate([keras.layers.Flatten()(photo), numbers])
    outputs = {
        "depth": keras.layers.Dense(1, name="depth")(both),
        "kind": keras.layers.Dense(3, activation="softmax", name="kind")(both),
    }
    model = keras.Model([photo, numbers], outputs)
    model.compile(optimizer="sgd", loss={"depth": "mse", "kind": "sparse_categorical_crossentropy"})
    return model


def distance(model: keras.Model, other: keras.Model) -> float:
    """Return the largest difference between two models' weights."""
    pairs = zip(model.get_weights(), other.get_weights(), strict=True)
    return max(float(np.abs(one - two).max()) for one, two in pairs)


def by_keras(*, weighted: bool = True) -> tuple[keras.Model, Any]:
    """Return a model trained by Keras alone, and its history."""
    x = {**X, "photo": X["photo"].astype(np.float32) / 255}
    weight = WEIGHT if weighted else None
    model = build_model()
    validation = (x, Y, WEIGHT) if weighted else (x, Y)
    told = {"batch_size": BATCH, "epochs": EPOCHS, "shuffle": False, "verbose": 0}
    return model, model.fit(x, Y, sample_weight=weight, validation_data=validation, **told)


def by_autopipe(config: ap.PipelineConfig) -> tuple[keras.Model, Any]:
    """Return a model trained by autopipe, and its history."""
    data = ap.Arrays(X, Y, sample_weight=WEIGHT)
    workload = ap.Workload(data=data, ops=[ap.Rescale(1 / 255)], batch_size=BATCH, model=build_model, shuffle=False)
    with build_trainer(workload, config) as trainer:
        history = trainer.fit(EPOCHS, validation=data, verbose=0)
        return trainer.model, history


def main() -> None:
    threads = ap.Threads(workers=2, queue_size=2)
    ways = {"device": ap.PipelineConfig(loader=threads)}
    if keras.backend.backend() == "tensorflow":
        ways |= {
            "steps": ap.PipelineConfig(loader=threads, steps_per_execution=3),
            "tfdata": ap.PipelineConfig(loader=ap.TfData(num_parallel_calls=1, prefetch=1), finish="host"),
        }
    wanted, history = by_keras()
    found = {}
    for name, config in ways.items():
        model, other = by_autopipe(config)
        found[name] = [distance(model, wanted), abs(other.history["val_loss"][-1] - history.history["val_loss"][-1])]
    unweighted, _ = by_keras(weighted=False)
    print(json.dumps({"found": found, "weights matter": distance(wanted, unweighted)}))  # noqa: T201  # the test reads it


if __name__ == "__main__":
    main()
