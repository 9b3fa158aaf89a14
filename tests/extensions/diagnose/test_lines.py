"""`autopipe diagnose` names the slow line of scripts in which one line was made slow, however they feed Keras."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import cv2
import numpy as np
import pytest

from autopipe.extensions.diagnose.watched import Watched
from tests.fakes.commands import autopipe, succeeded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HEAD = """
import threading
import time

import cv2
import keras
import numpy as np

y = np.zeros((4,), "int32")
model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
path = "image.png"
large = np.random.default_rng(0).integers(0, 256, (1000, 1000, 3), "uint8")
"""

FORMS = {
    "PyDataset": """
class Data(keras.utils.PyDataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return np.stack([np.resize(small(), (8, 8, 3)) for _ in range(4)]).astype("float32"), y

model.fit(Data(workers=WORKERS, use_multiprocessing=FORKS, max_queue_size=2), verbose=0)
""",
    "generator": """
def batches():
    while True:
        yield np.stack([np.resize(small(), (8, 8, 3)) for _ in range(4)]).astype("float32"), y

model.fit(batches(), steps_per_epoch=16, verbose=0)
""",
    "from_generator": """
import tensorflow as tf

def batches():
    for _ in range(16):
        yield np.stack([np.resize(small(), (8, 8, 3)) for _ in range(4)]).astype("float32"), y

signature = (tf.TensorSpec((4, 8, 8, 3), tf.float32), tf.TensorSpec((4,), tf.int32))
model.fit(tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(1), verbose=0)
""",
    "numpy_function": """
import tensorflow as tf

def sample(index):
    return np.resize(small(), (8, 8, 3)).astype("float32")

def load(index):
    image = tf.numpy_function(sample, [index], tf.float32)
    image.set_shape((8, 8, 3))
    return image, 0

model.fit(tf.data.Dataset.range(4 * 16).map(load, num_parallel_calls=2).batch(4).prefetch(1), verbose=0)
""",
}


@dataclasses.dataclass(frozen=True)
class Slow:
    """A function `small` of a script; its slow line ends with `# slow`."""

    code: str
    form: str
    waits: bool = False  # for most of its time
    workers: int = 1
    forks: bool = False


SCRIPTS = {
    "imread": Slow(
        """
def small():
    image = cv2.imread(path)  # slow
    return cv2.resize(image, (8, 8))
""",
        "PyDataset",
    ),
    "colours of a large array": Slow(
        """
def small():
    grey = [cv2.cvtColor(large, cv2.COLOR_RGB2LAB) for _ in range(4)]  # slow
    return grey[0][::125, ::125]
""",
        "PyDataset",
        workers=4,
    ),
    "a mask compared with colours": Slow(
        """
colours = [(number, 0, 0) for number in range(12)]

def small():
    mask = large[:400, :400]
    found = []
    for colour in colours:
        found.append((mask == colour).all(axis=-1))  # slow
    return found[0][:8, :8, None]
""",
        "PyDataset",
        workers=2,
        forks=True,
    ),
    "a loop in Python": Slow(
        """
def small():
    total = 0
    total = sum(number % 7 for number in range(200_000))  # slow
    return np.full((8, 8, 3), total % 256)
""",
        "generator",
    ),
    "a read that takes long": Slow(
        """
def small():
    time.sleep(0.02)  # slow
    return large[:8, :8]
""",
        "numpy_function",
        True,
    ),
    "np.resize": Slow(
        """
def small():
    tiled = np.resize(large, (5000, 4000, 3))  # slow
    return tiled[:8, :8]
""",
        "from_generator",
    ),
    "a lock that another thread gives back": Slow(
        """
taken = threading.Lock()  # by each sample, and given back every 20 ms: no thread can take it twice in a row

def gives_back():
    while True:
        time.sleep(0.02)
        if taken.locked():
            taken.release()

threading.Thread(target=gives_back, daemon=True).start()

def small():
    taken.acquire()  # slow
    return large[:8, :8]
""",
        "PyDataset",
        True,
        workers=2,
    ),
}


@pytest.mark.parametrize(
    ("backend", "names"),
    [
        ("jax", ["a mask compared with colours", "imread", "colours of a large array"]),  # the first one forks
        ("jax", ["a loop in Python", "a lock that another thread gives back"]),
        ("tensorflow", ["a read that takes long", "np.resize"]),
    ],
)
def test_the_lines_that_were_made_slow_are_named(backend: str, names: list[str], tmp_path: Path) -> None:
    """Each `fit` of a script is looked at from its first step to its end."""
    slow = [SCRIPTS[name] for name in names]
    image = np.random.default_rng(0).integers(0, 256, (1500, 2000, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "image.png"), image)
    forms = (FORMS[each.form].replace("WORKERS", str(each.workers)).replace("FORKS", str(each.forks)) for each in slow)
    script = HEAD + "".join(each.code + form for each, form in zip(slow, forms, strict=True))
    (tmp_path / "train.py").write_text(script)
    done = autopipe("diagnose", "--json", "--keep-running", "--time", "999s", "train.py", cwd=tmp_path, backend=backend)
    told = succeeded(done).stdout.splitlines()
    for each, found in zip(slow, (Watched.model_validate_json(line).lines for line in told), strict=True):
        assert found is not None, each
        first = found.lines[0]
        assert script.splitlines()[first.line - 1].strip() == first.code
        assert f"{first.code}\n" in each.code, found
        assert first.code.endswith("# slow"), found
        assert (first.file, found.forked) == ("train.py", each.forks)
        assert not each.waits or first.processor_seconds < 0.5 * first.seconds, found
