"""The workload that an artefact names, for the commands that measure it again."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from autopipe.core.workload import Workload
from autopipe.errors import ArtifactError
from autopipe.tuned import artifact as files
from autopipe.tuned import images, reference
from autopipe.tuned.record import Artifact, ImagesReference, ModuleReference


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An artefact on disk, and its workload as a trial is given it.

    Attributes:
        path: the file.
        artifact: what is in it.
        workload: its name, or the object for a workload without code. It has not been imported.
    """

    path: Path
    artifact: Artifact
    workload: Workload | str


def read(path: Path, *, workload: str | None = None, allow_outside: bool = False) -> Stored:
    """Return an artefact with its workload.

    The workload may lie in the artefact's folder or below the working directory; elsewhere only if that is allowed.

    Args:
        path: the artefact.
        workload: "train.py:workload", in place of the one that the artefact names.
        allow_outside: let the artefact name a workload anywhere.

    Raises:
        ArtifactError: the file is no artefact, or its workload is not where it says or not where it may be.
    """
    file = path.absolute()
    artifact = files.read(file)
    return Stored(path=file, artifact=artifact, workload=workload or _named(artifact, file.parent, allow_outside))


def _named(artifact: Artifact, folder: Path, allow_outside: bool) -> Workload | str:
    named = artifact.workload
    if named is None:
        raise ArtifactError(
            "The artefact does not say where its workload is: it was tuned as an object without a name.",
            hint="Name it: --workload train.py:workload",
        )
    if isinstance(named, ModuleReference):
        return f"{named.module}:{named.attribute}"
    target = (folder / named.path).resolve()
    here = target.exists() and target.is_relative_to(Path.cwd().resolve())
    try:
        path = reference.located(named, folder, allow_outside=allow_outside or here)
    except ArtifactError as error:
        raise ArtifactError(
            error.message,
            hint="Run from a folder above it, name another with --workload train.py:workload, or use --allow-outside.",
        ) from None
    if isinstance(named, ImagesReference):
        return images.workload_of(named, path)
    return f"{path}:{named.attribute}"
