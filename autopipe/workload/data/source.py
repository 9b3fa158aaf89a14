"""Optional facts and methods of any source, autopipe's own or a user's, with defaults for those that it lacks.

The protocol itself is `autopipe.workload.sample.Source`; the sources are the modules beside this one. The fields of a
sample are found by `autopipe.workload.ops.planner`, which may run ops, not here.
"""

from __future__ import annotations

import contextlib
import os
import re
import textwrap
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import DataError, PlainCodeError
from autopipe.workload.data.paths import spread
from autopipe.workload.plain_code import Library, Lines, PlainSource, names, through_python, unpacked
from autopipe.workload.sample import FieldKind, SampleSpec, Source, is_still_true, leaves

_UNKNOWN_TO_TENSORFLOW: Final = (".bmp", ".webp", ".tif", ".tiff")  # to `decode_jpeg`, which reads PNG and GIF, too
_PLAIN_READ: Final = '''

def read(source: Any, index: int) -> Any:
    """Return the parts of a sample side by side."""
{lines}
    return {made}
'''
# The keys of times in the digests of autopipe's own sources; another source's "exposure_time" describes the data.
_TIME_OF_FILES: Final = re.compile(r"(?:(?:x|y|sample_weight)(?:\.\S*)?_)?time|(?:mask_)?times")
Spans: TypeAlias = Callable[[NDArray[np.int64]], tuple[Any, ...]]
_FIRST: weakref.WeakKeyDictionary[Source, str] = weakref.WeakKeyDictionary()


class Around:
    """The base of a source that reads another one in its own way, and has all other attributes of that one."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getattr__(self, name: str) -> Any:
        if name == "source" or name.startswith("__"):  # of an object that is being unpickled
            raise AttributeError(name)
        return getattr(self.source, name)


class Subset(Around):
    """`count` samples of a source, or all if there are fewer, spread over the whole of it."""

    def __init__(self, source: Source, count: int) -> None:
        super().__init__(source)
        self._count = min(count, len(source))
        self._stride = len(source) // self._count

    def __len__(self) -> int:
        return self._count

    def read(self, index: int) -> Any:
        return self.source.read(self._place(index))

    def over(self, kept: Pieces) -> Subset:
        return Subset(over(self.source, kept), self._count)

    @property
    def spans(self) -> Spans | None:
        spans = spans_half(self.source)
        return None if spans is None else lambda indices: spans(self._place(indices))

    @property
    def block_starts(self) -> list[int] | None:
        if (whole := getattr(self.source, "block_starts", None)) is None:
            return None
        return sorted({at for at in (-(-start // self._stride) for start in whole) if at < self._count})

    def name(self, index: int) -> str:
        name = getattr(self.source, "name", None)
        return str(name(self._place(index))) if callable(name) else f"sample {self._place(index)}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        chosen = range(self._count) if indices is None else indices
        return files(self.source, [self._place(index) for index in chosen])

    def digest(self) -> str:
        return f"{first_digest(self.source)} subset={self._count}"

    def _place(self, index: Any) -> Any:
        return index * self._stride


def require_same_classes(training: Source, validation: Source) -> None:
    """Raise DataError if sources share names of classes, and one number is of two of them."""
    ours, theirs = (getattr(each, "class_numbers", {}) for each in (training, validation))
    taken = {*ours, *ours.values()}  # names and numbers
    other = next((name for name, number in theirs.items() if ours.get(name) != number and {name, number} & taken), None)
    if other is not None and ours.keys() & theirs.keys():
        known = f"is {ours[other]}" if other in ours else "is missing"
        raise DataError(
            f"A class must have the same number in training and validation, but `{other}` {known} in {training!r}, and "
            f"{theirs[other]} in {validation!r}: they are numbered in sorted order.",
            hint="Pass the same class_names=[...] to both, and make an empty folder for a class that one lacks. For "
            "ap.Table, write numbers to a column: frame[label].map({name: n for n, name in enumerate(data.classes)}).",
        )


# -------------------- pieces
# If a source cuts its samples anew in each epoch, out of larger pieces, the pieces can be kept, and not the samples.
# Such a source has three attributes: `pieces`, a source of arrays of one shape; `over(kept)`, which returns a source
# that cuts its samples out of kept pieces; and `some(count)`, which returns about so many samples and pieces.


class Pieces(Protocol):
    """Pieces that are kept somewhere."""

    def box(self, index: int, part: str, rows: slice, columns: slice) -> NDArray[Any]:
        """Return some rows and columns of a part of a piece, by its label; raise BadSampleError if that fails."""
        ...


def pieces(source: Source) -> Source | None:
    """Return the source of the larger pieces that are kept in place of samples; None if samples are kept."""
    found: Source | None = getattr(source, "pieces", None) if callable(getattr(source, "over", None)) else None
    return found


def over(source: Any, kept: Pieces) -> Source:
    """Return a source with pieces as it cuts its samples out of kept ones."""
    found: Source = source.over(kept)
    return found


def part(source: Any, count: int) -> Source:
    """Return about so many samples for a trial, out of about as many pieces."""
    if (whole := pieces(source)) is None:
        return Subset(source, count)
    some: Source = source.some(min(count, len(whole)))
    return some


# -------------------- facts


def files(source: Source, indices: Iterable[int] | None = None) -> list[str]:
    """Return the files on disks that hold the given samples (None: all), if the source names them."""
    lister = getattr(source, "files", None)
    return [os.fspath(path) for path in lister(indices)] if callable(lister) else []


def remote(source: Source) -> str | None:
    """Return the kind of URL of the samples, such as "s3"; None for files, memory, and sources without `remote`."""
    kind = getattr(source, "remote", None)
    return kind if isinstance(kind, str) else None


def digest(source: Source) -> str:
    """Return the source's own `digest()`, or else its type and length."""
    own = getattr(source, "digest", None)
    return str(own()) if callable(own) else f"type={type(source).__qualname__} count={len(source)}"


