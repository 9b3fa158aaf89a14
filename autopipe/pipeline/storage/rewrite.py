"""Rewrites the progressive JPEG files of folders as baseline ones, into a folder of the same layout.

Other files are hard-linked, or copied to another disk. A file gets its name, and its original's time of change, when it
is complete, so the files themselves tell the next run where a killed one stopped. The samples of a workload are
written in another form by `convert`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import errno
import io
import itertools
import os
import shutil
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, ClassVar

from autopipe.errors import BadSampleError, ConfigError, DataError, StorageError, printable
from autopipe.hardware import machine, processes
from autopipe.hardware.disk import PART_SUFFIX
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.convert import Progress, disk_errors, require_room
from autopipe.workload.data import paths
from autopipe.workload.data.paths import spread
from autopipe.workload.ops import progressive

_RECORD = ".rewritten.json"  # hidden, as no image is
_GROUP = 64  # files that a thread takes at a time
_PROBES = 64
_GROWTH = 1.1  # a baseline file is some percent larger
_CLOCK_NS = 10**9  # the coarsest clock of usual file systems
_FULL = (errno.ENOSPC, errno.EDQUOT)


class _Record(layout.Sealed):
    """Marks a folder as one of rewritten files."""

    what: ClassVar[str] = "The record of rewritten files"

    schema_version: int = layout.SCHEMA_VERSION
    folders: tuple[str, ...]  # of the originals


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The result of `rewrite`."""

    folders: Mapping[str, str]  # what to read in place of each original folder
    rewritten: int  # how many files this run wrote as baseline ones
    others: int  # how many it linked or copied
    kept: int  # how many were there already
    left: tuple[str, ...]  # progressive files that could not be rewritten, and were linked or copied
    seconds: float  # how long it took


def rewrite(
    folders: Sequence[str], out: Path, *, workers: int | None = None, on_progress: Progress | None = None
) -> Rewritten:
    """Write the files of some folders into `out`, a new or empty folder or one of an earlier run: progressive JPEG
    files as baseline ones with the same pixels, all others as they are. Hidden files and folders are left out.

    Args:
        folders: absolute paths. Of several, the layout below the innermost folder that holds them all is kept.
        out: the folder for the files.
        workers: threads; None for one on each core.
        on_progress: is called with the number of files done and the total.

    Raises:
        ConfigError: `out` holds one of the folders, or lies in one; or no JPEG can be rewritten on this machine.
        DataError: a folder is missing or unreadable, or holds no files.
        BadSampleError: a file cannot be read. The finished ones stay.
        StorageError: `out` holds other files, another run is at work on it, or the disk is or becomes full. Finished
            files stay.
    """
    start = time.monotonic()
    out = Path(os.path.abspath(out))  # noqa: PTH100  links are not resolved
    _require_apart(folders, out)
    if (why := progressive.why_not()) is not None:
        raise ConfigError(f"No JPEG can be rewritten here: {why}.", hint=f"First {progressive.HOW_TO}.")
    base = os.path.commonpath(folders)
    files = _Files(base, out, sorted({name for folder in folders for name in _names(folder, base)}))
    if not files.names:
        raise DataError(f"There are no files in `{'`, `'.join(folders)}`.")
    layout.make_folder(out)
    processes.set_library_threads()  # for each of the workers
    processes.keep_freed_memory()
    with layout.only_one(out, (0, 1)):
        with disk_errors(out, lambda: "0 files"):
            _claim(out, tuple(map(printable, folders)))
            _clear(out, set(files.names))
        run = _Run(files)
        run.write(workers or machine.usable_cores(), on_progress)
    return Rewritten(
        folders={folder: str(out / os.path.relpath(folder, base)) for folder in folders},
        rewritten=len(run.rewritten),
        others=len(run.others),
        kept=run.kept,
        left=tuple(sorted(run.left)),
        seconds=time.monotonic() - start,
    )


