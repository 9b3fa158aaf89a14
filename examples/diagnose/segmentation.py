"""Image segmentation with a U-Net-like network, as keras.io teaches it, on small images. Knows nothing of autopipe.

    PETS=/path/to/yours autopipe diagnose examples/diagnose/segmentation.py

PETS is a folder with `images/*.jpg` and, of the same names, `annotations/trimaps/*.png` with the classes 1, 2 and 3.
"""

from __future__ import annotations

import os
import random
from typing import Any

import keras
from keras import layers
from tensorflow import data as tf_data
from tensorflow import image as tf_image
from tensorflow import io as tf_io

input_dir = os.path.join(os.environ["PETS"], "images")
target_dir = os.path.join(os.environ["PETS"], "annotations/trimaps")
img_size = (64, 64)
num_classes = 3
batch_size = 8

input_img_paths = sorted(os.path.join(input_dir, fname) for fname in os.listdir(input_dir) if fname.endswith(".jpg"))
target_img_paths = sorted(
    os.path.join(target_dir, fname)
    for fname in os.listdir(target_dir)
    if fname.endswith(".png") and not fname.startswith(".")
)


def get_dataset(batch_size: int, img_size: tuple[int, int], input_img_paths: Any, target_img_paths: Any) -> Any:
    """Returns a TF Dataset."""

    def load_img_masks(input_img_path: Any, target_img_path: Any) -> Any:
        input_img = tf_io.read_file(input_img_path)
        input_img = tf_io.decode_png(input_img, channels=3)
        input_img = tf_image.resize(input_img, img_size)
        input_img = tf_image.convert_image_dtype(input_img, "float32")

        target_img = tf_io.read_file(target_img_path)
        target_img = tf_io.decode_png(target_img, channels=1)
        target_img = tf_image.resize(target_img, img_size, method="nearest")
        target_img = tf_image.convert_image_dtype(target_img, "uint8")

        # Ground truth labels are 1, 2, 3. Subtract one to make them 0, 1, 2:
        target_img -= 1
        return input_img, target_img

    dataset = tf_data.Dataset.from_tensor_slices((input_img_paths, target_img_paths))
    dataset = dataset.map(load_img_masks, num_parallel_calls=tf_data.AUTOTUNE)
    return dataset.batch(batch_size)


def get_model(img_size: tuple[int, int], num_classes: int) -> Any:
    inputs = keras.Input(shape=(*img_size, 3))

    ### [First half of the network: downsampling inputs] ###

    # Entry block
    x = layers.Conv2D(32, 3, strides=2, padding="same")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)

    previous_block_activation = x  # Set aside residual

    for filters in [64]:
        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)

        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)

        # Project residual
        residual = layers.Conv2D(filters, 1, strides=2, padding="same")(previous_block_activation)
        x = layers.add([x, residual])  # Add back residual
        previous_block_activation = x  # Set aside next residual

    ### [Second half of the network: upsampling inputs] ###

    for filters in [64, 32]:
        x = layers.Activation("relu")(x)
        x = layers.Conv2DTranspose(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)

        x = layers.UpSampling2D(2)(x)

        # Project residual
        residual = layers.UpSampling2D(2)(previous_block_activation)
        residual = layers.Conv2D(filters, 1, padding="same")(residual)
        x = layers.add([x, residual])  # Add back residual
        previous_block_activation = x  # Set aside next residual

    # Add a per-pixel classification layer
    outputs = layers.Conv2D(num_classes, 3, activation="softmax", padding="same")(x)
    return keras.Model(inputs, outputs)


model = get_model(img_size, num_classes)

# Split our img paths into a training and a validation set
val_samples = len(input_img_paths) // 5
random.Random(1337).shuffle(input_img_paths)
random.Random(1337).shuffle(target_img_paths)
train_dataset = get_dataset(batch_size, img_size, input_img_paths[:-val_samples], target_img_paths[:-val_samples])
valid_dataset = get_dataset(batch_size, img_size, input_img_paths[-val_samples:], target_img_paths[-val_samples:])

model.compile(optimizer=keras.optimizers.Adam(1e-4), loss="sparse_categorical_crossentropy")
callbacks = [keras.callbacks.ModelCheckpoint("oxford_segmentation.keras", save_best_only=True)]
epochs = 50
model.fit(
    train_dataset,
    epochs=epochs,
    validation_data=valid_dataset,
    callbacks=callbacks,
    verbose=2,
)
