"""A Hugging Face image folder, trained with Keras."""

import os

import keras
from datasets import load_dataset
from keras import layers

DATA = os.environ["DATA"]  # one folder for each class
dataset = load_dataset("imagefolder", data_dir=DATA, split="train")


def resized(rows):
    return {"pixels": [image.convert("RGB").resize((128, 128)) for image in rows["image"]], "label": rows["label"]}


rows = dataset.with_transform(resized)
train = rows.to_tf_dataset(columns="pixels", label_cols="label", batch_size=16, shuffle=True)


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