def _require_apart(folders: Sequence[str], out: Path) -> None:
    there = os.path.realpath(out)
    for folder in folders:
        here = os.path.realpath(folder)
        shared = os.path.commonpath((here, there))
        if shared in (here, there):
            how = "must not be" if here == there else "must not lie in" if shared == here else "must not hold"
            raise ConfigError(
                f"The folder of the rewritten files {how} the one of the originals, but got `{out}` and `{folder}`.",
                hint="Choose a folder beside it.",
            )


def _names(folder: str, base: str) -> Iterator[str]:
    """Yield the paths of a folder's files, relative to `base`; links are followed, each folder once."""
    paths.scan(os.fsencode(folder))  # it is there and can be read

    def refuse(error: OSError) -> None:
        raise DataError(f"The folder `{error.filename}` cannot be read: {error.strerror}.") from error

    seen: set[tuple[int, int]] = set()
    for parent, below, names in os.walk(folder, followlinks=True, onerror=refuse):
        status = os.stat(parent)  # noqa: PTH116  no pathlib object a file
        if (status.st_dev, status.st_ino) in seen:
            below.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        below[:] = [name for name in below if not name.startswith(".")]
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118
            lost = _is_image(name) and os.path.islink(path)  # noqa: PTH114  # a source counts it, and fails to read it
            if not name.startswith(".") and (os.path.isfile(path) or lost):  # noqa: PTH113
                yield os.path.relpath(path, base)


def _is_image(name: str) -> bool:
    return os.fsencode(name.lower()).endswith(paths.SUFFIXES)


def _claim(out: Path, folders: tuple[str, ...]) -> None:
    """Mark a new or empty folder; raise StorageError for a folder of other files, or of other originals."""
    record = out / _RECORD
    if record.exists():
        of = _Record.load(record).folders
        if of != folders:
            raise StorageError(
                f"`{out}` holds the rewritten files of `{'`, `'.join(of)}`, not of `{'`, `'.join(folders)}`.",
                hint="Choose a new or empty folder.",
            )
        return
    foreign = sorted(each.name for each in out.iterdir() if not each.name.startswith("."))
    layout.require_empty(out, "the rewritten files", foreign)
    _Record(folders=folders).save(record)


def _clear(out: Path, names: set[str]) -> None:
    """Remove what killed runs left half written; raise StorageError for files that the originals have not, or not any
    more: they would be samples.
    """
    found = []
    for parent, _, files in os.walk(out):
        for name in files:
            path = os.path.join(parent, name)  # noqa: PTH118
            if name.startswith("."):
                if name.endswith(PART_SUFFIX):
                    os.unlink(path)  # noqa: PTH108
            elif os.path.relpath(path, out) not in names:
                found.append(path)
    if found:
        raise StorageError(
            f"`{out}` has {len(found)} files that are not among the originals; the first is `{min(found)}`.",
            hint="Remove them, or choose a new or empty folder.",
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Files:
    """The files that are rewritten, each by its path below both folders."""

    base: str
    out: Path
    names: list[str]

    def old(self, name: str) -> str:
        return os.path.join(self.base, name)  # noqa: PTH118

    def new(self, name: str) -> str:
        return os.path.join(self.out, name)  # noqa: PTH118

    def missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not self._is_done(name)]

    def _is_done(self, name: str) -> bool:
        """Return True if a file is there, and its original has not changed since."""
        try:
            old, new = os.stat(self.old(name)), os.stat(self.new(name))  # noqa: PTH116
        except OSError:
            return False
        return abs(old.st_mtime_ns - new.st_mtime_ns) < _CLOCK_NS and (new.st_size > 0 or old.st_size == 0)

    def status(self, name: str) -> os.stat_result:
        path = self.old(name)
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError as error:
            raise BadSampleError(f"`{path}` cannot be read: {error.strerror}.") from error
        paths.require_regular(os.fsencode(path), status)
        return status

    def progressive(self, name: str, status: os.stat_result) -> bytes | None:
        """Return the content of a file if it is a progressive JPEG."""
        if not _is_image(name) or status.st_size == 0:
            return None
        data = paths.read_file(os.fsencode(self.old(name)))
        return data if progressive.is_progressive(data) else None

    def needed(self, names: Sequence[str]) -> float:
        """Return the bytes that some of them will take, estimated from a few."""
        links = os.stat(self.base).st_dev == os.stat(self.out).st_dev  # noqa: PTH116
        probes = [names[place] for place in spread(len(names), _PROBES)]
        total = 0.0
        for name in probes:
            status = self.status(name)
            share = _GROWTH if self.progressive(name, status) is not None else 0.0 if links else 1.0
            total += share * status.st_size
        return total / max(1, len(probes)) * len(names)


