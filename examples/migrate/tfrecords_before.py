"""TFRecord files of encoded images, trained with Keras."""

import os

import keras
import tensorflow as tf
from keras import layers

DATA = os.environ["DATA"]  # a folder of *.tfrecord files
features = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}


def parse(record):
    example = tf.io.parse_single_example(record, features)
    image = tf.image.resize(tf.io.decode_jpeg(example["image/encoded"], channels=3), (128, 128))
    return tf.image.random_flip_left_right(image), example["image/class/label"]


train = tf.data.TFRecordDataset(tf.io.gfile.glob(f"{DATA}/*.tfrecord")).shuffle(1000).map(parse).batch(16)


def build_model():
    model = keras.Sequential(
        [
            keras.Input((128, 128, 3)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 3, strides=3, activation="relu"),
            layers.Conv2D(32, 3, strides=3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(8, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    return model


if __name__ == "__main__":
    build_model().fit(train, epochs=1)
