"""Labels that are whole numbers, as a user gives them for images or a table holds them: which are taken, as int64.

What else a label may be, and what it means, is the business of the sources beside this module.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autopipe.errors import DataError, shortened
from autopipe.workload.sample import is_int64


def checked_labels(labels: Any, count: int) -> list[int]:
    """Return the labels that were given for `count` images.

    Raises:
        DataError: they are more or fewer, or one is no whole number, or one that int64 does not hold.
    """
    is_one = isinstance(labels, np.ndarray) and labels.ndim == 0
    given: list[Any] = list(labels) if isinstance(labels, Iterable) and not is_one else [labels]
    if len(given) != count:
        raise DataError(f"`labels` must be one for each of the {count} images, but got {len(given)}.")
    if not all(isinstance(label, int | np.integer) and not isinstance(label, bool) for label in given):
        raise DataError(
            f"`labels` must be whole numbers, but got {shortened(labels)}.",
            hint="ap.Table reads other labels from a CSV file.",
        )
    found = [int(label) for label in given]
    for number, label in enumerate(found):
        if not is_int64(label):
            raise DataError(
                f"`labels` must be from -2**63 to 2**63 - 1, but that of image {number} is {label}.",
                hint="Number the classes from 0: names, labels = numpy.unique(labels, return_inverse=True).",
            )
    return found


def whole_numbers(texts: Sequence[str], column: str, rows: Sequence[int]) -> array[int]:
    """Return the labels that texts of whole numbers are; `rows` are those of the table's `column`, for messages.

    Raises:
        DataError: one is none that int64 holds.
    """
    try:
        return array("q", map(int, texts))
    except OverflowError:
        row, text = next((row, text) for row, text in zip(rows, texts, strict=True) if not is_int64(int(text)))
        raise DataError(
            f"Labels in the column `{column}` must be from -2**63 to 2**63 - 1, but row {row} has {shortened(text)}.",
            hint='label_mode="class" takes all of them as names of classes, label_mode="number" as float32 values.',
        ) from None
