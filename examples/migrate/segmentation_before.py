"""keras.io, "Image segmentation with a U-Net-like architecture" (Oxford-IIIT Pets), shortened."""

import os
from pathlib import Path

import keras
import tensorflow as tf
from keras import layers

DATA = Path(os.environ["DATA"])  # images/NAME.jpg, annotations/trimaps/NAME.png with the classes 1, 2 and 3
img_size = (160, 160)
num_classes = 3
batch_size = 8

images = sorted(map(str, (DATA / "images").glob("*.jpg")))
masks = sorted(map(str, (DATA / "annotations" / "trimaps").glob("[!.]*.png")))


def load(image, mask):
    image = tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(image), channels=3), img_size)
    mask = tf.image.resize(tf.io.decode_png(tf.io.read_file(mask), channels=1), img_size, method="nearest")
    return image, mask - 1


dataset = tf.data.Dataset.from_tensor_slices((images, masks)).shuffle(1000, seed=1337).map(load).batch(batch_size)


def get_model():
    inputs = keras.Input((*img_size, 3))
    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(inputs)
    x = layers.SeparableConv2D(32, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(16, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.UpSampling2D(2)(x)
    model = keras.Model(inputs, layers.Conv2D(num_classes, 3, activation="softmax", padding="same")(x))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    return model


if __name__ == "__main__":
    get_model().fit(dataset, epochs=1)
