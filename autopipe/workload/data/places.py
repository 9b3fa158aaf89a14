"""Image files on a disk or behind a URL: calls `paths` or `remote`, which find, name and read them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from autopipe.errors import DataWarning
from autopipe.workload.data import paths, remote
from autopipe.workload.data.paths import Entry, PathList
from autopipe.workload.data.remote import Object, ObjectList
from autopipe.workload.data.url import is_url, located, shown

Found: TypeAlias = Entry | Object


def root_of(place: str | os.PathLike[str]) -> bytes:
    """Return a folder or URL of the user's as bytes; raise DataError if it is a URL that cannot be used."""
    return os.fsencode(located(place))


def scan(root: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the sorted names of the images and of the folders directly in `root`, without hidden ones."""
    return remote.scan(root) if is_url(root) else paths.scan(root)


def lost_links(root: bytes) -> list[bytes]:
    """Return the sorted names of links directly in `root` to folders that no longer exist; none behind a URL."""
    return [] if is_url(root) else paths.lost_links(root)


def walk(root: bytes, folders: list[bytes]) -> Sequence[Sequence[Found]]:
    """Return the images below each of `folders`, folder by folder in sorted order; warn of other images."""
    left_out: list[bytes] = []
    if is_url(root):
        found: Sequence[Sequence[Found]] = remote.walk_all(root, folders, left_out)
    else:
        found = [list(paths.walk(root, each, left_out)) for each in folders]
    if left_out:
        endings = sorted({f".{os.fsdecode(name).rpartition('.')[2].lower()}" for name in left_out})
        warnings.warn(
            f"{len(left_out)} files below `{shown(root)}` are left out ({', '.join(endings)}). "
            f"Images are files that end in {', '.join(paths.EXTENSIONS)}.",
            DataWarning,
            stacklevel=4,
        )
    return found


def listed(root: bytes, found: Iterable[Found]) -> PathList:
    """Return the list of the files found below `root`."""
    if is_url(root):
        return ObjectList(root, (each if isinstance(each, Object) else Object(*each) for each in found))
    return PathList(root, (each[:2] for each in found))


def named(root: bytes, entries: list[Entry]) -> PathList:
    """Return a list of files that were named one by one; raise DataError if some are URLs and others are paths."""
    if is_url(root) or any(is_url(directory) for directory, _ in entries):
        return ObjectList(root, (Object(*entry) for entry in entries))
    return PathList(root, entries)


def kind(listing: PathList) -> str | None:
    """Return the kind of URL of a list's files, such as "s3", or None for files on a disk."""
    return listing.kind if isinstance(listing, ObjectList) else None
