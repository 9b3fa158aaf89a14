"""Places of data: URLs as text, shown without secrets and opened in `remote`; and image files of a folder.

A million names are one `bytes` object and two arrays, because every worker process gets a copy. The meaning of the
files (classes, masks, columns) is the business of the sources beside this module; nothing here decodes an image.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import io
import itertools
import os
import re
import stat
import sys
import sysconfig
import types
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast
from urllib.parse import unquote

from autopipe.errors import AutopipeError, BadSampleError, DataError, near, printable, shortened, warn_of_data

# -------------------- URLs

Place: TypeAlias = str | os.PathLike[str]  # a path or a URL, as a user gives it

_URL = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]+)://")
_CHAIN = re.compile(r"^[a-z0-9+.-]+::")
_FLATTENED = re.compile(r"^(abfss?|adl|az|ftp|gc?s|hdfs|https?|memory|oci|s3a?|sftp|webhdfs):/[^/]")
_USER = re.compile(r"^([a-z0-9+.-]+://)([^/@]*)@", re.IGNORECASE)
_QUERY = re.compile(r"\?[^\s'\"`>]*")
_SECRET_USER = re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]*@|(?<=http://)[^/@\s]+@|(?<=https://)[^/@\s]+@")


def is_url(place: Place | bytes) -> bool:
    """Return True if a place is a URL, and not a path."""
    return _URL.match(os.fsencode(place)) is not None


def scheme(url: str | bytes) -> str:
    """Return the scheme of a URL: "s3", "gs", "https", ..."""
    found = _URL.match(os.fsencode(url))
    assert found is not None
    return found[1].decode().lower()


def located(place: Place, *, warns: bool = True) -> str:
    """Return a place named in a script: a URL without last slashes, or an absolute path, from the script's folder
    (`RULE`), or the working directory, with a warning, if only that has it. Raise DataError for passwords, chains and
    Paths of URLs.
    """
    require_text(place)
    text = os.fspath(place)
    if _CHAIN.match(text) and "://" in text:
        raise DataError(
            f"Chains of URLs, such as `{_CHAIN.findall(text)[0]}...`, are not supported.", hint="Pass one plain URL."
        )
    if not is_url(text):
        return _found(text, os.path.lexists, lambda folder: folder, warns=warns)
    if scheme(text) in ("file", "local"):
        return unquote(text.partition("://")[2]) or "/"
    require_no_password(text)
    return text.rstrip("/")


def require_text(place: Place) -> None:
    """Raise DataError for what is neither text nor a Path, and for a URL that lost a slash as it was made a Path."""
    if not isinstance(place, str | os.PathLike):
        raise DataError(
            f"A path or a URL must be text or a pathlib.Path, but got {shortened(place)}.",
            hint='Write the table to a file: frame.to_csv("labels.csv", index=False).'
            if hasattr(place, "to_csv")
            else None,
        )
    if not isinstance(place, str) and _FLATTENED.match(os.fspath(place)):
        raise DataError(f"URLs must be passed as text, but got {place!r}: a Path has no `//`.", hint="Pass a string.")


def require_no_password(url: str) -> None:
    """Raise DataError, which does not repeat the secret, for a password in a URL, or a user in one of a web server."""
    if (user := _USER.match(url)) is not None and (":" in user[2] or user[1].lower().startswith("http")):
        raise DataError(
            f"A URL must not hold a user name or password, but the one of `{shown(url)}` does.",
            hint="Put credentials in environment variables or in the configuration file of the service that stores the "
            "data, such as ~/.aws/credentials.",
        )


def shown(place: str | bytes) -> str:
    """Return a place for people: a URL without its user and its query, which holds the signature of a signed one."""
    text = os.fsdecode(place)
    return scrubbed(text) if is_url(place) else text


def scrubbed(text: str) -> str:
    """Return a text whose URLs have no users and queries."""
    return _SECRET_USER.sub("", _QUERY.sub("?…", text))


# -------------------- script
# A relative path of the user starts at the script that writes it, so that the command line, a trial's process, a
# spawned worker and `tuned_pipeline` find the same files. Every source calls this once and keeps absolute paths.

RULE: Final = "A relative path starts at the folder of the script that writes it; on a command line, where you are."

_PYTHONS = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_NOBODYS = tuple(f"{folder}/" for folder in (Path(__file__).parents[2], *_PYTHONS))


def located_pattern(pattern: Place) -> str:
    """Return the absolute pattern of a glob in a script, by the same rule."""

    def matches(absolute: str) -> bool:
        return next(glob.iglob(absolute, recursive=True), None) is not None  # noqa: PTH207

    return _found(os.fspath(pattern), matches, glob.escape)


def _found(text: str, is_there: Callable[[str], bool], as_prefix: Callable[[str], str], *, warns: bool = True) -> str:
    text = os.path.expanduser(text)  # noqa: PTH111  as a shell does
    if Path(text).is_absolute():
        return text
    here = os.path.join(as_prefix(os.getcwd()), text)  # noqa: PTH109, PTH118  links are not resolved
    script, level = _script()
    if script is None:
        return here
    beside = os.path.join(as_prefix(os.path.dirname(script)), text)  # noqa: PTH118, PTH120
    if beside == here or is_there(beside) or not is_there(here):
        return beside
    if warns:
        warn_of_data(
            f"`{text}` is not beside `{script}`, which names it, and was found in the working directory, "
            f"`{os.getcwd()}`."  # noqa: PTH109
            " From another one it will not be found: write its path from the script's folder, or an absolute one.",
            level=level,
        )
    return here


def _script() -> tuple[str | None, int]:
    """Return the file of the innermost caller in user code, None for a notebook; and its depth in the stack."""
    level, frame = 1, cast(types.FrameType | None, sys._getframe(1))
    while frame is not None:
        file = frame.f_globals.get("__file__")
        if isinstance(file, str):
            path = os.path.abspath(file)  # noqa: PTH100
            if not path.startswith(_NOBODYS):
                return path, level
        elif not frame.f_code.co_filename.startswith("<frozen "):  # those of Python's own import have no file either
            break
        level, frame = level + 1, frame.f_back
    return None, level


# -------------------- files

EXTENSIONS = ("jpg", "jpeg", "png", "bmp", "webp", "tif", "tiff")
SUFFIXES = tuple(b"." + extension.encode() for extension in EXTENSIONS)
OTHER_SUFFIXES = tuple(
    b"." + name
    for name in b"arw avif cr2 cr3 dcm dng exr gif heic heif jfif jp2 jpe jxl nef orf pgm ppm psd rw2 svg tga".split()
)
"""Of images, too, which are left out; Keras takes GIF files."""


class Found(NamedTuple):
    """A file of a listing, or an object behind a URL."""

    directory: bytes  # below the root ("" for the root)
    name: bytes
    size: int = -1  # of an object, if it is known
    tag: bytes = b""  # of an object: it changes with the content


PLAIN_ENDINGS = "ENDINGS = (" + ", ".join(f'".{extension}"' for extension in EXTENSIONS) + ")"
PLAIN_IMAGES_IN = '''
def images_in(folder: Path) -> list[str]:
    """Return the images below a folder; links are followed, each folder once."""
    found: list[str] = []
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        new = os.path.realpath(parent) not in seen
        seen.add(os.path.realpath(parent))
        folders[:] = sorted(name for name in folders if new and name[0] != ".")
        images = sorted(name for name in names if name.lower().endswith(ENDINGS) and name[0] != ".")
        found += [os.path.join(parent, name) for name in images if new]
    return found
'''
"""`images_in` as plain code, in the order in which `walk` finds images; it needs `PLAIN_ENDINGS`."""

_LIKE_A_FILE = re.compile(rb"\.(?:[a-z]{2,5}|[A-Z]{2,5})$")  # as "001.Albatross" and "set.v2" are not
_NOT_THE_FILES_FAULT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_STAT_AT_MOST = 10_000  # files; a stat costs 1 to 2 us on a local disk, up to 1 ms on a network one


class PathList:
    """Paths below one root, 12 bytes each and the file's own name; the root is made absolute, unless it is a URL."""

    remote: str | None = None  # the kind of URL of the files, such as "s3"; None for files on a disk

    def __init__(self, root: Place | bytes, entries: Iterable[Found | tuple[bytes, bytes]]) -> None:
        given = os.fsencode(root)
        self.root = given if is_url(given) else os.path.abspath(given)  # noqa: PTH100  bytes, and no resolving of links
        numbers, names, self._directory = dict[bytes, int](), list[bytes](), array("I")
        for entry in entries:
            directory, name = entry[:2]
            self._directory.append(numbers.setdefault(directory, len(numbers)))
            names.append(name)
        self.directories = tuple(numbers)
        self._names = b"".join(names)
        self._ends = array("Q", itertools.accumulate(map(len, names), initial=0))
        self._prefixes = tuple(_joined(self.root, directory) for directory in numbers)

    def __len__(self) -> int:
        return len(self._directory)

    def path(self, index: int) -> bytes:
        return self._prefixes[self._directory[index]] + self._names[self._ends[index] : self._ends[index + 1]]

    def text(self, index: int) -> str:
        return printable(os.fsdecode(self.path(index)))

    def read(self, index: int) -> bytes:
        return read_file(self.path(index))

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        return [os.fsdecode(self.path(index)) for index in (range(len(self)) if indices is None else indices)]

    def mean_bytes(self) -> float:
        sizes = [status.st_size for status in self._stats(256) if status is not None]
        return sum(sizes) / max(len(sizes), 1)

    def digest(self) -> str:
        """Describe files by names below the root, and sizes and times of 10,000 at most; none is read."""
        stats = [(-1, -1) if each is None else (each.st_size, each.st_mtime_ns) for each in self._stats(_STAT_AT_MOST)]
        sizes, times = (short_digest(array("q", [each[at] for each in stats]).tobytes()) for at in (0, 1))  # or of none
        return f"{self.names_digest()} sizes={sizes} times={times}"

    def names_digest(self) -> str:
        names = hashlib.sha256(b"\0".join((*self.directories, self._names)))
        names.update(self._directory.tobytes())
        names.update(self._ends.tobytes())
        return f"files={len(self)} names={names.hexdigest()[:12]}"

    def missing(self) -> tuple[int, list[int]]:
        """Check the files, as far as that is quick; return the number of checked files, and the missing ones."""
        looked = spread(len(self), _STAT_AT_MOST)
        return len(looked), [index for index in looked if not os.path.isfile(self.path(index))]  # noqa: PTH113

    def _stats(self, at_most: int) -> Iterator[os.stat_result | None]:
        for index in spread(len(self), at_most):
            try:
                yield os.stat(self.path(index))  # noqa: PTH116  no pathlib object a file
            except OSError:
                yield None


