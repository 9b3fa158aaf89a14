"""Where a kept set lies: a folder on a disk, or a URL, with as much of a path's vocabulary as sets have use for.

An object behind a URL is whole or not there, so that nothing needs another name first. Failures to reach it are
`DataError`s of `data.remote`; what does not exist is a `FileNotFoundError`, as on a disk.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from autopipe.errors import BadSampleError
from autopipe.hardware import atomic
from autopipe.workload.data import remote
from autopipe.workload.data.records import cache_folder
from autopipe.workload.data.url import is_url, located, require_text, scheme, shown

_CHECK_BYTES = 1 << 24


@dataclasses.dataclass(frozen=True, repr=False)
class RemotePath:
    """A URL below which a set is kept, or of one of its files. It pickles, and holds no connection."""

    url: str  # as it was given, without a slash at its end

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __str__(self) -> str:
        return shown(self.url)

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """What comes after the last slash."""
        return self.url.rpartition("/")[2]

    @property
    def scheme(self) -> str:
        """The kind of URL, such as "s3"."""
        return scheme(self.url)

    def exists(self) -> bool:
        """Whether there is an object, or something below."""
        return bool(self._attempt(lambda system: _fresh(system).exists(self.url)))

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield what is directly below: nothing where nothing was written yet."""
        return (self / name for name in self.listed())

    def listed(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each thing directly below, by name, from one listing."""
        try:
            found = self._attempt(lambda system: _fresh(system).ls(self.url, detail=True))
        except BadSampleError:  # nothing is there
            return {}
        named = {str(info["name"]).rstrip("/").rpartition("/")[2]: info for info in found}
        return {name: info for name, info in named.items() if name and name != self.name}

    def read_bytes(self) -> bytes:
        """Return the content.

        Raises:
            FileNotFoundError: there is none.
        """
        try:
            return remote.reader(self.url).read(self.url)
        except BadSampleError as error:
            raise FileNotFoundError(2, "it does not exist or is empty", str(self)) from error

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the content as text."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes) -> None:
        """Write the content: whole or not at all."""
        self._attempt(lambda system: system.pipe_file(self.url, content), "written")

    def upload(self, file: Path) -> None:
        """Write the content of a file on a disk: whole or not at all."""
        self._attempt(lambda system: system.put_file(str(file), self.url), "written")

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object.

        Raises:
            FileNotFoundError: there is none, and `missing_ok` is not set.
        """
        if self.exists():
            self._attempt(lambda system: system.rm_file(self.url), "removed")
        elif not missing_ok:
            raise FileNotFoundError(2, "it does not exist", str(self))

    def _attempt(self, call: Callable[[Any], Any], done: str = "read") -> Any:
        return remote.reader(self.url).attempt(self.url, call, done)


Place: TypeAlias = Path | RemotePath


def place(where: str | Path | RemotePath) -> Place:
    """Return the folder that a path or URL stands for.

    Raises:
        DataError: it is a URL that cannot be used.
    """
    if isinstance(where, RemotePath):
        return where
    if is_url(where):
        text = located(where)
        return RemotePath(text) if is_url(text) else Path(text)
    require_text(where)
    return Path(where)


def sizes(folder: Place) -> dict[str, int]:
    """Return the sizes in bytes of the files directly in a folder, by name; empty where there is no folder."""
    if isinstance(folder, RemotePath):
        return {
            name: remote.size_and_tag(info)[0]
            for name, info in folder.listed().items()
            if info.get("type") != "directory"
        }
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    except OSError:
        return {}


def subfolders(folder: Place) -> list[Place]:
    """Return a folder and those directly in it, sorted; nothing where there is none."""
    if isinstance(folder, RemotePath):
        below = [name for name, info in sorted(folder.listed().items()) if info.get("type") == "directory"]
        return [folder, *(folder / name for name in below)]
    return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())] if folder.is_dir() else []


def chunks(file: Place) -> Iterator[bytes]:
    """Yield a file's content, some megabytes at a time."""
    if isinstance(file, RemotePath):
        yield file.read_bytes()  # a shard's file is of some 64 MB
        return
    with file.open("rb", buffering=0) as stream:
        while chunk := stream.read(_CHECK_BYTES):
            yield chunk


def write(file: Place, content: bytes) -> None:
    """Write a small file: whole or not at all."""
    if isinstance(file, RemotePath):
        file.write_bytes(content)
        return
    with atomic.replacing(file) as stream:
        stream.write(content)


def lock_file(folder: Place, name: str) -> Path:
    """Return a lock for a folder. That for a URL is on this machine, and known to this user's processes alone."""
    if isinstance(folder, Path):
        return folder / name
    locks = cache_folder().with_name("locks")
    locks.mkdir(parents=True, exist_ok=True)
    return locks / f"{hashlib.sha256(folder.url.encode()).hexdigest()[:16]}{name}"


def _fresh(system: Any) -> Any:
    system.invalidate_cache()
    return system
