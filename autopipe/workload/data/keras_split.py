"""The part of a folder's images that Keras's `image_dataset_from_directory` takes for training or for validation.

The same files for the same seed, so that a model goes on being judged by images that it has not seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autopipe.errors import DataError
from autopipe.workload.data.places import Found


def check_split(validation_split: float | None, subset: str | None) -> None:
    """Refuse arguments that do not say which part is meant.

    Raises:
        DataError: only one of both is given, or one is not possible.
    """
    if (validation_split is None) != (subset is None):
        raise DataError(
            "`validation_split` and `subset` must be given together, "
            f"but got validation_split={validation_split!r}, subset={subset!r}.",
            hint='Such as ap.ImageFolder("photos", validation_split=0.2, subset="training", seed=1).',
        )
    if validation_split is not None and not 0 < validation_split < 1:
        raise DataError(f"`validation_split` must be between 0 and 1, but got {validation_split!r}.")
    if subset not in (None, "training", "validation"):
        raise DataError(f'`subset` must be "training" or "validation", but got {subset!r}.')


def part_of(
    classes: Sequence[Sequence[Found]], validation_split: float, subset: str, seed: int | None
) -> list[list[int]]:
    """Return, for each class, which of its files belong to the part, in the order in which they were given.

    Keras lists the files by folder and name, shuffles all by NumPy's `RandomState(seed)`, and validates on the last.

    Args:
        classes: the files of each class, in the order of the classes.
        validation_split: share of the files that are for validation.
        subset: "training" or "validation".
        seed: None for Keras's `shuffle=False`: the last files, class by class.

    Raises:
        DataError: one of both parts would be empty.
    """
    order = [
        (label, number)
        for label, found in enumerate(classes)
        for number in sorted(range(len(found)), key=lambda number: found[number][:2])
    ]
    places = np.arange(len(order))
    if seed is not None:
        np.random.RandomState(seed).shuffle(places)
    count = int(validation_split * len(order))
    if not 0 < count < len(order):
        raise DataError(
            f"validation_split={validation_split!r} of {len(order)} images leaves none for training or for validation."
        )
    kept: list[list[int]] = [[] for _ in classes]
    for place in (places[:-count] if subset == "training" else places[-count:]).tolist():
        label, number = order[place]
        kept[label].append(number)
    return [sorted(numbers) for numbers in kept]
