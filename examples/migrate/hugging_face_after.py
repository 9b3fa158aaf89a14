"""A Hugging Face image folder, trained with Keras."""

import os

import keras
from datasets import load_dataset
from keras import layers

import autopipe as ap

DATA = os.environ["DATA"]  # one folder for each class
dataset = load_dataset("imagefolder", data_dir=DATA, split="train")
train = ap.HuggingFace(dataset)
ops = [ap.Decode(), ap.Resize(128, 128)]


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


workload = ap.Workload(data=train, ops=ops, batch_size=16, model=build_model)

if __name__ == "__main__":
    ap.make_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=2))).fit(epochs=1)
