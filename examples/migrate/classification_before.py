"""keras.io, "Image classification from scratch", shortened."""

import os

import keras
from keras import layers

DATA = os.environ["DATA"]  # PetImages: one folder for each class
image_size = (180, 180)
batch_size = 16

train_ds, val_ds = keras.utils.image_dataset_from_directory(
    DATA, validation_split=0.2, subset="both", seed=1337, image_size=image_size, batch_size=batch_size
)
augmentation = keras.Sequential([layers.RandomFlip("horizontal"), layers.RandomRotation(0.1)])
train_ds = train_ds.map(lambda image, label: (augmentation(image), label))


def make_model():
    inputs = keras.Input((*image_size, 3))
    x = layers.Rescaling(1.0 / 255)(inputs)
    for size in (8, 16, 32):
        x = layers.SeparableConv2D(size, 3, strides=2, padding="same", activation="relu")(x)
    outputs = layers.Dense(8, activation="softmax")(layers.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


if __name__ == "__main__":
    make_model().fit(train_ds, epochs=1, validation_data=val_ds)
