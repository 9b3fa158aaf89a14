"""Small models for the tests of pipelines, and of what they are measured and verified with."""

from typing import Any

import keras
import numpy as np


def classifier(
    *, one_hot: bool = False, shape: tuple[int, ...] = (4, 4, 3), classes: int = 3, **compile_arguments: Any
) -> keras.Model:
    """Return a compiled linear classifier that starts from the same weights every time."""
    keras.utils.set_random_seed(1)
    output = keras.layers.Dense(classes, activation="softmax")
    model = keras.Sequential([keras.Input(shape), keras.layers.Flatten(), output], name="classifier")
    loss = "categorical_crossentropy" if one_hot else "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.SGD(0.05), loss, **compile_arguments)
    return model


def same_weights(a: keras.Model, b: keras.Model) -> bool:
    return all(np.allclose(p, q, atol=1e-6) for p, q in zip(a.get_weights(), b.get_weights(), strict=True))


class KilledError(Exception):
    """Stands for the end of the process."""


class Ends(keras.callbacks.Callback):
    """Ends a training after so many batches. Stands last in the list, so that the others have had the batch."""

    def __init__(self, batches: int, error: BaseException | None = None) -> None:
        super().__init__()
        self.left, self.error = batches, error or KilledError()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error
