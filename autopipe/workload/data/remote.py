"""Files behind a URL: listed once, in the order of a local folder, named compactly, read. `paths` has those on disks.

An installed package opens file systems and translates their failures: a `Reader`, in the entry point group
`autopipe.url_schemes`, with methods as fsspec's.
"""

from __future__ import annotations

import functools
import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeAlias, TypeVar

from autopipe import registry
from autopipe.errors import BadSampleError, ConfigError, DataError, warn_of_data
from autopipe.workload.data import paths
from autopipe.workload.data.paths import Found, PathList

Info: TypeAlias = dict[str, Any]  # fsspec's metadata of an object; its keys differ from one file system to the next

IMAGES_ARE = f"Images are files that end in {', '.join(paths.EXTENSIONS)}"
_ASK_AT_MOST = 256  # objects to ask about without a listing; each is a request
_NO_LISTING = ("http", "https")
_TAGS = ("ETag", "etag", "md5Hash", "md5", "Content-MD5", "content_md5", "LastModified", "last_modified", "updated")
_TIMES = ("mtime", "modified", "created")  # if a file system has nothing better
_AT_ONCE = 32  # requests for listings and sizes

T = TypeVar("T")
R = TypeVar("R")


class Reader(Protocol):
    """Opens URLs of one scheme, or of any. A module will do."""

    def read(self, url: str | bytes, start: int | None = None, end: int | None = None) -> bytes:
        """Return an object, or a part; raise BadSampleError if it lacks that, DataError if it cannot be read."""
        ...

    def attempt(self, url: str | bytes, call: Callable[[Any], T], done: str = "read") -> T:
        """Call with the file system of a URL; raise DataError if it cannot be `done`, as `read` does."""
        ...


def reader(url: str | bytes) -> Reader:
    """Return the reader that an installed package registers for this scheme; raise DataError if no package does."""
    return _reader(paths.scheme(url))


@functools.cache
def _reader(protocol: str) -> Reader:
    hint: str | None = None
    try:
        for name in (protocol, "any"):
            found: Reader | None = registry.named(name, "autopipe.url_schemes")
            if found is not None:
                return found
    except ConfigError as error:
        hint = error.hint
    raise DataError(f"No package that is installed reads URLs such as `{protocol}://`.", hint=hint)


class Object:
    """An object behind a URL that is read by ranges: each is a request, and there is no connection to keep."""

    apart = 1 << 16

    def __init__(self, url: str) -> None:
        self._url = url

    @functools.cached_property
    def size(self) -> int:
        info = reader(self._url).attempt(self._url, lambda system: system.info(self._url))
        if (size := size_and_tag(info)[0]) < 0:
            said = f"The server of `{paths.shown(self._url)}` does not say how large it is"
            hint = "Copy it to a disk, or to a server that sends a Content-Length."
            raise DataError(f"{said}, which is needed to read a part.", hint=hint)
        return size

    def read(self, start: int, count: int) -> bytes:
        """As `Ranges.read`; also raise DataError if the server does not send them."""
        content = reader(self._url).read(self._url, start, start + count)
        if len(content) != count:
            raise BadSampleError(f"`{paths.shown(self._url)}` is cut short: it has no {count} bytes at byte {start}.")
        return content


