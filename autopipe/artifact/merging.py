"""Merges the profiles of several machines into one artefact. `autopipe merge` calls it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from autopipe.artifact import artifact as files
from autopipe.artifact import joining, pick, reference
from autopipe.artifact.schema import Artifact


def merge(paths: Sequence[Path], out: Path) -> Artifact:
    """Write the profiles of several artefacts to one, and return it. Of each machine the latest profile stays.

    The workload is that of the first artefact.

    Args:
        paths: the artefacts, which must be of one workload.
        out: the file to write, which may be one of them; its folder is made if it is not there.

    Raises:
        ArtifactError: an artefact cannot be read, they have different workloads, or `out` cannot be written.
    """
    with joining.alone(out):  # a retune may be writing to one of them, which `out` may be
        merged = pick.merge([files.read(path) for path in paths])
        moved = reference.moved(merged.workload, paths[0].absolute().parent, out.absolute().parent)
        merged = merged.model_copy(update={"workload": moved})
        with contextlib.suppress(OSError):  # the write says what is wrong
            out.parent.mkdir(parents=True, exist_ok=True)
        files.write(merged, out)
    return merged
