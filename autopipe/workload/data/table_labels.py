"""What the labels of a `Table` are: whole numbers, numbers, or names of classes."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import DataError, shortened
from autopipe.workload.data.labels import whole_numbers
from autopipe.workload.sample import FieldKind

_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")  # Python reads no more than 4,300
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+(,[0-9]+)?")
# What R, pandas, databases and Python write beside "nan", and people where they know no number.
_NO_VALUE = re.compile(r"<na>|n/?a|null|none|nil|\?|-", re.IGNORECASE)


def as_labels(
    texts: list[str], mode: str, column: str, rows: Sequence[int]
) -> tuple[FieldKind, tuple[str, ...] | None, array[int] | NDArray[np.float32]]:
    """Return what the labels of a column are: whole numbers, numbers, or the classes that they name."""
    if mode == "auto" and all(map(_INTEGER.fullmatch, texts)):
        return FieldKind.LABEL, None, whole_numbers(texts, column, rows)
    values = _as_numbers(texts) if mode != "class" else None
    if values is not None and np.isfinite(values).all():
        return FieldKind.ARRAY, None, values
    has_commas = mode != "class" and _has_decimal_commas(texts)
    if mode == "number" or has_commas or (values is not None and np.isfinite(values).any()):
        row, text = next(
            (row, text)
            for row, text in zip(rows, texts, strict=True)
            if ("," in text if has_commas else not _is_number(text))
        )
        otherwise = ' label_mode="class" takes all texts as names of classes.' if mode == "auto" else ""
        mend = "Write a point for the comma." if has_commas else "Give the row a number, or remove it."
        raise DataError(
            f"The column `{column}` must hold finite numbers, but row {row} has {shortened(text)}.",
            hint=f"{mend}{otherwise}",
        )
    classes = sorted(set(texts))
    number = {name: label for label, name in enumerate(classes)}
    return FieldKind.LABEL, tuple(classes), array("q", (number[text] for text in texts))


def number_columns(columns: list[list[str]], names: Sequence[str], rows: Sequence[int]) -> NDArray[np.float32]:
    """Return some columns of numbers as the columns of an array."""
    made = [as_labels(texts, "number", name, rows)[2] for texts, name in zip(columns, names, strict=True)]
    return np.stack([np.asarray(values) for values in made], axis=1) if made else np.empty((0, 0), np.float32)


def _as_numbers(texts: list[str]) -> NDArray[np.float32] | None:
    """Return texts as numbers, NaN where one says that it is missing; None if there is another text."""
    try:
        values = np.array(["nan" if _NO_VALUE.fullmatch(text) else text for text in texts], np.float64)
    except ValueError:
        return None
    with np.errstate(over="ignore"):  # too large a number becomes infinite
        return values.astype(np.float32)


def _has_decimal_commas(texts: list[str]) -> bool:
    """Tell whether texts are numbers as spreadsheets write them in many languages: "0,5"."""
    return any("," in text for text in texts) and all(
        _DECIMAL_COMMA.fullmatch(text) or _NO_VALUE.fullmatch(text) for text in texts
    )


def _is_number(text: str) -> bool:
    value = _as_numbers([text])
    return value is not None and bool(np.isfinite(value).all())