def first_digest(source: Source) -> str:
    """Return the source's digest at the first call in this process: finding it may read many files' metadata."""
    try:
        return _FIRST[source]
    except (KeyError, TypeError):  # TypeError: one that cannot be held weakly, or has no hash
        found = digest(source)
    with contextlib.suppress(TypeError):
        _FIRST[source] = found
    return found


def difference(old: str, new: str) -> str:
    """Name the parts of two digests ("key=value ...") that differ, such as "sizes, times"; empty if none does."""
    before, after = ({part.partition("=")[0]: part for part in text.split()} for text in (old, new))
    return ", ".join(key for key in (before | after) if before.get(key) != after.get(key))


def undated(digest: str) -> str:
    """Return a digest without the times of files: a copy of the data on another machine is the same data."""
    return " ".join(each for each in digest.split() if _TIME_OF_FILES.fullmatch(each.partition("=")[0]) is None)


def mean_bytes(source: Source) -> float:
    """Return the mean size of a sample as it is read: as the source says, or of the readable ones of four."""
    own = getattr(source, "mean_bytes", None)
    if callable(own):
        return float(own())
    values = []
    for index in spread(len(source), 4):
        with contextlib.suppress(Exception):
            values.append(source.read(index))
    return sum(map(sample_bytes, values)) / max(1, len(values))


def sample_bytes(value: Any) -> int:
    """Return the size of a sample as read."""
    slots = value if isinstance(value, tuple) else (value,)
    return sum(
        len(part) if isinstance(part, bytes | bytearray) else np.asarray(part).nbytes
        for slot in slots
        for part in leaves(slot)
        if part is not None
    )


def plain(source: Source, spec: SampleSpec, library: Library) -> PlainSource:
    """Return code that reads the samples: the source's own, or calls of `read`; raise PlainCodeError if none is."""
    if library == "tf" and any(field.kind is FieldKind.ENCODED for field in spec.fields):
        endings = {Path(path).suffix.lower() for path in files(source)}
        if found := sorted(endings & {*_UNKNOWN_TO_TENSORFLOW}):
            raise PlainCodeError(
                f"its samples are {' and '.join(found)} files, which TensorFlow's `decode_jpeg` does not read"
            )
    own = _beside_read(source, "plain")
    if callable(own) and (given := own(spec, library)) is not None:
        assert isinstance(given, PlainSource)
        return given
    if library == "np":
        return PlainSource(
            given={"source": source},
            opened="self._source = source",
            count="len(self._source)",
            taken="self._source, index",
            arguments=("source", "index"),
            reading=unpacked(spec),
        )
    made = names(spec)
    read, functions = "source.read(int(index))", ""  # a database knows no number of NumPy's
    if spec.structure is not None:  # TensorFlow takes parts side by side
        read, lines = "read(source, int(index))", "\n".join(unpacked(spec))
        functions = _PLAIN_READ.format(lines=textwrap.indent(lines, "    "), made=", ".join(made))
    return PlainSource(
        given={"source": source},
        opened="tf.data.Dataset.range(len(source))",
        count="len(dataset)",
        taken="functools.partial(load, source)",
        arguments=("source", "index"),
        reading=through_python(f"lambda index: {read}", "index", made),
        functions=functions,
    )


def require_local(source: Source) -> None:
    """Raise PlainCodeError for remote samples: plain code for them would need more than a few lines."""
    if (kind := remote(source)) is not None:
        raise PlainCodeError(f"its samples are behind a URL ({kind}://); those on a disk can")


def plain_from_files(
    encoded: tuple[str, ...], parts: tuple[str, ...], library: Library, constants: Lines, functions: str
) -> PlainSource:
    """Return the plain source of samples that a function `samples()` lists, some parts of them as paths of files."""
    tensorflow = library == "tf"
    reader = "tf.io.read_file({})" if tensorflow else "Path({}).read_bytes()"
    reading = [f"{part} = {reader.format(part)}" for part in encoded]
    kept = [f"self._{part}" for part in parts]
    opened, taken = f"{', '.join(kept)} = samples()", ", ".join(f"{each}[index]" for each in kept)
    if len(parts) > 2:  # long lines
        kept, opened, taken = ["self._rows"], "self._rows = list(zip(*samples()))", "*self._rows[index]"
    return PlainSource(
        opened="tf.data.Dataset.from_tensor_slices(samples())" if tensorflow else opened,
        count="len(dataset)" if tensorflow else f"len({kept[0]})",
        taken="load" if tensorflow else taken,
        arguments=parts,
        reading=reading,
        constants=constants,
        functions=functions,
    )


def spans_half(source: Source) -> Spans | None:
    """Return the source's `spans`, which gives columns (x, y) of some samples: of encoded images and masks spans as
    `native.files_at` returns them, in place of the content, and of arrays `Rows`. None if the source has none, is
    behind a URL, or if a subclass or wrapper replaces `read`.
    """
    spans = _beside_read(source, "spans") if remote(source) is None else None
    return spans if callable(spans) else None


def _beside_read(source: Source, method: str) -> Any:
    """Return a method, unless a class below that of the method, or a wrapper around it, has its own `read`."""
    is_own = method in getattr(source, "__dict__", {}) or is_still_true(type(source), (method,), ("read",))
    return getattr(source, method, None) if is_own else None