class ObjectList(PathList):
    """URLs, 20 bytes each and the object's own name. A pickle holds them and no connection."""

    def __init__(self, root: str | bytes, objects: Iterable[Found]) -> None:
        self._sizes = array("q")
        tags = hashlib.sha256()

        def entries() -> Iterator[tuple[bytes, bytes]]:
            for directory, name, size, tag in objects:
                self._sizes.append(size)
                tags.update(tag + b"\0")
                yield directory, name

        super().__init__(root, entries())
        self._tags = tags.hexdigest()[:12]
        self.remote = paths.scheme(self._prefixes[0])
        for prefix in self._prefixes:
            if not paths.is_url(prefix):
                raise DataError(
                    f"All files must be URLs where some are, but `{os.fsdecode(prefix)}` is a folder.",
                    hint="Write URLs throughout, or paths that are relative to a root= that is a URL.",
                )
            paths.require_no_password(os.fsdecode(prefix))

    def text(self, index: int) -> str:
        return paths.shown(self.path(index))

    def read(self, index: int) -> bytes:
        url = self.path(index)
        content = reader(url).read(url, start=0)
        if (expected := self._sizes[index]) not in (-1, len(content)):
            raise BadSampleError(
                f"`{self.text(index)}` has changed since it was listed: {len(content)} bytes came, not {expected}."
            )
        return content

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        return []  # none is on a disk

    def mean_bytes(self) -> float:
        known = [size for size in self._sizes if size >= 0]
        return sum(known) / max(len(known), 1)

    def digest(self) -> str:
        return f"{self.names_digest()} sizes={paths.short_digest(self._sizes.tobytes())} tags={self._tags}"

    def missing(self) -> tuple[int, list[int]]:
        """Ask about some objects, spread over the list; note their sizes and tags, and return the missing ones."""
        looked, missing, tags = list(paths.spread(len(self), _ASK_AT_MOST)), list[int](), hashlib.sha256()
        infos = at_once(_info, [self.path(index) for index in looked])
        for index, info in zip(looked, infos, strict=True):
            if info is None:
                missing.append(index)
            else:
                self._sizes[index], tag = size_and_tag(info)
                tags.update(tag + b"\0")
        self._tags = tags.hexdigest()[:12]
        return len(looked), missing


