"""Changes the workload that an artefact and the module beside it name. `autopipe repoint` calls it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from autopipe.artifact import artifact as files
from autopipe.artifact import codegen, pin, reference
from autopipe.artifact.converting import imported
from autopipe.measure import fingerprint
from autopipe.measure.fingerprint import Difference


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Repointed:
    """The files that were changed."""

    written: tuple[Path, ...]  # the files that name the workload now
    # between the workload and the tuned one, as far as they are known without its model
    differences: tuple[Difference, ...]


def repoint(path: Path, workload: str) -> Repointed:
    """Change the workload that an artefact and its generated module name. It is imported to check that it exists.

    Args:
        path: the artefact.
        workload: "train.py:workload" or "package.module:workload".

    Raises:
        ArtifactError: the artefact cannot be read, or cannot be written to.
        WorkloadError: the workload does not exist.
    """
    artifact = files.read(path)
    digest = fingerprint.workload_digest(imported(workload))
    differences = fingerprint.compare_workload(artifact.profiles[-1].workload, digest)
    return Repointed(written=point(path, workload), differences=differences)


def point(path: Path, workload: str) -> tuple[Path, ...]:
    """Write the name of a workload to an artefact and to its generated module, and return both paths; raises
    ArtifactError if the artefact cannot be read, or one of both cannot be written.
    """
    file = path.absolute()
    with files.alone(file):
        named = reference.moved(reference.parse(workload), None, file.parent)
        files.write(files.read(file).model_copy(update={"workload": named}), file)
        if not pin.is_generated(file):
            return (path,)
        module = path.with_name(pin.MODULE_NAME)
        return path, files.replace_text(module, codegen.text_for(named, path.name), usual=pin.MODULE_NAME)
