"""The files of one shard: written under temporary names with running checksums, then put in place together.

Which samples a shard holds, and in which form, is decided by others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import google_crc32c
import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.hardware.atomic import PART_SUFFIX

_BUFFER_BYTES = 1 << 16  # a larger sample goes to the file without another copy
_CHECK_BYTES = 1 << 24


class FileRecord(pydantic.BaseModel):
    """A file of a shard: its name, size, and CRC-32C as 8 hexadecimal digits."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = pydantic.Field(pattern=r"^[a-z]+-[0-9]{5}\.[a-z.]+$")  # no way out of the folder
    bytes: int = pydantic.Field(ge=0)
    crc32c: str = pydantic.Field(pattern=r"^[0-9a-f]{8}$")

    def is_whole(self, folder: Path) -> bool:
        """Whether the file has its size."""
        try:
            return (folder / self.name).stat().st_size == self.bytes
        except OSError:
            return False

    def is_intact(self, folder: Path) -> bool:
        """Whether the file has its size and checksum. Reads all of it."""
        if not self.is_whole(folder):
            return False
        crc = 0
        with (folder / self.name).open("rb", buffering=0) as file:
            while chunk := file.read(_CHECK_BYTES):
                crc = google_crc32c.extend(crc, chunk)
        return f"{crc:08x}" == self.crc32c


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
    """The files of shard `number` in `folder`. Use as a context manager: all are put in place at its end, or none."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.number = number
        self.records: tuple[FileRecord, ...] = ()
        self._open: list[OutputFile] = []

    def create(self, name: Callable[[int], str]) -> OutputFile:
        """Begin the file that `name` gives for the shard's number."""
        file = OutputFile(self.folder / f"{name(self.number)}{PART_SUFFIX}")
        self._open.append(file)
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        failures = [failure for file in self._open if (failure := file.close()) is not None]
        if kind is not None or failures:
            for file in self._open:
                file.path.unlink(missing_ok=True)
            if kind is None:
                raise failures[0]
            return
        records = []
        for file in self._open:
            final = file.path.with_name(file.path.name.removesuffix(PART_SUFFIX))
            file.path.replace(final)
            records.append(FileRecord(name=final.name, bytes=file.size, crc32c=f"{file.crc:08x}"))
        self.records = tuple(records)
