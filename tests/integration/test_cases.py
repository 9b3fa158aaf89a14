"""Small programs after problems that people report of their trainings: the command that ought to say the important
thing says it, by name and with its figures. How it is worded is not tested.
"""

import re
from pathlib import Path

import pytest

from autopipe.hardware import machine
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
=== an import that binds the process to one core: measure --time 1s case.py:workload
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
dataset = Data()
> `os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})` bound this process to 1 of its | gives them back
=== a slow validation behind a fast training: diagnose
class Slow(Data):
    def changed(self, images):
        threading.Event().wait(0.2)  # a disk
        return images
build_model().fit(x, y, batch_size=8, epochs=200, validation_data=Slow(), verbose=0)
> of an epoch is validation, which waits for its data | threading.Event().wait(0.2)  # a disk
< % of the time waits for data
=== a dataset that keeps what it has read: verify case.py:workload
class Remembering(Data):
    def __init__(self, **knobs):
        super().__init__(**knobs)
        self.seen = {}
    def changed(self, images):
        return self.seen.setdefault(images.tobytes(), images)
dataset = Remembering(workers=2, use_multiprocessing=True)
> `Remembering.seen` grows with the batches
=== a split behind a shuffle: verify case.py:workload [tensorflow, exit 1]
def make(prefetch=2):
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(96).take(72).batch(8).prefetch(prefetch)
dataset = make
> reshuffle_each_iteration=False | samples that the first had not
=== an endless dataset without steps: verify case.py:workload [exit 2]
class Endless(keras.utils.PyDataset):
    num_batches = None
    def __getitem__(self, index):
        return x[:8], y[:8]
dataset = Endless()
> steps=
=== an endless dataset with steps: verify case.py:workload
class Endless(keras.utils.PyDataset):
    num_batches = None
    def __getitem__(self, index):
        rows = np.random.default_rng(index).integers(0, 96, 8)
        return x[rows], y[rows]
workload = ap.wrap(Endless(), model=build_model, steps=6)
> 34 of its 48 samples are distinct
< fault
=== files of sixteen bits: verify --files case.py:workload
workload = of_photos(lambda path, number: cv2.imwrite(path + ".png", np.full((9, 9), 4000, "uint16")))
> 48 of 48 images have more than 8 bits
=== a loop of one's own over a dataset with workers: diagnose
class Slow(Data):
    def changed(self, images):
        threading.Event().wait(0.05)  # a disk
        return images
model, slow = build_model(), Slow(workers=2, use_multiprocessing=True)
for _ in range(200):
    for index in range(len(slow)):
        model.train_on_batch(*slow[index])  # read
> case.py: | only `fit` does | % of the time waits for data | workers=2, use_multiprocessing=True
=== a loop of JAX behind a look at a batch: diagnose
import jax
class Slow(Data):
    def changed(self, images):
        threading.Event().wait(0.05)  # a disk
        return images
slow = Slow()
weights = np.ones(slow[0][0].shape[-1:])
step = jax.jit(jax.grad(lambda weights, x: ((x.mean((1, 2)) @ weights) ** 2).mean()))
while True:
    for index in range(len(slow)):
        step(weights, slow[index][0])  # read
> case.py: | % of the time waits for data | threading.Event().wait(0.05)  # a disk
=== data that a strategy distributes: diagnose [tensorflow]
strategy = tf.distribute.MirroredStrategy(["/CPU:0"])
with strategy.scope():
    model = build_model()
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(8)
model.fit(strategy.distribute_datasets_from_function(lambda _: data), steps_per_epoch=12, epochs=200, verbose=0)
> tf.data.Dataset (tensorflow) | verdict
< error:
=== a loop whose steps are not compiled: diagnose [tensorflow]
model = build_model()
for images, labels in tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(8):
    with tf.GradientTape() as tape:
        loss = model.loss(labels, model(images, training=True))
    model.optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
> Steps run eagerly | @tf.function
=== data without a batch: diagnose [tensorflow, exit 3]
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(100, drop_remainder=True)
build_model().fit(data, epochs=2, verbose=0)
> `x` has no batches: drop_remainder=True
=== a validation generator without an end: diagnose [exit 3]
def batches():
    while True:
        yield x[:8], y[:8]
