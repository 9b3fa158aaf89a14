"""Small programs after problems that people report of their trainings: the command that ought to say the important
thing says it, by name and with its figures. How it is worded is not tested.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fakes.commands import autopipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HEAD = """
import os
import threading

import cv2
import keras
import numpy as np

import autopipe as ap

x = np.random.default_rng(0).random((96, 8, 8, 3), "float32")
y = np.arange(96, dtype="int32") % 2


def build_model():
    layers = [keras.Input((None, None, 3)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Data(keras.utils.PyDataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        rows = slice(8 * index, 8 * index + 8)
        return self.changed(x[rows]), y[rows]

    def changed(self, images):
        return images


def of_photos(write):
    for kind in ("a", "b"):
        os.makedirs(f"photos/{kind}", exist_ok=True)
        for number in range(24):
            write(f"photos/{kind}/{number:02}", number)
    data, ops = ap.ImageFolder("photos"), [ap.Decode(), ap.Resize(8, 8)]
    return ap.Workload(data=data, ops=ops, batch_size=8, model=build_model)
"""
TAIL = """
if __name__ == "__main__":
    build_model().fit(dataset, epochs=200, verbose=0)
workload = ap.wrap(dataset, model=build_model)
"""

# Each: its name, the command that is run on it, the backend if it is not JAX and the exit status if it is not 0; the
# program behind HEAD, with TAIL where it has only a `dataset`; what must be in what is printed (>), and what not (<).
CASES = """
=== a lock that was held when workers were forked: diagnose [exit 3]
lock, held = threading.Lock(), threading.Event()
def hold():
    with lock:
        held.set()
        threading.Event().wait()
class Locked(Data):
    def changed(self, images):
        with lock:  # hangs
            return images
dataset = Locked(workers=2, use_multiprocessing=True)
if __name__ == "__main__":
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
> worker processes wait at case.py | `with lock:  # hangs` | nobody gives it back in the forked process
=== library threads in each worker: diagnose
class Turned(Data):
    def changed(self, images):
        cv2.setNumThreads(640)
        cv2.GaussianBlur(np.zeros((1000, 1000), "float32"), (31, 31), 3)
        return images
dataset = Turned(workers=2, use_multiprocessing=True)
> `cv2.setNumThreads(640)` sets OpenCV's threads to 640
=== workers that begin anew in short epochs: diagnose
class Short(Data):
    def __len__(self):
        return 3
dataset = Short(workers=2, use_multiprocessing=True)
> Keras's worker processes begin anew in each epoch
=== a seed for all that makes every epoch alike: verify case.py:workload [tensorflow, exit 1]
keras.utils.set_random_seed(42)
def make(num_parallel_calls=2):
    data = tf.data.Dataset.from_tensor_slices((x, y))
    return data.map(lambda x, y: (tf.image.random_brightness(x, 0.3), y), num_parallel_calls).batch(8)
dataset = make
> made with the same random numbers | `keras.utils.set_random_seed`
=== a y that is drawn anew, of classes that the model has not: verify case.py:workload [exit 1]
class Drawn(Data):
    def __getitem__(self, index):
        images, numbers = super().__getitem__(index)
        return images, np.random.default_rng().integers(0, 9, len(numbers))
dataset = Drawn()
> had another y than before | the model's 2 outputs are classes 0 to 1
=== photos that lie on their side, but for the first ones: verify --files case.py:workload
from PIL import Image
def write(path, number):
    exif = Image.Exif()
    if number >= 20:
        exif[0x0112] = 6
    Image.new("RGB", (12, 9)).save(path + ".jpg", exif=exif)
workload = of_photos(write)
> 8 of 48 images are to be rotated, by their EXIF tags
=== a folder with files that are no images: verify --files case.py:workload [exit 1]
def write(path, number):
    cv2.imwrite(path + ".png", np.zeros((9, 9, 3), "uint8"))
    with open(os.path.dirname(path) + "/page.jpg", "w") as file:
        file.write("<!DOCTYPE html><title>404 Not Found</title>" * path.startswith("photos/b"))
workload = of_photos(write)
> 2 cannot be used | photos/a/page.jpg` is empty | photos/b/page.jpg
=== a loop of JAX over reads of its own: diagnose [exit 3]
import jax
def load():
    threading.Event().wait(0.05)  # a disk
    return x[:8]
step = jax.jit(jax.grad(lambda weights, x: ((x.mean((1, 2)) @ weights) ** 2).mean()))
while True:
    step(np.ones(3), load())
> threading.Event().wait(0.05)  # a disk | ap.watch
=== a strategy, mixed precision and no end: diagnose [tensorflow]
def make_dataset(num_parallel_calls=2):
    options = tf.data.Options()
    options.deterministic = False
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().with_options(options)
    return data.map(lambda x, y: (x + 1, y), num_parallel_calls).shuffle(96).batch(8).prefetch(2)
if __name__ == "__main__":
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    with tf.distribute.MirroredStrategy(["/CPU:0"]).scope():
        model = build_model()
    model.fit(make_dataset(), steps_per_epoch=12, epochs=200, verbose=0)
> tf.data.Dataset (tensorflow) | verdict
< error:
=== an iterator that a compiled function reads: diagnose [tensorflow, exit 3]
model = build_model()
batches = iter(tf.data.Dataset.from_tensor_slices((x, y)).batch(7).repeat())
@tf.function(autograph=False)
def train(batches):
    images, labels = next(batches)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model.loss(labels, model(images, training=True)))
    model.optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
while True:
    train(batches)
> no loop over a dataset that is watched | train(batches)
< TypeError
=== one model for all folds: diagnose
model = build_model()
for fold in np.array_split(np.arange(96), 4):
    rest = np.setdiff1d(np.arange(96), fold)
    model.fit(x[rest], y[rest], batch_size=8, epochs=3, validation_data=(x[fold], y[fold]), verbose=0)
> 24 validation samples | Make a new model for each fold
=== a validation without an end: diagnose [tensorflow, exit 3]
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8).repeat()
build_model().fit(data, steps_per_epoch=12, epochs=200, validation_data=data, verbose=0)
> validation_steps=
=== a y that begins with 1: diagnose [tensorflow, exit 3]
build_model().fit(x, y + 1, epochs=2, verbose=0)
> hint: Classes are numbered from 0
< autopipe/
=== large files, of which only the paths are cached: diagnose [tensorflow]
paths = [f"{number}.png" for number in range(32)]
for path in paths:
    cv2.imwrite(path, np.zeros((600, 800, 3), "uint8"))
def load(path, label):
    return tf.image.resize(tf.io.decode_png(tf.io.read_file(path)), (8, 8)), label
data = tf.data.Dataset.from_tensor_slices((paths, [0, 1] * 16)).cache().map(load).batch(8)
build_model().fit(data, epochs=200, verbose=0)
> 800 x 600 pixels | 8 x 8 | `cache()` stands before anything is read
=== what fit gets at the top of a file: verify case.py:dataset
dataset = Data()
build_model().fit(dataset, epochs=100)
> was read as far as line | build_model().fit(dataset, epochs=100) | the same in both epochs | threads(workers=2
> processes(workers=2
=== everything at the top of a file: verify case.py:workload [exit 2]
dataset = Data()
build_model().fit(dataset, epochs=100)
workload = ap.wrap(dataset, model=build_model)
> if __name__ == '__main__': | fit
"""
PARTS = re.compile(
    r"^=== (.+): (\S+)(.*?)(?: \[(tensorflow)?(?:, )?(?:exit (\d))?\])?\n((?s:.*?))(?=^===|\Z)", re.MULTILINE
)


@pytest.mark.parametrize("case", PARTS.findall(CASES), ids=lambda case: case[0])
def test_the_important_thing_is_said(case: tuple[str, ...], tmp_path: Path) -> None:
    _, command, options, backend, status, text = case
    lines = text.splitlines()
    said, never = ([word for line in lines if line[0] == mark for word in line[2:].split(" | ")] for mark in "><")
    code = "\n".join(line for line in lines if line[0] not in "><")
    if "\ndataset = " in f"\n{code}" and "build_model" not in code:
        code += TAIL
    (tmp_path / "case.py").write_text(f"{HEAD}{'import tensorflow as tf' if backend else ''}\n{code}\n")
    line = [command, *options.split()] if options else [command, "--time", "3s", "case.py"]
    done = autopipe(*line, cwd=tmp_path, backend=backend or "jax", COLUMNS="1000")
    told = done.stdout + done.stderr
    assert said != []
    assert [words for words in said if words not in told] == [], told[-3000:]
    assert [words for words in never if words in told] == [], told[-3000:]
    assert done.returncode == int(status or 0), told[-3000:]