def cache_folder() -> Path:
    """Return the folder of the offset indexes."""
    base: str | Path | None = os.environ.get("XDG_CACHE_HOME")
    if not base:
        try:
            base = Path.home() / ".cache"
        except RuntimeError:  # neither HOME nor a name, as a container's user has it: runtimes say that it is the root
            base = "/.cache"
    return Path(base) / "autopipe" / "tfrecord"


def not_unpacked(file: str, folder: Path, error: OSError) -> DataError:
    """Return the error of a user's cache folder that cannot hold the content of a file."""
    return DataError(
        f"`{file}` cannot be unpacked into the cache folder `{folder}`: {error.strerror or error}.",
        hint="Set XDG_CACHE_HOME to a folder that can be written to and has room for the file's content.",
    )


def short_digest(content: bytes) -> str:
    """Return a digest of 12 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()[:12]


def spread(count: int, at_most: int) -> range | list[int]:
    """Return all of `range(count)`, or `at_most` of it evenly spread, first and last included."""
    if count <= at_most:
        return range(count)
    return [number * (count - 1) // (at_most - 1) for number in range(at_most)]


def read_file(path: bytes) -> bytes:
    """Return a file's content by one read; raise BadSampleError, or DataError if descriptors or memory ran out."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # to open a pipe would wait for its writer
        try:
            status = os.fstat(descriptor)
            require_regular(path, status)
            content = read_at(descriptor, status.st_size, 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unreadable(f"`{os.fsdecode(path)}`", error) from error
    if not content:
        raise BadSampleError(f"`{os.fsdecode(path)}` is empty (0 bytes).")
    return content


def has_run_out(error: BaseException | None) -> bool:
    """Return True for an error that a lack of file descriptors or memory has caused, and no file."""
    return error is not None and (getattr(error, "errno", 0) in _NOT_THE_FILES_FAULT or has_run_out(error.__cause__))


def unreadable(what: str, error: BaseException, why: str | None = None) -> DataError:
    """Return the error of a sample that cannot be read: a BadSampleError, unless the process `has_run_out`."""
    kind = DataError if has_run_out(error) else BadSampleError
    said = f"{getattr(error, 'strerror', None) or error}." if why is None else why
    return kind(f"{what} cannot be read: {said}")


def read_at(descriptor: int, count: int, start: int) -> bytes:
    """Return `count` bytes of a file from `start`, or fewer at its end: a single read may give less (FUSE, NFS)."""
    content = os.pread(descriptor, count, start)
    while len(content) < count and (more := os.pread(descriptor, count - len(content), start + len(content))):
        content += more
    return content


class Ranges(Protocol):
    """A file that is read by ranges."""

    apart: int  # bytes between two ranges that are read along with them, since another read would take longer

    @property
    def size(self) -> int: ...  # of the file now

    def read(self, start: int, count: int) -> bytes:
        """Return some bytes; raise BadSampleError if they cannot be read, or the file ends before."""
        ...


class OpenFile:
    """A file on a disk that stays open and is read by ranges, by many threads at once."""

    apart = 1 << 12  # what a disk reads at least

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor = os.open(path, os.O_RDONLY)

    @property
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def read(self, start: int, count: int) -> bytes:
        try:
            content = read_at(self.descriptor, count, start)
        except OSError as error:
            raise unreadable(f"`{self._path}`", error) from error
        if len(content) < count:
            raise BadSampleError(f"`{self._path}` is cut short: it ends before byte {start + count}.")
        return content

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # at exit, `os` may be gone before this is
        if hasattr(self, "descriptor"):
            close(self.descriptor)


class RangeIO(io.RawIOBase):
    """A file that is read by ranges, with a place, as libraries want it."""

    failure: AutopipeError | None = None  # the first error of a range; a library may have gone on without it

    def __init__(self, file: Ranges) -> None:
        self._file, self._size, self._at = file, file.size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, room: Any) -> int:
        count = max(0, min(len(room), self._size - self._at))
        try:
            content = self._file.read(self._at, count) if count else b""
        except AutopipeError as error:
            self.failure = self.failure or error
            raise
        room[: len(content)] = content
        self._at += len(content)
        return len(content)

    def buffered(self) -> io.BufferedReader:
        return io.BufferedReader(self, max(self._file.apart, io.DEFAULT_BUFFER_SIZE))


