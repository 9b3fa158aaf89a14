"""The workload that an artefact names, for the commands that measure it again."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from autopipe.artifact import artifact as files
from autopipe.artifact import pin
from autopipe.artifact.schema import Artifact
from autopipe.measure.trial import protocol
from autopipe.workload.workload import Workload


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An artefact on disk, and its workload as trials get it."""

    path: Path
    artifact: Artifact
    # its name, or the object for a workload without code; it has not been imported
    workload: Workload | protocol.Reference
    given: str | None = None  # "train.py:workload", where it was given in place of the one that the artefact names


def read(path: Path, *, workload: str | None = None, allow_outside: bool = False) -> Stored:
    """Return an artefact with its workload.

    The generated module beside the artefact must name the same workload. Without such a module the workload may lie in
    the artefact's folder or below the working directory, and elsewhere only if that is allowed.

    Args:
        path: the artefact.
        workload: "train.py:workload", in place of the one that the artefact names.
        allow_outside: trust all that the artefact names.

    Raises:
        ArtifactError: the file is no artefact, or its workload is not there or may not be read there.
    """
    file = path.absolute()
    artifact = files.read(file)
    if workload is not None:
        return Stored(path=file, artifact=artifact, workload=protocol.Reference(text=workload), given=workload)
    found = pin.workload_of(artifact, file, allow_outside=allow_outside, below=Path.cwd())
    named = found if isinstance(found, Workload) else protocol.Reference(text=found.text, may_call=found.may_call)
    return Stored(path=file, artifact=artifact, workload=named)
