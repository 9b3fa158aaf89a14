"""Models of `keras.applications` by name, for workloads that bring no model of their own."""

from __future__ import annotations

from typing import Any

import keras

from autopipe.errors import ModelError, near


def build(name: str, size: int, classes: int) -> keras.Model:
    """Return a compiled classifier with random weights.

    Args:
        name: as Keras writes it or in lower case: "MobileNetV2", "mobilenet_v2".
        size: height and width of its images.
        classes: of its last layer.

    Raises:
        ModelError: there is no such model, or it takes no images of that size.
    """
    known = {_plain(model): model for model in dir(keras.applications) if model[0].isupper()}
    if _plain(name) not in known:
        models = ", ".join(sorted(known.values()))
        raise ModelError(
            f"`{name}` is no model of keras.applications.{near(name, known.values())}", hint=f"It has {models}."
        )
    make: Any = getattr(keras.applications, known[_plain(name)])
    try:
        model = make(weights=None, input_shape=(size, size, 3), classes=classes)
    except ValueError as error:
        raise ModelError(f"`{name}` cannot be built for images of {size} x {size}: {error}") from error
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
