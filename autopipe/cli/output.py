"""What a command writes: the artefact and the module beside it, into a folder that is known to take them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from autopipe.errors import ArtifactError
from autopipe.tuned import codegen
from autopipe.tuned.factory import Tuned


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The files that were written."""

    artifact: Path
    module: Path


def writable_folder(folder: Path) -> Path:
    """Return the folder, made if need be; found out before anything is measured, not after.

    Raises:
        ArtifactError: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(
            f"`--out` must be a folder that can be made, but got {str(folder)!r}: {error.strerror}.",
            hint="Choose another with --out DIR.",
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ArtifactError(
            f"`--out` must be writable, but {str(folder)!r} is not.", hint="Choose another with --out DIR."
        )
    return folder


def write_outputs(tuned: Tuned, folder: Path) -> Written:
    """Write `autopipe.json` and `tuned_pipeline.py`."""
    artifact, module = codegen.write(tuned, folder)
    return Written(artifact=artifact, module=module)
