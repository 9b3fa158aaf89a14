"""Small programs after problems that people report of their trainings: the command that ought to say the important
thing says it, by name and with its figures. How it is worded is not tested.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.fakes.commands import autopipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HEAD = """
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
"""
TAIL = """
if __name__ == "__main__":
    build_model().fit(dataset, epochs=200, verbose=0)
workload = ap.wrap(dataset, model=build_model, WRAPPED)
"""


@dataclasses.dataclass(frozen=True)
class Case:
    """A program, the command that is run on it, and what must be in what it prints."""

    command: str
    code: str
    said: list[str]
    never: list[str] = dataclasses.field(default_factory=list)
    status: int = 0
    wrapped: str = ""  # more arguments of `ap.wrap`


CASES = {
    "a compressed chunk of 64 images for one": Case(
        "diagnose",
        """
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
""",
        ["np.stack([self.images[37 * at % 256] for at in range(8)])", "40 times", "chunks=(1, 64, 64, 3)"],
    ),
    "an open file that forked workers share": Case(
        "verify",
        """
import h5py

with h5py.File("images.h5", "a") as file:
    if "images" not in file:
        file["images"] = x


class Cells(Data):
    def __init__(self, **knobs):
        super().__init__(**knobs)
        self.images = h5py.File("images.h5")["images"]

dataset = Cells(workers=2, use_multiprocessing=True)
""",
        ["`Cells.images`", "share an open file", "cannot be pickled", "`__getitem__`"],
        status=1,
    ),
    "random numbers of an object that forked workers copy": Case(
        "verify",
        """
class Noise:
    def __init__(self):
        self.R = np.random.RandomState(7)

class Noisy(Data):
    noise = Noise()

    def changed(self, images):
        return images + self.noise.R.normal(0, 1, images.shape).astype("float32")

dataset = Noisy(workers=2, use_multiprocessing=True)
""",
        ["copies of others, as the workers draw the same random numbers"],
        ["no random numbers repeat"],
        status=1,
        wrapped='parameters={"workers": [2]}',
    ),
    "a batch that sets the size of the next": Case(
        "verify",
        """
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
""",
        ["`Shrinking[0]`", "`Shrinking[12]`", "`size`"],
        status=1,
    ),
    "an endless dataset with steps": Case(
        "verify",
        """
class Endless(keras.utils.PyDataset):
    @property
    def num_batches(self):
        return None

    def __getitem__(self, index):
        rows = np.random.default_rng(index).integers(0, 96, 8)
        return x[rows], y[rows]

dataset = Endless()
""",
        ["34 of its 48 samples are distinct"],
        ["fault"],
        wrapped="steps=6",
    ),
    "workers that wait, in short epochs": Case(
        "diagnose",
        """
import threading


class Remote(Data):
    def changed(self, images):
        threading.Event().wait(0.2)  # a server
        return images

dataset = Remote(workers=2)
""",
        ["threading.Event().wait(0.2)  # a server", "% of the time waits for data"],
        ["does not limit this training"],
    ),
    "files that are no images": Case(
        "diagnose",
        """
for number in range(96):
    cv2.imwrite(f"{number}.png", np.zeros((9, 9, 3), "uint8"))
open("77.png", "w").close()


class Files(Data):
    def __init__(self):
        super().__init__()
        self.files = [f"{number}.png" for number in range(96)]

    def changed(self, images):
        return np.stack([cv2.imread(path) for path in self.files[-32:]]).astype("float32")

dataset = Files()
""",
        ["1 of 96", "77.png", 'File "case.py"'],
        ["autopipe/extensions/"],
        status=3,
    ),
    "everything at the top of a file": Case(
        "verify",
        """
dataset = Data()
build_model().fit(dataset, epochs=100)
""",
        ["if __name__ == '__main__':", "fit"],
        status=2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_important_thing_is_said(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    (tmp_path / "case.py").write_text(HEAD + case.code + TAIL.replace("WRAPPED", case.wrapped))
    place = ["--time", "3s", "case.py"] if case.command == "diagnose" else ["case.py:workload"]
    done = autopipe(case.command, *place, cwd=tmp_path, COLUMNS="1000")
    told = done.stdout + done.stderr
    assert [words for words in case.said if words not in told] == [], told[-3000:]
    assert [words for words in case.never if words in told] == [], told[-3000:]
    assert done.returncode == case.status, told[-3000:]