class _Run:
    def __init__(self, files: _Files) -> None:
        self._files = files
        self._stop = threading.Event()
        self.kept = 0
        self.rewritten: list[str] = []  # names, as are the others
        self.others: list[str] = []
        self.left: list[str] = []

    @property
    def _done(self) -> int:
        return self.kept + len(self.rewritten) + len(self.others)

    def _so_far(self) -> str:
        return f"{self._done} of {len(self._files.names)} files. These are kept"

    def write(self, workers: int, on_progress: Progress | None) -> None:
        count = len(self._files.names)
        with concurrent.futures.ThreadPoolExecutor(workers, "autopipe-rewrite") as pool:
            missing = [name for group in pool.map(self._files.missing, _groups(self._files.names)) for name in group]
            self.kept = count - len(missing)
            if missing:
                require_room(self._files.out, self._files.needed(missing), "Free some, or choose another folder.")
            futures = [pool.submit(self._write, group) for group in _groups(missing)]
            try:
                for future in itertools.chain((None,), concurrent.futures.as_completed(futures)):
                    if future is not None:
                        future.result()
                    if on_progress is not None:
                        on_progress(self._done, count)
            except BaseException:  # also Ctrl-C: the threads end at the next file
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _write(self, names: Sequence[str]) -> None:
        for name in names:
            if self._stop.is_set():
                return
            self._one(name)

    def _one(self, name: str) -> None:
        files, made = self._files, None
        status = files.status(name)
        data = files.progressive(name, status)
        if data is not None and (made := progressive.rewritten(data)) is None:
            self.left.append(files.old(name))
        with disk_errors(files.out, self._so_far), _replacing(files.new(name)) as part:
            if made is None:
                _as_it_is(files.old(name), part, status)
            else:
                _copy(io.BytesIO(made), part, status)
        (self.others if made is None else self.rewritten).append(name)


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[str]:
    """Yield the path of a file that gets the name `path` when the block ends."""
    folder = os.path.dirname(path)  # noqa: PTH120
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    part = os.path.join(folder, f".{os.getpid()}-{threading.get_ident()}{PART_SUFFIX}")  # noqa: PTH118
    try:
        yield part
        os.replace(part, path)  # noqa: PTH105
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)  # noqa: PTH108


def _groups(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[first : first + _GROUP] for first in range(0, len(names), _GROUP)]


def _copy(source: BinaryIO, part: str, status: os.stat_result) -> None:
    """Write a file with the mode and the time of change of its original."""
    with open(part, "wb") as stream:
        shutil.copyfileobj(source, stream)
        stream.flush()  # else it would be changed later than told here
        os.fchmod(stream.fileno(), stat.S_IMODE(status.st_mode))
        os.utime(stream.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _as_it_is(path: str, part: str, status: os.stat_result) -> None:
    """Link a file, or copy it if it cannot be linked: on another disk, or if it belongs to another user."""
    try:
        os.link(os.path.realpath(path), part)
    except OSError as error:
        if error.errno in _FULL:
            raise
        with _opened(path) as source:
            _copy(source, part, status)


def _opened(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:  # not of the folder that is written to
        raise BadSampleError(f"`{path}` cannot be read: {error.strerror}.") from error
