"""A training script with the smallest workload that trains: for tests that run autopipe on a file of the user's."""

TRAIN = """
import numpy as np
import autopipe as ap

def build_model():
    import keras
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return model

data = ap.Arrays(np.zeros((256, 4), "float32"), np.zeros((256, 1), "float32"))
workload = ap.Workload(data=data, ops=[ap.Rescale(0.5)], batch_size=4, model=build_model)
"""
