"""Plain code that reads a `Table`: its CSV file by Python's `csv`, and each column as what it is in a sample."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from autopipe.workload.data import source
from autopipe.workload.plain_code import Lines, PlainSource, names, quoted
from autopipe.workload.sample import SampleSpec

_SAMPLES: Final = '''
def samples() -> Any:
    """Return the path of every image, and what else the rows of the table say of it."""
    with open(TABLE, newline="", encoding="utf-8-sig") as file:
        header, *lines = ([cell.strip() for cell in line] for line in csv.reader(file, delimiter={delimiter}))
    rows = [dict(zip(header, line)) for line in lines if any(line)]
    return {values}
'''


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """Which columns of a table make samples."""

    path: str  # with the images' paths
    label: str | Sequence[str] | None  # with the labels; or several, whose labels are a vector
    features: Sequence[str]  # of numbers that belong to the image
    sample_weight: str | None  # with the weights

    def plain(
        self,
        places: tuple[str, str, str],
        spec: SampleSpec,
        classes: Sequence[Any] | None,
        labels: str | None,
        *,
        tensorflow: bool,
    ) -> PlainSource:
        """Return how plain code gets at the samples.

        Args:
            places: the table, the folder that relative paths start from, and what separates the columns.
            spec: a sample as it is read.
            classes: the names of the classes where labels are texts; of several columns, one such for each.
            labels: the dtype of the labels.
            tensorflow: whether it is TensorFlow that reads the images.
        """
        table, folder, delimiter = places
        constants = [f"TABLE = {quoted(table)}", f"FOLDER = Path({quoted(folder)})"]
        values = [_each(f"str(FOLDER / {_cell(self.path)})")]
        if self.features:
            constants.append(f"FEATURES = {_listed(self.features)}")
            each = "[float(row[name]) for name in FEATURES]"
            values.append(f"np.array({_each(each)}, np.float32)")
        if self.label is not None and labels is not None:
            more, value = self._labels(classes, labels)
            constants += more
            values.append(value)
        if self.sample_weight is not None:
            values.append(_each(f"np.float32({_cell(self.sample_weight)})"))
        made = names(spec)
        shown = ", ".join(values)
        if len(values) > 2:
            shown = "(\n" + "".join(f"        {value},\n" for value in values) + "    )"
        return source.plain_from_files(
            made[:1],
            parts=made,
            tensorflow=tensorflow,
            constants=constants,
            functions=_SAMPLES.format(delimiter=quoted(delimiter), values=shown),
        )

    def _labels(self, classes: Sequence[Any] | None, dtype: str) -> tuple[Lines, str]:
        """Return the lines that name the classes, and the labels of all rows."""
        is_whole = dtype.startswith("int")
        if isinstance(self.label, str):
            if classes is not None:
                return [f"CLASSES = {_listed(classes)}"], _each(f"CLASSES.index({_cell(self.label)})")
            return [], _each(f"{'int' if is_whole else 'np.float32'}({_cell(self.label)})")
        constants, cells = [], []
        for number, (column, known) in enumerate(zip(self.label or (), classes or (), strict=True)):
            if known is not None:
                constants.append(f"CLASSES_{number} = {_listed(known)}")
                cells.append(f"CLASSES_{number}.index({_cell(column)})")
            else:
                cells.append(f"{'int' if is_whole else 'float'}({_cell(column)})")
        return constants, f"np.array({_each('[' + ', '.join(cells) + ']')}, np.{dtype})"


def _cell(column: str) -> str:
    return f"row[{quoted(column)}]"


def _each(value: str) -> str:
    return f"[{value} for row in rows]"


def _listed(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]"
