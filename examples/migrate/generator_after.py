"""A script with the old `ImageDataGenerator`."""

import os

import keras
from keras import layers

import autopipe as ap

DATA = os.environ["DATA"]  # one folder for each class
augmentation = {"rotation_range": 20, "width_shift_range": 0.1, "zoom_range": 0.2, "horizontal_flip": True}

train = ap.ImageFolder(DATA, label_mode="categorical")
ops = [ap.Decode(), ap.Resize(150, 150), *ap.from_image_data_generator(rescale=1 / 255, **augmentation)]


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


workload = ap.Workload(data=train, ops=ops, batch_size=16, model=build_model)

if __name__ == "__main__":
    ap.make_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=2))).fit(epochs=1)
