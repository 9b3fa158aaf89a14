"""Tune a tf.data pipeline that exists already, as it is: `ap.wrap` around the function that makes it.

    pip install '.[demo]'                                    # scikit-image, which the demo set is made of
    python examples/existing_tfdata/make_demo.py             # a demo set; or PHOTOS=/path/to/yours
    python examples/existing_tfdata/train.py                 # trains as it is
    autopipe tune examples/existing_tfdata/train.py:workload --out tuned-tfdata

The function takes what tuning may change as parameters; their defaults are how the pipeline was before.
`train.py:one_hots` and `train.py:masks` are the same with targets that are arrays.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import autopipe as ap

PHOTOS = Path(os.environ.get("PHOTOS", Path(__file__).resolve().parent / "demo"))
SIZE = 160


def make_dataset(num_parallel_calls: int = 1, prefetch: int = 1, cache: bool = False) -> Any:
    """Return batches of photos and labels, as anybody would write it."""
    import tensorflow as tf

    classes = sorted(entry.name for entry in PHOTOS.iterdir() if entry.is_dir())
    samples = [
        (str(path), label) for label, name in enumerate(classes) for path in sorted((PHOTOS / name).glob("*.jpg"))
    ]

    def load(path: Any, label: Any) -> tuple[Any, Any]:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, (SIZE, SIZE)), label

    def augment(image: Any, label: Any) -> tuple[Any, Any]:
        return tf.image.random_flip_left_right(image) / 255.0, label

    dataset = tf.data.Dataset.from_tensor_slices(([path for path, _ in samples], [label for _, label in samples]))
    if not cache:
        dataset = dataset.shuffle(len(samples))
    dataset = dataset.map(load, num_parallel_calls=num_parallel_calls)
    if cache:
        dataset = dataset.cache().shuffle(len(samples))
    dataset = dataset.map(augment, num_parallel_calls=num_parallel_calls)
    return dataset.batch(32, drop_remainder=True).prefetch(prefetch)


def make_one_hots(num_parallel_calls: int = 1, prefetch: int = 1, cache: bool = False) -> Any:
    """Return the same with one-hots, each a vector."""
    import tensorflow as tf

    count = sum(entry.is_dir() for entry in PHOTOS.iterdir())
    return make_dataset(num_parallel_calls, prefetch, cache).map(lambda x, label: (x, tf.one_hot(label, count)))


def make_masks(num_parallel_calls: int = 1, prefetch: int = 1, cache: bool = False) -> Any:
    """Return the same with masks of what is bright, each as large as its photo."""
    import tensorflow as tf

    def masked(x: Any, label: Any) -> tuple[Any, Any]:
        return x, tf.cast(tf.reduce_mean(x, axis=-1, keepdims=True) > 0.5, tf.float32)

    return make_dataset(num_parallel_calls, prefetch, cache).map(masked)


def build_model(loss: str = "sparse_categorical_crossentropy") -> Any:
    """Return a small compiled CNN."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(16, 3, strides=4, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(sum(entry.is_dir() for entry in PHOTOS.iterdir()), activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


def build_classifier() -> Any:
    """Return the CNN for one-hots."""
    return build_model("categorical_crossentropy")


def build_segmenter() -> Any:
    """Return a small compiled network from a photo to its mask."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(16, 3, strides=4, padding="same", activation="relu"),
            layers.Conv2D(1, 1, activation="sigmoid"),
            layers.UpSampling2D(4),
        ]
    )
    model.compile(optimizer="adam", loss="binary_crossentropy")
    return model


PARAMETERS: dict[str, list[int] | list[bool]] = {
    "num_parallel_calls": [1, 2, 4],
    "prefetch": [1, 4],
    "cache": [False, True],
}
workload = ap.wrap(make_dataset, model=build_model, parameters=PARAMETERS)
one_hots = ap.wrap(make_one_hots, model=build_classifier, parameters=PARAMETERS)
masks = ap.wrap(make_masks, model=build_segmenter, parameters=PARAMETERS)

if __name__ == "__main__":
    build_model().fit(make_dataset(), epochs=2)