def scan(root: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the sorted images and folders directly in a folder or below a URL, without hidden ones."""
    if not paths.is_url(root):
        return paths.scan(root)
    _require_listing(root)
    images, folders = list[bytes](), set[bytes]()
    for info in _listed(root, lambda system: fresh(system).ls(os.fsdecode(root), detail=True)):
        if not (name := os.fsencode(str(info["name"]).rstrip("/").rpartition("/")[2])) or name.startswith(b"."):
            continue
        if info.get("type") == "directory":
            folders.add(name)
        elif name.lower().endswith(paths.SUFFIXES):
            images.append(name)
    return sorted(images), sorted(folders)


def walk(root: bytes, folders: list[bytes]) -> Sequence[Sequence[Found]]:
    """Return the images below each of `folders`, folder by folder in sorted order; warn of other images."""
    left_out: list[bytes] = []
    if not paths.is_url(root):
        found: Sequence[Sequence[Found]] = [list(paths.walk(root, each, left_out)) for each in folders]
    else:
        _require_listing(root)
        reader(root).attempt(root, fresh)
        try:
            found = list(at_once(lambda folder: _below(root, folder, left_out), folders))
        finally:
            reader(root).attempt(root, fresh)  # lets go of fsspec's own copy, which takes some hundred bytes an object
    if left_out:
        endings = sorted({f".{os.fsdecode(name).rpartition('.')[2].lower()}" for name in left_out})
        warn_of_data(
            f"{len(left_out)} {'file' if len(left_out) == 1 else 'files'} below `{paths.shown(root)}` "
            f"{'is' if len(left_out) == 1 else 'are'} left out ({', '.join(endings)}). {IMAGES_ARE}.",
            level=4,
        )
    return found


def listed(root: bytes, found: Sequence[Found]) -> PathList:
    """Return the list of files below `root`; raise DataError if some are URLs and others are paths."""
    if paths.is_url(root) or any(map(paths.is_url, {each[0] for each in found})):
        return ObjectList(root, found)
    return PathList(root, found)


def _below(root: bytes, start: bytes, left_out: list[bytes]) -> list[Found]:
    url = os.fsdecode(root if not start else b"%s/%s" % (root, start))
    inside = "" if not start else f"{os.fsdecode(start)}/"

    def found(system: Any) -> dict[str, Info]:
        top = str(system._strip_protocol(url)).rstrip("/") + "/"
        below = system.find(url, detail=True).items()
        return {name.removeprefix(top): info for name, info in below if name.startswith(top)}

    below = {name: info for name, info in _listed(os.fsencode(url), found).items() if "/." not in f"/{name}"}
    names = {name: os.fsencode(name).lower() for name in below}
    left_out += [name for name in names.values() if name.endswith(paths.OTHER_SUFFIXES)]
    objects = [_object(inside, name, info) for name, info in below.items() if names[name].endswith(paths.SUFFIXES)]
    return sorted(objects, key=lambda each: (each.directory.split(b"/") if each.directory else [], each.name))


def matching(pattern: str) -> dict[str, Info]:
    """Return the metadata of each object that matches a pattern such as `s3://bucket/train-*`, by URL."""
    _require_listing(os.fsencode(pattern))
    attempt = reader(pattern).attempt
    found: dict[str, Info] = attempt(pattern, lambda system: fresh(system).glob(pattern, detail=True))
    path: str = attempt(pattern, lambda system: system._strip_protocol(pattern))
    # The beginnings in which a URL and its path in the file system differ: a bucket is part of such paths; a host, and
    # an account behind a container's name, are not.
    below = "".join(pattern.split("/", 3)[3:])
    before, stripped = "".join(pattern.partition("://")[:2]), "/" if path.startswith("/") else ""
    if below and path.endswith(below):
        before, stripped = pattern.removesuffix(below), path.removesuffix(below)
    return {f"{before}{name.removeprefix(stripped)}": info for name, info in sorted(found.items())}


def asked(urls: Sequence[str]) -> dict[str, Info]:
    """Return the metadata of each object; raise DataError if one does not exist, or is no URL."""
    if local := [url for url in urls if not paths.is_url(url)]:
        raise DataError(f"All files must be URLs where some are, but `{local[0]}` is none.")
    infos = dict(zip(urls, at_once(_info, map(os.fsencode, urls)), strict=True))
    if missing := [url for url, info in infos.items() if info is None]:
        raise DataError(f"{len(missing)} of {len(urls)} files do not exist, the first is `{paths.shown(missing[0])}`.")
    return {url: info for url, info in infos.items() if info is not None}


def named(infos: dict[str, Info]) -> tuple[bytes, list[Found]]:
    """Return the common URL of several objects, and each as an object below it."""
    root = os.path.commonprefix([f"{url.rpartition('/')[0]}/" for url in infos])  # noqa: RUF071  commonpath eats "//"
    root = root.rpartition("/")[0]
    if not paths.is_url(root):  # of several servers: their files keep their whole URLs
        root = next(iter(infos)).rpartition("/")[0]
    return os.fsencode(root), [_object("", url.removeprefix(f"{root}/"), info) for url, info in infos.items()]


def size_and_tag(info: Mapping[str, Any]) -> tuple[int, bytes]:
    """Return an object's size, -1 if it is unknown, and a tag that changes with its content."""
    size = info.get("size")
    tag = next((info[key] for key in (*_TAGS, *_TIMES) if info.get(key) is not None), "")
    return -1 if size is None else int(size), str(tag).encode()


def at_once(call: Callable[[T], R], values: Iterable[T], threads: int = _AT_ONCE) -> Iterator[R]:
    """Yield `call` of each value, in order; many calls run at a time. An error, or Ctrl-C, ends those that wait."""
    with ThreadPoolExecutor(threads, "autopipe-io") as pool:
        try:
            yield from pool.map(call, values)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _object(inside: str, relative: str, info: Info) -> Found:
    directory, _, name = f"{inside}{relative}".rpartition("/")
    return Found(os.fsencode(directory), os.fsencode(name), *size_and_tag(info))


def _info(url: bytes) -> Info | None:
    try:
        info: Info = reader(url).attempt(url, lambda system: system.info(os.fsdecode(url)))
    except BadSampleError:
        return None
    return info


def fresh(system: Any) -> Any:
    """Return a file system without its own copies of listings."""
    system.invalidate_cache()
    return system


def _listed(url: bytes, call: Any) -> Any:
    try:
        return reader(url).attempt(url, call)
    except BadSampleError:
        raise DataError(f"There is nothing at `{paths.shown(url)}`.", hint="Check the address.") from None


def _require_listing(url: bytes) -> None:
    if paths.scheme(url) in _NO_LISTING:
        hint = "Name each file by its URL: in a list, or in a table for ap.Table(csv, path=..., label=...)."
        raise DataError(f"A web server cannot list what is below `{paths.shown(url)}`.", hint=hint)
