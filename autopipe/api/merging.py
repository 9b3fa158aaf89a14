"""Merging: the profiles of several machines in one artefact. `autopipe merge`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from autopipe.tuned import artifact as files
from autopipe.tuned import joining, pick, reference
from autopipe.tuned.schema import Artifact


def merge(paths: Sequence[Path], out: Path) -> Artifact:
    """Write the profiles of some artefacts to one, and return it; of one machine's profiles the latest stays.

    The workload is the one that the first names.

    Args:
        paths: the artefacts, which must be of one workload.
        out: the file to write, whose folder is made if need be; it may be one of them.

    Raises:
        ArtifactError: one cannot be read, they are of several workloads, or `out` cannot be written.
    """
    with joining.alone(out):  # a retune may be writing to one of them, which `out` may be
        merged = pick.merge([files.read(path) for path in paths])
        moved = reference.moved(merged.workload, paths[0].absolute().parent, out.absolute().parent)
        merged = merged.model_copy(update={"workload": moved})
        with contextlib.suppress(OSError):  # the write says what is wrong
            out.parent.mkdir(parents=True, exist_ok=True)
        files.write(merged, out)
    return merged
