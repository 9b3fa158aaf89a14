"""A model of two branches, each on a device of its own, fed as any other; and the same shared out as data parallel.

    python examples/branches/train.py

The two devices are virtual: halves of the CPU. On a machine with two GPUs, name them "GPU:0" and "GPU:1" below, and
leave `split_the_cpu` out. The feed neither knows nor touches where layers are: it hands over batches, and the model's
own code says what runs where.
"""

from __future__ import annotations

import os
import time
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # `tf.device` is TensorFlow's

import keras  # noqa: TID253  this is a training script
import numpy as np
import tensorflow as tf  # noqa: TID253

import autopipe as ap

SIDE, BATCH, SAMPLES, CLASSES = 48, 32, 512, 5
FIRST, SECOND = "CPU:0", "CPU:1"


def split_the_cpu() -> None:
    """Make two devices of the CPU, once, before TensorFlow runs anything."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    if tf.config.get_logical_device_configuration(cpu) is None:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


split_the_cpu()


class On(keras.layers.Layer):
    """Runs some layers, and keeps their weights, on one device; on any where none is named."""

    def __init__(self, device: str | None, layers: list[keras.layers.Layer], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.device, self.inner = device, layers

    def build(self, shape: Any) -> None:
        with tf.device(self.device):
            for layer in self.inner:
                layer.build(shape)
                shape = layer.compute_output_shape(shape)

    def call(self, x: Any) -> Any:
        with tf.device(self.device):
            for layer in self.inner:
                x = layer(x)
        return x


def convolutions(size: int) -> list[keras.layers.Layer]:
    """Return a branch that looks at patches of this size."""
    return [
        keras.layers.Conv2D(16, size, strides=2, activation="relu"),
        keras.layers.Conv2D(32, size, strides=2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
    ]


def build(devices: tuple[str | None, str | None]) -> keras.Model:
    """Return the compiled model with its branches on these devices."""
    keras.utils.set_random_seed(1)
    image = keras.Input((SIDE, SIDE, 3))
    fine = On(devices[0], convolutions(3), name="fine")(image)
    coarse = On(devices[1], convolutions(7), name="coarse")(image)
    scores = keras.layers.Dense(CLASSES)(keras.layers.Concatenate()([fine, coarse]))
    model = keras.Model(image, scores)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05), loss)
    return model


def branches_on_devices() -> keras.Model:
    """Return the model with each branch on a device of its own."""
    return build((FIRST, SECOND))


def unplaced() -> keras.Model:
    """Return the same model, as it is shared out by data parallel."""
    return build((None, None))


def of_model(model: Any) -> ap.Workload:
    """Return the workload of a model, on made-up images."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 255, (SAMPLES, SIDE, SIDE, 3)).astype(np.uint8)
    labels = generator.integers(0, CLASSES, SAMPLES)
    ops = [ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=ap.Arrays(images, labels), ops=ops, batch_size=BATCH, model=model)


workload = of_model(branches_on_devices)
data_parallel = of_model(unplaced)


def main() -> None:
    """Train each way for two epochs; the first compiles, the second is timed."""
    for name, trained, devices in (
        ("one device", data_parallel, 1),
        ("branches on two", workload, 1),
        ("data parallel on two", data_parallel, 2),
    ):
        config = ap.PipelineConfig(loader=ap.Threads(workers=1), devices=devices)
        with ap.make_trainer(trained, config) as trainer:
            losses = trainer.fit(epochs=1, verbose=0).history["loss"]
            began = time.perf_counter()
            losses += trainer.fit(epochs=1, verbose=0).history["loss"]
            rate = SAMPLES / (time.perf_counter() - began)
            weights = trainer.model.get_layer("coarse").weights
        where = "both" if devices > 1 else weights[0].value.device.rpartition("device:")[2]
        print(f"{name}: {rate:,.0f} images/s, loss {losses[-1]:.4f}, coarse branch on {where}")


if __name__ == "__main__":
    main()