build_model().fit(batches(), steps_per_epoch=12, epochs=200, validation_data=batches(), verbose=0)
> batches of a generator | validation_steps=
=== numbers of Python in what tf.data traces: diagnose [tensorflow]
import random
def noisy(x, y):  # once
    return x + random.random(), y
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(96).map(noisy).batch(8)
build_model().fit(data, epochs=200, verbose=0)
> `noisy` (case.py: | tf.random.uniform
=== an iterator for each batch: diagnose [tensorflow]
def slow(x, y):
    return tf.image.resize(tf.image.resize(x, (300, 300)), (8, 8)), y
model, data = build_model(), tf.data.Dataset.from_tensor_slices((x, y)).map(slow).shuffle(96).batch(8)
for _ in range(1000):
    model.train_on_batch(*next(iter(data)))
> passes before its first batch | `next(iter(dataset))`
=== large batches between processes: diagnose
class Large(Data):
    def changed(self, images):
        return np.ones((8, 1000, 1000, 3), "float32")
dataset = Large(workers=2, use_multiprocessing=True, max_queue_size=2)
> through a pipe | use_multiprocessing=False
=== a generator that decodes what it skips: diagnose
png = cv2.imencode(".png", np.zeros((60, 60, 3), "uint8"))[1]
def make():
    kept = []
    for number in range(10**9):
        image = cv2.imdecode(png, cv2.IMREAD_COLOR)  # each
        if number % 19 >= 10:
            continue
        kept.append(image[:8, :8].astype("float32"))
        if len(kept) == 8:
            yield np.stack(kept), y[:8]
            kept.clear()
build_model().fit(make(), steps_per_epoch=1000, epochs=200, verbose=0)
> cv2.imdecode(png, cv2.IMREAD_COLOR)  # each` decodes
=== samples that are decoded and thrown away: diagnose [tensorflow]
png = cv2.imencode(".png", np.random.default_rng(1).integers(0, 256, (300, 300, 3), "uint8"))[1].tobytes()
def load(number, png):
    return tf.cast(tf.io.decode_png(png)[:8, :8], "float32"), tf.cast(number % 20 == 0, "int32")
def make(num_parallel_calls=2):
    data = tf.data.Dataset.from_tensors(png).repeat().enumerate().map(load, num_parallel_calls)
    data = data.rejection_resample(lambda x, y: y, [0.5, 0.5], [0.95, 0.05])
    return data.map(lambda _, sample: sample).batch(8).prefetch(2)
build_model().fit(make(), steps_per_epoch=10, epochs=200, verbose=0)
> of the samples that reach it | sample_from_datasets
=== a compressed chunk of 64 images for one: diagnose
import h5py
with h5py.File("images.h5", "w") as file:
    values = np.ones((256, 64, 64, 3), "uint8")
    file.create_dataset("images", data=values, chunks=(64, 64, 64, 3), compression="gzip")
class Cells(Data):
    def __init__(self, **knobs):
        super().__init__(**knobs)
        self.images = h5py.File("images.h5")["images"]
    def changed(self, images):
        return np.stack([self.images[37 * at % 256] for at in range(8)]).astype("float32")
dataset = Cells()
> np.stack([self.images[37 * at % 256] for at in range(8)]) | 40 times | chunks=(1, 64, 64, 3)
=== an open file that forked workers share: verify case.py:workload [exit 1]
import h5py
with h5py.File("images.h5", "a") as file:
    if "images" not in file:
        file["images"] = x
class Cells(Data):
    def __init__(self, **knobs):
        super().__init__(**knobs)
        self.images = h5py.File("images.h5")["images"]
dataset = Cells(workers=2, use_multiprocessing=True)
> `Cells.images` | share an open file | cannot be pickled | `__getitem__`
=== random numbers of an object that forked workers copy: verify case.py:workload [exit 1]
class Noise:
    def __init__(self):
        self.R = np.random.RandomState(7)
class Noisy(Data):
    noise = Noise()
    def changed(self, images):
        return images + self.noise.R.normal(0, 1, images.shape).astype("float32")
workload = ap.wrap(Noisy(workers=2, use_multiprocessing=True), model=build_model, parameters={"workers": [2]})
> copies of others, as the workers draw the same random numbers
< no random numbers repeat
=== a batch that sets the size of the next: verify case.py:workload [exit 1]
class Shrinking(Data):
    size = 8
    def __len__(self):
        return 13
    def __getitem__(self, index):
        if index == 12:
            self.size = 4
        rows = slice(7 * index, 7 * index + self.size)
        return x[rows], y[rows]
dataset = Shrinking()
> `Shrinking[0]` | `Shrinking[12]` | `size`
=== workers that wait, in short epochs: diagnose
class Remote(Data):
    def changed(self, images):
        threading.Event().wait(0.2)  # a server
        return images
dataset = Remote(workers=2)
> threading.Event().wait(0.2)  # a server | % of the time waits for data
< does not limit this training
=== files that are no images: diagnose [exit 3]
for number in range(96):
    cv2.imwrite(f"{number}.png", np.zeros((9, 9, 3), "uint8"))
open("77.png", "w").close()
class Files(Data):
    files = [f"{number}.png" for number in range(96)]
    def changed(self, images):
        return np.stack([cv2.imread(path) for path in self.files[-32:]]).astype("float32")
dataset = Files()
> 1 of 96 | 77.png | File "case.py"
< autopipe/extensions/
"""
PARTS = re.compile(
    r"^=== (.+): (\S+)(.*?)(?: \[(tensorflow)?(?:, )?(?:exit (\d))?\])?\n((?s:.*?))(?=^===|\Z)", re.MULTILINE
)


@pytest.mark.parametrize("case", PARTS.findall(CASES), ids=lambda case: case[0])
def test_the_important_thing_is_said(case: tuple[str, ...], tmp_path: Path) -> None:
    _, command, options, backend, status, text = case
    if "sched_setaffinity" in text and len(machine.allowed()) < 2:
        pytest.skip("there is one core only")
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
