"""keras.io, "Image segmentation with a U-Net-like architecture" (Oxford-IIIT Pets), shortened."""

import os
from pathlib import Path

import keras
from keras import layers

import autopipe as ap

DATA = Path(os.environ["DATA"])  # images/NAME.jpg, annotations/trimaps/NAME.png with the classes 1, 2 and 3
img_size = (160, 160)
num_classes = 3
batch_size = 8

data = ap.ImagePairs(DATA / "images", DATA / "annotations" / "trimaps")
ops = [ap.Decode(), ap.Resize(*img_size), ap.Map(lambda mask: mask - 1, on="mask")]


def get_model():
    inputs = keras.Input((*img_size, 3))
    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(inputs)
    x = layers.SeparableConv2D(32, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(16, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.UpSampling2D(2)(x)
    model = keras.Model(inputs, layers.Conv2D(num_classes, 3, activation="softmax", padding="same")(x))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    return model


workload = ap.Workload(data=data, ops=ops, batch_size=batch_size, model=get_model, seed=1337)

if __name__ == "__main__":
    ap.make_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=2))).fit(epochs=1)
