"""The workload that `--images DIR --model NAME` stands for: a folder of images by class, and a model without code.

It is an ordinary workload in every way; only where it comes from is special.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from autopipe.artifact.schema import ImagesReference
from autopipe.workload.data.image_folder import ImageFolder
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.ops.values import Rescale
from autopipe.workload.workload import Workload


def workload_of(reference: ImagesReference, images: Path | str) -> Workload:
    """Return the workload of the images in a folder or behind a URL; `images` is where the reference leads.

    The model is built when it is needed, from `keras.applications` with random weights.

    Raises:
        DataError: the folder is not laid out in classes.
    """
    data = ImageFolder(images)
    size = reference.image_size
    return Workload(
        data=data,
        ops=[Decode(), Resize(size, size), RandomFlip(), Rescale(1 / 255)],
        batch_size=reference.batch_size,
        model=functools.partial(_build, reference.model, size, len(data.classes)),
        seed=reference.seed,
        converted=os.path.abspath("converted"),  # noqa: PTH100  no script writes it: where the command is run
    )


def _build(name: str, size: int, classes: int) -> Any:
    from autopipe.pipeline.devices import applications  # imports Keras

    return applications.build(name, size, classes)
