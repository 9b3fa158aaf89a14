"""The files of one shard: written under temporary names with running checksums, then put in place together.

Which samples a shard holds, and in which form, is decided by others.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import google_crc32c
import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.hardware.atomic import PART_SUFFIX
from autopipe.pipeline.storage.place import Place, RemotePath, chunks

_BUFFER_BYTES = 1 << 16  # a larger sample goes to the file without another copy


class FileRecord(pydantic.BaseModel):
    """A file of a shard: its name, size, and CRC-32C as 8 hexadecimal digits."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = pydantic.Field(pattern=r"^[a-z]+-[0-9]{5}\.[a-z.]+$")  # no way out of the folder
    bytes: int = pydantic.Field(ge=0)
    crc32c: str = pydantic.Field(pattern=r"^[0-9a-f]{8}$")

    def is_whole(self, sizes: Mapping[str, int]) -> bool:
        """Whether the file has its size, by the sizes of those in its folder."""
        return sizes.get(self.name) == self.bytes

    def is_intact(self, folder: Place) -> bool:
        """Whether the file has its size and checksum. Reads all of it."""
        crc, size = 0, 0
        try:
            for chunk in chunks(folder / self.name):
                crc, size = google_crc32c.extend(crc, chunk), size + len(chunk)
        except FileNotFoundError:
            return False
        return size == self.bytes and f"{crc:08x}" == self.crc32c


class OutputFile:
    """A file that is being written, with its size and checksum so far."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=_BUFFER_BYTES)
        self.path = path
        self.size = 0
        self.crc = 0

    def write(self, data: bytes | NDArray[Any]) -> int:
        """Append bytes, or the content of a C-contiguous array."""
        # The checksum's library takes no memoryview, but any array.
        flat = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data.reshape(-1).view(np.uint8)
        self._file.write(flat.data)
        self.crc = google_crc32c.extend(self.crc, flat)
        self.size += flat.nbytes
        return flat.nbytes

    def close(self) -> OSError | None:
        """Hand the rest to the operating system; return the error if it does not take it, a full disk say."""
        try:
            self._file.close()
        except OSError as error:
            return error
        return None


class ShardFiles:
    """The files of shard `number` in `folder`. Use as a context manager: all are put in place at its end, or none.

    Those of a set behind a URL are written to a temporary folder, and sent when they are whole.
    """

    def __init__(self, folder: Place, number: int) -> None:
        self.folder = folder
        self._temporary = tempfile.TemporaryDirectory(prefix="autopipe-") if isinstance(folder, RemotePath) else None
        self._beside = folder if isinstance(folder, Path) else Path(cast(Any, self._temporary).name)
        self.number = number
        self.records: tuple[FileRecord, ...] = ()
        self._open: list[OutputFile] = []

    def create(self, name: Callable[[int], str]) -> OutputFile:
        """Begin the file that `name` gives for the shard's number."""
        file = OutputFile(self._beside / f"{name(self.number)}{PART_SUFFIX}")
        self._open.append(file)
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.nullcontext() if self._temporary is None else self._temporary:
            self._end(kind)

    def _end(self, kind: type[BaseException] | None) -> None:
        failures = [failure for file in self._open if (failure := file.close()) is not None]
        if kind is not None or failures:
            for file in self._open:
                file.path.unlink(missing_ok=True)
            if kind is None:
                raise failures[0]
            return
        records = []
        for file in self._open:
            name = file.path.name.removesuffix(PART_SUFFIX)
            if isinstance(self.folder, RemotePath):
                (self.folder / name).upload(file.path)
            else:
                file.path.replace(self.folder / name)
            records.append(FileRecord(name=name, bytes=file.size, crc32c=f"{file.crc:08x}"))
        self.records = tuple(records)
