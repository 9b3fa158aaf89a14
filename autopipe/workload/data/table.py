"""`Table`: images listed in a CSV file, with a label each. Only the listing is read; images stay files."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final, Literal, TextIO

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import BadSampleError, DataError, PlainCodeError, shortened, warn_of_data
from autopipe.workload.data import remote, source
from autopipe.workload.data.columns import missing_column
from autopipe.workload.data.images import Files
from autopipe.workload.data.paths import EXTENSIONS, Found, Place, is_url, located, short_digest, shown
from autopipe.workload.plain_code import Library, Lines, PlainSource, names, quoted
from autopipe.workload.sample import FieldKind, SampleSpec, is_int64

# -------------------- table code: it reads the CSV file by Python's `csv`

_SAMPLES: Final = '''
def samples() -> Any:
    """Return the path of every image, and what else the rows of the table say of it."""
    with open(TABLE, newline="", encoding="utf-8-sig") as file:
        header, *lines = ([cell.strip() for cell in line] for line in csv.reader(file, delimiter={delimiter}))
    rows = [dict(zip(header, line)) for line in lines if any(line)]
    return {values}
'''


def _listed(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]"


# -------------------- table labels

_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")  # Python reads no more than 4,300
_BETWEEN_NAMES = re.compile(r"[ ,;|]+")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+(,[0-9]+)?")
# Missing numbers as R, pandas, databases, Python and people write them, beside "nan".
_NO_VALUE = re.compile(r"<na>|n/?a|null|none|nil|\?|-", re.IGNORECASE)


def _as_labels(
    texts: list[str], mode: str, column: str, rows: Sequence[int]
) -> tuple[FieldKind, tuple[str, ...] | None, array[int] | NDArray[np.float32]]:
    if mode == "auto" and all(map(_INTEGER.fullmatch, texts)):
        try:
            return FieldKind.LABEL, None, array("q", map(int, texts))
        except OverflowError:
            row, text = next((row, text) for row, text in zip(rows, texts, strict=True) if not is_int64(int(text)))
            said = f"Labels in the column `{column}` must be from -2**63 to 2**63 - 1"
            hint = 'label_mode="class" takes all of them as names of classes, label_mode="number" as float32 values.'
            raise DataError(f"{said}, but row {row} has {shortened(text)}.", hint=hint) from None
    values = _as_numbers(texts) if mode != "class" else None
    if values is not None and np.isfinite(values).all():
        return FieldKind.ARRAY, None, values
    has_commas = (
        mode != "class"
        and any("," in text for text in texts)
        and all(_DECIMAL_COMMA.fullmatch(text) or _NO_VALUE.fullmatch(text) for text in texts)
    )
    if mode == "number" or has_commas or (values is not None and np.isfinite(values).any()):
        each = ((text, _as_numbers([text])) for text in texts)
        are_wrong = [
            "," in text if has_commas else value is None or not np.isfinite(value).all() for text, value in each
        ]
        row, text = next((row, text) for row, text, is_wrong in zip(rows, texts, are_wrong, strict=True) if is_wrong)
        otherwise = ' label_mode="class" takes all texts as names of classes.' if mode == "auto" else ""
        mend = "Write a point for the comma." if has_commas else "Give the row a number, or remove it."
        raise DataError(
            f"The column `{column}` must hold finite numbers, but row {row} has {shortened(text)}.",
            hint=f"{mend}{otherwise}",
        )
    classes = sorted(set(texts))
    if mode == "auto":
        _warn_of_several(classes, column)
    number = {name: label for label, name in enumerate(classes)}
    return FieldKind.LABEL, tuple(classes), array("q", (number[text] for text in texts))


def _warn_of_several(classes: Sequence[str], column: str) -> None:
    """Warn if some names of classes consist of others, so that each combination would be a class of its own."""
    several = [name for name in classes if len(re.split(_BETWEEN_NAMES, name)) > 1]
    if len(several) > 1 and {part for name in several for part in re.split(_BETWEEN_NAMES, name)} < {*classes}:
        between = re.findall(_BETWEEN_NAMES, several[0])[0]
        warn_of_data(
            f"`{several[0]}` in the column `{column}` looks like several classes, and counts as one. Columns "
            f'of 0 and 1 can be labels together, label=[...]: frame["{column}"].str.get_dummies("{between}") makes '
            'them. label_mode="class" says that it is one.',
            level=4,
        )


def _as_numbers(texts: list[str]) -> NDArray[np.float32] | None:
    try:
        values = np.array(["nan" if _NO_VALUE.fullmatch(text) else text for text in texts], np.float64)
    except ValueError:
        return None
    with np.errstate(over="ignore"):  # too large a number becomes infinite
        return values.astype(np.float32)


# -------------------- table


class Table(Files):
    """Images named in one column of a CSV file, labels in another.

    Labels that are all whole numbers are used as they are. If they are all numbers, y is a float32 value (regression).
    Otherwise each distinct text is a class, numbered in sorted order; numbers of which some are missing (nan, NA),
    infinite or written with decimal commas are refused. Of several columns, y is a vector of all of them: whole numbers
    if all columns are labels or classes, else float32.

    Args:
        csv: the file, or its URL; its first row names the columns, which are separated by commas, semicolons or tabs.
        path: the column with the images' paths, or URLs.
        label: the column with the labels, or several columns; None for images alone.
        features: columns of numbers that belong to the image, for a model with two inputs: x is then a dictionary of
            "image" and "features", a float32 vector.
        sample_weight: the column that weights each sample in the loss.
        label_mode: "number" for float32 values also if all of them are whole numbers; "class" for classes also if their
            names are numbers; "auto" decides by their form, as above.
        root: the folder or URL that relative paths start from; by default the one that holds the CSV file.

    Attributes:
        classes: the names of the classes if labels are texts, else None; of several columns, one such for each.
        remote: the kind of URL that the images are behind, such as "s3"; None for files on a disk.

    Raises:
        DataError: the file cannot be read, lacks a column or a number, or names images that are not there.

    Examples:
        >>> data = ap.Table("labels.csv", path="file", label="breed", root="images/")   # doctest: +SKIP
    """

    x_kind: Any = FieldKind.ENCODED

    def __init__(  # noqa: PLR0913  # each names columns of the one table
        self,
        csv: Place,
        *,
        path: str = "path",
        label: str | Sequence[str] | None = "label",
        label_mode: Literal["auto", "class", "number"] = "auto",
        features: Sequence[str] = (),
        sample_weight: str | None = None,
        root: Place | None = None,
    ) -> None:
        if label_mode not in ("auto", "class", "number"):
            raise DataError(f'`label_mode` must be "auto", "class" or "number", but got {label_mode!r}.')
        place = located(csv)
        self._place, self._csv = place, shown(place)
        names = () if label is None else (label,) if isinstance(label, str) else _names("label", label)
        if label is not None and not names:
            raise DataError("`label` must name a column, or several, but got an empty list.", hint="Pass label=None.")
        features = _names("features", features)
        for option, name in (("path", path), ("sample_weight", "" if sample_weight is None else sample_weight)):
            if not isinstance(name, str):
                raise DataError(f"`{option}` must be the name of a column, but got {shortened(name)}.")
        if sample_weight is not None and label is None:
            raise DataError(f"`sample_weight` weights the loss of a label, but got {sample_weight=}, {label=}.")
        more = (*features, *(() if sample_weight is None else (sample_weight,)))
        self._columns = path, names, more
        paths, columns, self._rows = _read_columns(place, path, (*names, *more))
        numbers = [
            np.asarray(_as_labels(texts, "number", name, self._rows)[2])
            for texts, name in zip(columns[len(names) :], more, strict=True)
        ]
        self._features = np.stack(numbers[: len(features)], axis=1) if features else None
        self._weights = numbers[-1] if sample_weight is not None else None
        if features:
            self.x_kind = {"image": FieldKind.ENCODED, "features": FieldKind.ARRAY}
        base = os.fsencode(located(os.path.dirname(place) if root is None else root))  # noqa: PTH120  it may be a URL
        self._lists = (remote.listed(base, [Found(*os.fsencode(text).rpartition(b"/")[::2]) for text in paths]),)
        self.y_kind: FieldKind | None = None
        self.classes: tuple[Any, ...] | None = None
        self._labels: array[int] | NDArray[Any] | None = None
        made = [_as_labels(texts, label_mode, name, self._rows) for texts, name in zip(columns, names, strict=False)]
        if isinstance(label, str):
            self.y_kind, self.classes, self._labels = made[0]
        elif names:
            self.y_kind, self.classes = FieldKind.ARRAY, tuple(classes for _, classes, _ in made)
            self._labels = np.stack([np.asarray(values) for *_, values in made], axis=1)
            if self._labels.dtype.kind == "f":
                self._labels = self._labels.astype(np.float32)
        self._require_files()
        self._warn_of_twins(paths)

    @property
    def class_numbers(self) -> dict[str, int]:
        is_vector = self.y_kind is FieldKind.ARRAY
        known = zip(self._columns[1], self.classes or (), strict=False) if is_vector else [("", self.classes)]
        return {f"{of} {name}".strip(): n for of, names in known for n, name in enumerate(names or ())}

    def __repr__(self) -> str:
        return f"Table({self._csv!r}: {len(self)} images)"

    def _values(self, index: int) -> tuple[Any, ...]:
        return tuple([column[index] for column in (self._labels, self._weights) if column is not None])

    def read(self, index: int) -> object:
        image, values = self._lists[0].read(index), self._values(index)
        x = image if self._features is None else {"image": image, "features": self._features[index]}
        return (x, *values) if values else x

    @property
    def spans(self) -> source.Spans | None:
        return None if self._columns[2] else self._spans

    def name(self, index: int) -> str:
        return f"{self._lists[0].text(index)} (row {self._rows[index]} of {self._csv})"

    def mean_bytes(self) -> float:
        labels = self._labels[0].nbytes if isinstance(self._labels, np.ndarray) and self._labels.ndim == 2 else 0
        return super().mean_bytes() + float(labels + (0 if self._features is None else self._features[0].nbytes))

    def digest(self) -> str:
        labels = b"" if self._labels is None else self._labels.tobytes()
        classes = "\0".join(map(str, self.classes or ())).encode()
        numbers = (("features", self._features), ("weights", self._weights))
        more = [f" {name}={short_digest(part.tobytes())}" for name, part in numbers if part is not None]
        return f"{self._lists[0].digest()} labels={short_digest(labels + classes)}{''.join(more)}"

    def plain(self, spec: SampleSpec, library: Library) -> PlainSource:
        source.require_local(self)
        if is_url(self._place):
            raise PlainCodeError("its table is behind a URL; one on a disk can be read")
        with _opened(self._place) as stream:
            delimiter = _delimiter(stream.readline())
        path, _, more = self._columns
        constants = [f"TABLE = {quoted(self._place)}", f"FOLDER = Path({quoted(os.fsdecode(self._lists[0].root))})"]
        values = [f"[str(FOLDER / row[{quoted(path)}]) for row in rows]"]
        if self._features is not None:
            constants.append(f"FEATURES = {_listed(more[: self._features.shape[1]])}")
            values.append("np.array([[float(row[name]) for name in FEATURES] for row in rows], np.float32)")
        if self._labels is not None:
            known, value = self._plain_labels(np.asarray(self._labels).dtype)
            constants += known
            values.append(value)
        if self._weights is not None:
            values.append(f"[np.float32(row[{quoted(more[-1])}]) for row in rows]")
        made = names(spec)
        shown = ", ".join(values)
        if len(values) > 2:
            shown = "(\n" + "".join(f"        {value},\n" for value in values) + "    )"
        functions = _SAMPLES.format(delimiter=quoted(delimiter), values=shown)
        return source.plain_from_files(made[:1], made, library, constants, functions)

    def _plain_labels(self, dtype: np.dtype[Any]) -> tuple[Lines, str]:
        is_vector = self.y_kind is FieldKind.ARRAY and self.classes is not None
        number = "int" if dtype.kind == "i" else "float" if is_vector else "np.float32"
        constants, cells = [], []
        classes = self.classes or () if is_vector else (self.classes,)
        for at, (column, known) in enumerate(zip(self._columns[1], classes, strict=True)):
            name = f"CLASSES_{at}" if is_vector else "CLASSES"
            constants += [] if known is None else [f"{name} = {_listed(known)}"]
            cells.append(f"{number if known is None else f'{name}.index'}(row[{quoted(column)}])")
        if not is_vector:
            return constants, f"[{cells[0]} for row in rows]"
        return constants, f"np.array([[{', '.join(cells)}] for row in rows], np.{dtype.name})"

    def _warn_of_twins(self, paths: Sequence[str]) -> None:
        """Warn of images that rows name with other classes, unless features or weights tell rows apart."""
        first, labels = dict[str, int](), np.asarray(self._labels)
        if labels.dtype.kind != "i" or self._columns[2] or len(set(paths)) == len(paths):
            return
        values = labels.tolist()
        if twins := [at for at, path in enumerate(paths) if values[first.setdefault(path, at)] != values[at]]:
            rows = (self._rows[at] for at in (first[paths[twins[0]]], twins[0]))
            warn_of_data(
                f"{len({paths[at] for at in twins})} images are named by several rows with other labels, such as "
                f"`{paths[twins[0]]}` by the rows {' and '.join(map(str, rows))}: each row is a sample of its own. "
                "If an image has several labels, write them as columns of one row, label=[...].",
                level=4,
            )

    def _require_files(self) -> None:
        looked, missing = self._lists[0].missing()
        if missing:
            shown = "; ".join(f"row {self._rows[index]}: {self._lists[0].text(index)}" for index in missing[:3])
            first, root = self._lists[0].text(missing[0]), os.fsdecode(self._lists[0].root)
            hint = f"Relative paths start at `{root}`; pass another as root=."
            if not first.startswith(root):
                hint = "root= changes relative paths only: if a folder was moved, write the paths relative to it."
            if len(missing) < looked:
                hint = f"Remove these rows, or bring the files back. {hint}"
            endings = (each for each in EXTENSIONS if self.remote is None and os.path.isfile(f"{first}.{each}"))  # noqa: PTH113
            if (ending := next(endings, None)) is not None:
                hint = f'Write names with their ending: frame["{self._columns[0]}"] + ".{ending}".'
            slashes = " Write `/` for the `\\` between folders." if "\\" in first else ""
            raise DataError(
                f"`{self._csv}` must name images that exist, but {len(missing)} of {looked} are missing: {shown}.",
                hint=f"{hint}{slashes}",
            )


def _names(option: str, given: Any) -> tuple[str, ...]:
    """Return the columns of a list. A dictionary is refused: it would be read as its keys."""
    listed = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping | Set)
    names = tuple(given) if listed else ()
    if not listed or not all(isinstance(name, str) for name in names):
        raise DataError(
            f"`{option}` must be {'the name of a column, or ' * (option == 'label')}a list of names of columns, "
            f"but got {shortened(given)}.",
            hint="Targets by name are for ap.HDF5, ap.Parquet, or an object of your own with `__len__` and `read(i)`."
            if option == "label"
            else None,
        )
    return names


def _read_columns(place: str, path: str, labels_in: tuple[str, ...]) -> tuple[list[str], list[list[str]], array[int]]:
    """Return the paths, the labels and the row numbers (the header is row 1)."""
    file, paths, rows = shown(place), list[str](), array("I")
    labels: list[list[str]] = [[] for _ in labels_in]
    try:
        with _opened(place) as stream:
            header_line = stream.readline()
            reader = csv.reader(stream, delimiter=_delimiter(header_line))
            header = [name.strip() for name in next(csv.reader([header_line], delimiter=_delimiter(header_line)), [])]
            wanted = [_position(header, name, file) for name in (path, *labels_in)]
            for cells in reader:
                if not any(map(str.strip, cells)):
                    continue
                row = reader.line_num + 1
                values = [cells[position].strip() if position < len(cells) else "" for position in wanted]
                _require_cells(values, (path, *labels_in), row, file)
                if any(map(str.strip, cells[len(header) :])):  # an unquoted separator has shifted the cells
                    raise DataError(
                        f"Row {row} of `{file}` must have a cell for each of the {len(header)} columns, but has "
                        f"{len(cells)}.",
                        hint="Put quotes around texts that hold the separator.",
                    )
                paths.append(values[0])
                for column, value in zip(labels, values[1:], strict=True):
                    column.append(value)
                rows.append(row)
    except BadSampleError as error:  # of a URL; a table is no sample
        raise DataError(f"The table {error.message}", hint=error.hint) from None
    except FileNotFoundError as error:
        raise DataError(f"The table `{file}` does not exist.") from error
    except OSError as error:
        raise DataError(f"The table `{file}` cannot be read: {error.strerror}.") from error
    except (csv.Error, UnicodeError) as error:
        raise DataError(f"`{file}` is no CSV file in UTF-8: {error}.", hint=_as_csv(file, error)) from error
    if not paths:
        raise DataError(f"`{file}` must have a header and at least one row, but names no image.")
    return paths, labels, rows


def _as_csv(file: str, error: Exception) -> str | None:
    if file.lower().endswith((".parquet", ".feather", ".xlsx", ".xls", ".json", ".jsonl", ".h5", ".pkl")):
        return 'Write a table of images and labels: pandas.DataFrame(...).to_csv("labels.csv", index=False).'
    if not isinstance(error, UnicodeDecodeError):
        return None
    is_wide = error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return f"Save it as UTF-8, say by `iconv -f {'utf-16' if is_wide else 'latin1'} -t utf-8`."


def _require_cells(values: list[str], columns: Sequence[str], row: int, file: str) -> None:
    if "" in values:
        hint = f"Fill in its column `{columns[values.index('')]}`, or remove the row."
        raise DataError(f"Row {row} of `{file}` must have a path and a label, but one of them is empty.", hint=hint)
    if "\0" in values[0]:
        said = f"Row {row} of `{file}` must name a file, but got {shortened(values[0])}."
        raise DataError(said, hint="Mend the row, or remove it.")


def _opened(place: str) -> TextIO:
    if is_url(place):
        return io.StringIO(remote.reader(place).read(place).decode("utf-8-sig"), newline="")
    return open(place, newline="", encoding="utf-8-sig")


def _delimiter(header: str) -> str:
    if re.match(r'\s*(\{|\[\s*([\[{"]|$))', header):  # and no `[path],[label]`
        raise csv.Error("it is JSON")
    return max(",;\t", key=header.count)


def _position(header: list[str], name: str, file: str) -> int:
    if name not in header:
        hint = 'Name the columns: ap.Table(csv, path="...", label="...").'
        if any(column.lower().endswith(EXTENSIONS) for column in header):
            hint = "The first row of the file must name its columns: write one, such as `path,label`."
        if len(header) == 1 and name in re.split(r"[\s|]+", header[0]):
            hint = "Separate cells by commas, semicolons or tabs."
        raise missing_column(name, header, f"`{file}`", "columns", hint)
    if header.count(name) > 1:
        raise DataError(
            f"`{file}` has {header.count(name)} columns named `{name}`.", hint="Rename all but one of them."
        )
    return header.index(name)