def require_regular(path: bytes, status: os.stat_result) -> None:
    """Raise BadSampleError for a folder, a pipe or a device; reading a named pipe would block for ever."""
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        kind = "folder" if stat.S_ISDIR(mode) else "named pipe" if stat.S_ISFIFO(mode) else "device"
        hint = "Name the files in it, or leave it out." if kind == "folder" else "Leave it out."
        raise BadSampleError(f"`{os.fsdecode(path)}` must be a regular file, but is a {kind}.", hint=hint)


def scan(directory: bytes, left_out: list[bytes] | None = None) -> tuple[list[bytes], list[bytes]]:
    """Return the sorted images and folders in a folder, without hidden ones; add other images to `left_out`."""
    images, folders, others = list[bytes](), list[bytes](), list[bytes]()
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(b"."):
                    continue
                if name.lower().endswith(SUFFIXES) and (entry.is_symlink() or entry.is_file()):
                    images.append(name)
                elif _is_folder(entry):
                    folders.append(name)
                elif left_out is not None and name.lower().endswith(OTHER_SUFFIXES):
                    others.append(name)
    except FileNotFoundError as error:
        missing, beside = Path(os.fsdecode(directory)), list[str]()
        with contextlib.suppress(OSError):
            beside += [each.name for each in missing.parent.iterdir() if each.is_dir()]
        said = f"The folder `{missing}` does not exist.{near(missing.name, beside)}"
        raise DataError(said, hint=RULE) from error
    except NotADirectoryError as error:
        raise DataError(
            f"`{os.fsdecode(directory)}` must be a folder, but is a file.", hint="An archive must be unpacked first."
        ) from error
    except OSError as error:
        raise DataError(f"The folder `{os.fsdecode(directory)}` cannot be read: {error.strerror}.") from error
    if left_out is not None and others:
        known = {name.rpartition(b".")[0] for name in images}  # a camera writes 1.CR2 beside 1.JPG
        left_out += [name for name in others if name.rpartition(b".")[0] not in known]
    return sorted(images), sorted(folders)


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link that leads to itself leads to no folder
            return False
        raise


