"""A script with the old `ImageDataGenerator`."""

import os

import keras
from keras import layers
from tensorflow.keras.preprocessing.image import ImageDataGenerator

DATA = os.environ["DATA"]  # one folder for each class
augmentation = {"rotation_range": 20, "width_shift_range": 0.1, "zoom_range": 0.2, "horizontal_flip": True}

generator = ImageDataGenerator(rescale=1 / 255, **augmentation)
train = generator.flow_from_directory(DATA, target_size=(150, 150), batch_size=16, class_mode="categorical")


def build_model():
    model = keras.Sequential(
        [
            keras.Input((150, 150, 3)),
            layers.Conv2D(16, 3, strides=3, activation="relu"),
            layers.Conv2D(32, 3, strides=3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(8, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="categorical_crossentropy")
    return model


if __name__ == "__main__":
    build_model().fit(train, epochs=1)
