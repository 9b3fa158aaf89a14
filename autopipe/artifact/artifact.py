"""Reads, writes, joins and merges `autopipe.json`. Any file content gives an `Artifact` or an `ArtifactError`.

A file is data: nothing in it is unpickled, imported or evaluated here, and its paths are not followed. The meaning of
its values is in `autopipe.artifact.schema`; the choice of a profile for a machine, in `autopipe.artifact.pick`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import itertools
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pydantic
import pydantic_core

from autopipe.artifact import pick, reference
from autopipe.artifact.schema import SCHEMA_VERSION, Artifact, Live, Profile
from autopipe.errors import ArtifactError, ConfigError, near, shortened
from autopipe.hardware import disk, machine
from autopipe.measure.trial.workload_import import WorkloadName
from autopipe.workload.workload import Workload

NAME: Final = "autopipe.json"
MAX_BYTES: Final = 16 * 2**20  # a profile takes some ten kilobytes, so that anything larger is no artifact

_RENEW: Final = "Restore it from a backup, or run `autopipe tune` again, which writes a new one."


def located(path: object = None) -> Path:
    """Return the path of an artifact, given that or its folder; by default that of the folder `tuned`, to which
    `autopipe tune` writes, or else that of the working directory.
    """
    if path is None:
        written, here = Path("tuned", NAME), Path(NAME)
        return here if here.is_file() and not written.is_file() else written
    if not isinstance(path, str | os.PathLike):
        raise ArtifactError(
            f"`path` must be the path of an artifact, or of its folder, but got {shortened(path)}.",
            hint='Of what ap.tune returns, tuned.save("autopipe.json") writes the artifact.',
        )
    file = Path(path)
    return file / NAME if file.is_dir() else file


def read(path: str | os.PathLike[str]) -> Artifact:
    """Read an artifact; raises ArtifactError if there is none of this version, and names the place of an error."""
    file = Path(path)
    try:
        if not file.is_file():
            raise _no_file(file)
        with file.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise ArtifactError(f"The artifact `{file}` cannot be read: {error}.") from error
    return parse(text, str(file))


def parse(text: bytes, name: str = NAME) -> Artifact:
    """Parse an artifact; raises ArtifactError if the text is no artifact. Messages call it `name`."""
    if len(text) > MAX_BYTES:
        raise ArtifactError(f"`{name}` is larger than {machine.size_text(MAX_BYTES)}, which no artifact is.")
    try:
        content = pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ArtifactError(f"`{name}` is no JSON, or was cut: {error}.", hint=_RENEW) from None
    if not isinstance(content, dict):
        raise ArtifactError(f"`{name}` must hold a JSON object, but holds {shortened(content)}.", hint=_RENEW)
    if "schema_version" not in content:
        raise ArtifactError(f"`{name}` has no `schema_version`, so it is no artifact of autopipe.", hint=_RENEW)
    version = content["schema_version"]
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ArtifactError(
            f"`{name}` has schema_version={shortened(version)}, but this autopipe reads version {SCHEMA_VERSION}.",
            hint="Run `autopipe tune` again, which writes a new one.",
        )
    try:
        return Artifact.model_validate_json(text)
    except (pydantic.ValidationError, ConfigError) as error:  # the second: of an accelerator that was simulated
        said = error.message if isinstance(error, ConfigError) else _sentence(error)
        raise ArtifactError(f"`{name}`: {said}", hint=_RENEW) from None


def is_artifact(path: Path) -> bool:
    """Return True if a file is an artifact that `read` reads."""
    with contextlib.suppress(ArtifactError):
        return bool(read(path).profiles)
    return False


def below(folder: Path) -> dict[Path, Artifact]:
    """Return the artifacts in a folder and its subfolders; files that are none are left out."""
    found = {}
    for path in sorted(folder.rglob("*.json")):
        with contextlib.suppress(ArtifactError):
            found[path] = read(path)
    if not found and (own := folder / NAME).is_file():
        read(own)  # which says why it is none
    if not found:
        raise ArtifactError(f"There is no artifact in `{folder}`, or below it.", hint="`autopipe tune` writes one.")
    return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An artifact on disk, and its workload for trials."""

    path: Path
    artifact: Artifact
    # its name, which has not been imported; or the object, of a workload without code or that was given
    workload: Workload | WorkloadName
    given: str | None = None  # "train.py:workload", if given in place of the one that the artifact names


def stored(path: Path, *, workload: Workload | str | None = None, allow_outside: bool = False) -> Stored:
    """Read an artifact with its workload, or the given one; raises ArtifactError for one that it may not name."""
    file = path.absolute()
    artifact = read(file)
    if isinstance(workload, Workload):
        return Stored(path=file, artifact=artifact, workload=workload)
    if workload is not None:
        return Stored(path=file, artifact=artifact, workload=WorkloadName(text=workload), given=workload)
    found = reference.workload_of(artifact, file, allow_outside=allow_outside, below=Path.cwd())
    return Stored(path=file, artifact=artifact, workload=found)