def lost_links(directory: bytes) -> list[bytes]:
    """Return the sorted names of broken links in a folder that may have led to folders."""
    with os.scandir(directory) as entries:
        lost = [entry for entry in entries if entry.is_symlink() and not os.path.exists(entry.path)]  # noqa: PTH110
        called = {entry.name: (entry.name, os.readlink(entry.path)) for entry in lost}  # noqa: PTH115  bytes

    def is_file(name: bytes) -> bool:
        return name.lower().endswith(SUFFIXES) or _LIKE_A_FILE.search(name) is not None

    return sorted(name for name, both in called.items() if not name.startswith(b".") and not any(map(is_file, both)))


def walk(root: bytes, start: bytes = b"", left_out: list[bytes] | None = None) -> Iterator[Found]:
    """Yield every image below `root/start` in sorted order, each folder once; add other images to `left_out`."""
    seen: set[tuple[int, int]] = set()
    pending = [start]
    while pending:
        directory = pending.pop()
        full = _joined(root, directory)
        images, folders = scan(full, left_out)
        status = os.stat(full)  # noqa: PTH116
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for name in images:
            yield Found(directory, name)
        pending.extend(_joined(directory, folder)[:-1] for folder in reversed(folders))


def _joined(root: bytes, directory: bytes) -> bytes:
    """Return `root/directory/`; either may be empty, and an absolute directory or URL replaces the root."""
    if is_url(directory):
        return b"%s/" % directory.rstrip(b"/")
    return os.path.join(root, directory, b"")  # noqa: PTH118
