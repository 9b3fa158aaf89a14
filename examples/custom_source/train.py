"""Feed a model from a source of your own: any object with `__len__` and `read(index)`.

    pip install '.[demo]'                                    # scikit-image, which the demo set is made of
    python examples/custom_source/make_demo.py               # a demo archive; or PHOTOS_TAR=/path/to/yours
    python examples/custom_source/train.py                   # trains with a configuration chosen by hand
    autopipe tune examples/custom_source/train.py:workload   # measures which configuration is fastest here

Here the samples are members of one tar archive, CLASS/NAME.jpg. `read` is called from many threads and, after pickling,
in other processes: so it keeps offsets, which pickle, instead of an open file with a position, which does not.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import autopipe as ap

PHOTOS_TAR = Path(os.environ.get("PHOTOS_TAR", Path(__file__).resolve().parent / "demo" / "photos.tar"))
SIZE = 160


class TarFolder:
    """Encoded images and labels out of an uncompressed tar archive with one folder per class."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path, "r:") as archive:
            files = sorted((member for member in archive if member.isfile()), key=lambda member: member.name)
        self.path = path
        self.classes = sorted({Path(file.name).parent.name for file in files})
        self._samples = [
            (file.name, file.offset_data, file.size, self.classes.index(Path(file.name).parent.name)) for file in files
        ]

    def __len__(self) -> int:
        return len(self._samples)

    def read(self, index: int) -> tuple[bytes, int]:
        """Return the bytes of an image file, for `ap.Decode` to decode, and the number of its class."""
        _, offset, size, label = self._samples[index]
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(size), label

    def name(self, index: int) -> str:
        """Return what messages call this sample. Optional."""
        return f"{self.path}:{self._samples[index][0]}"


data = TarFolder(PHOTOS_TAR)


def build_model() -> Any:
    """Return a small compiled CNN."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(16, 3, strides=4, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(len(data.classes), activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


workload = ap.Workload(
    data=data,
    ops=[ap.Decode(), ap.Resize(SIZE, SIZE), ap.RandomFlip(), ap.Rescale(1 / 255)],
    batch_size=32,
    model=build_model,
    seed=0,
)

if __name__ == "__main__":
    config = ap.PipelineConfig(loader=ap.Threads(workers=2, queue_size=8))
    ap.make_trainer(workload, config).fit(epochs=2)
