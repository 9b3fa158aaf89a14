"""Runs ejected files where autopipe is not: trains models on what they give, and keeps it.

Usage, in the folder of the files and of given.pickle: python ejected_run.py
"""

import importlib
import itertools
import pickle
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

SLOTS = ("x", "y", "sample_weight")


def named(batch: Any) -> dict[str, Any]:
    """Return the parts of a batch by names such as "x", "x.left", "y.0" and "sample_weight"."""
    found: dict[str, Any] = {}
    for slot, value in zip(SLOTS, batch, strict=False):
        if isinstance(value, dict | tuple):
            keys = value if isinstance(value, dict) else range(len(value))
            found |= {f"{slot}.{key}": value[key] for key in keys}
        else:
            found[slot] = value
    return found


def joined(epoch: Iterable[Any]) -> dict[str, Any]:
    batches = [{name: np.array(part) for name, part in named(batch).items()} for batch in epoch]  # memory is used again
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def model_of(batch: Any) -> Any:
    """Return a model that takes such batches, with an output for each part of y."""
    import keras

    x, y = batch[:2]
    inputs = keras.tree.map_structure(lambda part: keras.Input(np.shape(part)[1:]), x)
    flat = [keras.layers.Flatten()(each) for each in keras.tree.flatten(inputs)]
    flat = flat[0] if len(flat) == 1 else keras.layers.concatenate(flat)
    names = y if isinstance(y, dict) else {"y": y}
    outputs = {name: keras.layers.Dense(1, name=name)(flat) for name in names}
    losses = dict.fromkeys(names, lambda y_true, y_pred: keras.ops.mean(keras.ops.square(y_pred), axis=-1))
    is_one = not isinstance(y, dict)
    model = keras.Model(list(inputs) if isinstance(x, tuple) else inputs, outputs["y"] if is_one else outputs)
    model.compile("sgd", losses["y"] if is_one else losses)
    return model


def samples(name: str, given: dict[str, Any], *, is_trained: bool) -> dict[str, Any]:
    plain = importlib.import_module(name)
    if hasattr(plain, "arrays"):
        epoch = [plain.arrays(**given)]
        fed = {**dict(zip(SLOTS, epoch[0], strict=False)), "batch_size": plain.BATCH_SIZE}
    elif hasattr(plain, "Samples"):
        fed = {"x": plain.make_dataset(**given), "steps_per_epoch": plain.STEPS_PER_EPOCH}
        epoch = list(itertools.islice(fed["x"], plain.STEPS_PER_EPOCH))
    elif hasattr(plain, "make_dataset"):
        fed = {"x": plain.make_dataset(**given)}
        epoch = list(fed["x"].as_numpy_iterator())
    else:
        made = plain.Batches(**given)
        fed, epoch = {"x": made}, [made[number] for number in range(len(made))]
    if is_trained:
        losses = model_of(epoch[0]).fit(**fed, epochs=1, verbose=0).history["loss"]
        assert np.isfinite(losses).all(), losses
    return joined(epoch)


def main() -> None:
    sys.modules["autopipe"] = None  # type: ignore[assignment]  # any import of it fails
    sys.path.insert(0, str(Path.cwd()))
    files = pickle.loads(Path("given.pickle").read_bytes())
    made = {name: samples(name, given, is_trained=trained) for name, (given, trained) in files.items()}
    Path("made.pickle").write_bytes(pickle.dumps(made))


if __name__ == "__main__":
    main()
