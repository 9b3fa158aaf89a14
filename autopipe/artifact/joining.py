"""Writing to an artefact that is there already: the profiles that other machines wrote into it stay.

Which ones those are is `autopipe.artifact.pick`'s rule, and how a file is written `autopipe.artifact.artifact`'s. The
file is read right before, under a lock, because what was read before a search may be minutes old.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from autopipe.artifact import artifact as files
from autopipe.artifact import pick
from autopipe.artifact.schema import Artifact, Profile
from autopipe.errors import ArtifactError

_PATIENCE_SECONDS: Final = 30.0  # a write takes milliseconds: whoever holds the lock for longer hangs
_POLL_SECONDS: Final = 0.02


class KeptWarning(UserWarning):
    """The file in an artefact's place could not be joined with it; it was kept under another name."""


def write(fresh: Artifact, path: str | os.PathLike[str]) -> Path:
    """Write an artefact, with the profiles of other machines that the file has already, and return its path.

    A file that is of another workload, or cannot be read, is kept beside as `NAME.bak`, which a `KeptWarning` tells.

    Raises:
        ArtifactError: the file cannot be written.
    """
    file = Path(path)
    with alone(file):
        return files.write(_joined(fresh, file), file)


def renew(known: Artifact, profile: Profile, path: Path) -> Path:
    """Write a profile into an artefact, in the place of its machine's or beside the others, and return the path.

    `known` is the artefact as it was read before, for the case that it is not there any more.

    Raises:
        ArtifactError: the file cannot be written.
    """
    with alone(path):
        with contextlib.suppress(ArtifactError):
            known = files.read(path)
        return files.write(pick.with_profile(known, profile), path)


def _joined(fresh: Artifact, file: Path) -> Artifact:
    if not file.is_file():
        return fresh
    try:
        return pick.joined(fresh, files.read(file))
    except ArtifactError as error:
        _set_aside(file, error.message)
        return fresh


def _set_aside(file: Path, why: str) -> None:
    names = (f"{file.name}.bak{number or ''}" for number in itertools.count())
    spare = next(path for path in map(file.with_name, names) if not path.exists())
    try:
        file.rename(spare)
    except OSError as error:
        raise ArtifactError(f"`{file}` cannot be kept as `{spare.name}`: {error.strerror}. {why}") from error
    said = f"`{file}` was kept as `{spare.name}`, and none of its profiles were taken over. {why}"
    warnings.warn(said, KeptWarning, stacklevel=5)


@contextlib.contextmanager
def alone(file: Path) -> Iterator[None]:
    """Let nobody else write the file meanwhile. Where nothing can be locked, writing goes on, or says what is wrong."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            path = file.with_name(f".{file.name}.lock")
            held.callback(os.close, _locked(path))
            held.callback(_remove, path)  # first: whoever waits for it sees that it is gone, and makes another
        yield


def _locked(path: Path) -> int:
    """Return a descriptor of the file that holds the lock, which lies at `path` and has no links to elsewhere."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < give_up:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.ENOENT):
                os.close(descriptor)
                raise
        os.close(descriptor)
        time.sleep(_POLL_SECONDS)
    raise TimeoutError


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
