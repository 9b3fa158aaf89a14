"""What a command writes: the artefact and the module beside it, into a folder that is known to take them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from rich.console import Console

from autopipe.core.config import PipelineConfig
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


def say_where(console: Console, written: Written, study: str, config: PipelineConfig, workload: str | None) -> None:
    """Say which files there are now, and what to do with them."""
    folder = written.artifact.parent
    lines = [
        f"wrote     {written.artifact}, {written.module} and the study {study}",
        f"next      (cd {folder} && python -c 'import {written.module.stem} as t; t.make_trainer().fit(epochs=1)')",
        f"          autopipe check {written.artifact}",
    ]
    if config.storage != "files" and workload is not None:
        form, deepest = config.storage, config.cut == "deepest"
        name = form if deepest else f"{form}-{config.cut}"
        cut = "" if deepest else f" --cut {config.cut}"
        lines.insert(1, f"before    autopipe convert {workload} --to {form}{cut} --out {folder}/converted/{name}")
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
