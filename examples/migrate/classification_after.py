"""keras.io, "Image classification from scratch", shortened."""

import os

import keras
from keras import layers

import autopipe as ap

DATA = os.environ["DATA"]  # PetImages: one folder for each class
image_size = (180, 180)
batch_size = 16

train, val = (ap.ImageFolder(DATA, validation_split=0.2, subset=part, seed=1337) for part in ("training", "validation"))
ops = [ap.Decode(), ap.Resize(*image_size), ap.RandomFlip(), ap.RandomAffine(rotation=36)]


def make_model():
    inputs = keras.Input((*image_size, 3))
    x = layers.Rescaling(1.0 / 255)(inputs)
    for size in (8, 16, 32):
        x = layers.SeparableConv2D(size, 3, strides=2, padding="same", activation="relu")(x)
    outputs = layers.Dense(8, activation="softmax")(layers.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


workload = ap.Workload(data=train, ops=ops, batch_size=batch_size, model=make_model)

if __name__ == "__main__":
    ap.make_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=2))).fit(epochs=1, validation=val)