def write(artifact: Artifact, path: str | os.PathLike[str]) -> Path:
    """Write the artifact atomically, in place of an older one, and return its path; raises ArtifactError on failure."""
    return replace_text(path, artifact.model_dump_json(indent=2, exclude_none=True) + "\n", usual=NAME)


def replace_text(path: str | os.PathLike[str], text: str, *, usual: str) -> Path:
    """Write a text file atomically; raises ArtifactError, whose hint names the `usual` file if `path` is a folder."""
    file = Path(path)
    try:
        with disk.replacing(file, sync=True) as stream:
            stream.write(text.encode())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error  # the rest names the temporary file
        hint = "Name a folder that exists, has room and may be written to."
        if file.is_dir():
            hint = f"Name a file in this folder: {file / usual}"
        raise ArtifactError(f"`{file}` cannot be written: {why}.", hint=hint) from error
    return file


def _no_file(file: Path) -> ArtifactError:
    below = file.parent / "tuned" / file.name  # the place to which `autopipe tune` writes it
    beside = list[str]()
    if below.is_file():
        hint = f"Name the one in the folder below: {below}"
    elif ".py" in file.name:
        hint = "That is a workload's name; `autopipe tune` writes its artifact, by default `tuned/autopipe.json`."
    else:
        hint = f"`autopipe tune` writes one. Paths are taken from the working directory, {Path.cwd()}."
        beside += (entry.name for entry in file.parent.glob("*.json"))
    return ArtifactError(f"There is no artifact `{file}`.{near(file.name, beside)}", hint=hint)


def _sentence(error: pydantic.ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".") or "it"
    match first["type"]:
        case "extra_forbidden":
            return f"`{place}` is no key of an artifact of version {SCHEMA_VERSION}."
        case "missing":
            return f"`{place}` is missing."
        case "union_tag_invalid":  # pydantic repeats the value, whatever its length
            said = f"{first['ctx']['discriminator']} must be one of {first['ctx']['expected_tags']}"
        case _:
            said = first["msg"]
    return f"`{place}` is wrong: {said}, but got {shortened(first['input'])}."


# -------------------- joining: the profiles of other machines in an existing file stay
# The file is read right before it is written, under a lock: what was read before a search may be minutes old.

_PATIENCE_SECONDS: Final = 30.0  # a write takes milliseconds: a process that holds the lock for longer hangs
_POLL_SECONDS: Final = 0.02


class KeptWarning(UserWarning):
    """The file in an artifact's place could not be joined with it; it was kept under another name."""


def write_joined(fresh: Artifact, path: str | os.PathLike[str]) -> Path:
    """Write an artifact together with the profiles of other machines in the file, and return its path. A file of
    another workload, or an unreadable one, is kept as `NAME.bak`, with a `KeptWarning`. Raises ArtifactError on
    failure.
    """
    file = Path(path)
    with alone(file):
        try:
            fresh = pick.joined(fresh, read(file)) if file.is_file() else fresh
        except ArtifactError as why:
            names = (f"{file.name}.bak{number or ''}" for number in itertools.count())
            spare = next(path for path in map(file.with_name, names) if not path.exists())
            try:
                file.rename(spare)
            except OSError as error:
                said = f"`{file}` cannot be kept as `{spare.name}`: {error.strerror}. {why.message}"
                raise ArtifactError(said) from error
            said = f"`{file}` was kept as `{spare.name}`, and none of its profiles were taken over. {why.message}"
            warnings.warn(said, KeptWarning, stacklevel=3)
        return write(fresh, file)


def renew(known: Artifact, profile: Profile, path: Path) -> Path:
    """Write a profile into an artifact, which is `known` if its file is gone; raises ArtifactError on failure."""
    with alone(path):
        with contextlib.suppress(ArtifactError):
            known = read(path)
        return write(pick.with_profile(known, profile), path)


def renew_live(live: Live, path: Path) -> Path:
    """Write what a training has learnt into an artifact, and return the path. Raises ArtifactError on failure."""
    with alone(path):
        return write(pick.with_live(read(path), live), path)


@contextlib.contextmanager
def alone(file: Path) -> Iterator[None]:
    """Keep other processes from writing the file. If locking is impossible, writing goes on, or raises itself."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError, ValueError):
            path = file.with_name(f".{file.name}.lock")
            held.callback(os.close, _locked(path))
            held.callback(disk.remove, path)  # first: a waiting process sees that it is gone, and makes another
        yield


def _locked(path: Path) -> int:
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


def merge(paths: Sequence[Path], out: Path) -> Artifact:
    """Write the latest profiles of each machine of several artifacts of one workload to `out`, which may be one of
    them; the reference to the workload is the first one's. Raise ArtifactError if they differ, or that fails.
    """
    with alone(out):  # a retune may be writing to one of them, which `out` may be
        merged = pick.merge([read(path) for path in paths])
        moved = reference.moved(merged.workload, paths[0].absolute().parent, out.absolute().parent)
        merged = merged.model_copy(update={"workload": moved})
        with contextlib.suppress(OSError):  # the write raises the reason
            out.parent.mkdir(parents=True, exist_ok=True)
        write(merged, out)
    return merged
