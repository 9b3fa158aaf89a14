"""Writes `tuned_pipeline.py`: the few lines to import for training, beside the artefact that they read.

The module holds no measurement and no configuration: it reads them, so that a retune changes the artefact alone.
A file that does without autopipe is written by `autopipe.tuned.eject`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path, PurePosixPath
from string import Template
from typing import Final

from autopipe._version import __version__
from autopipe.tuned import artifact as files
from autopipe.tuned import reference
from autopipe.tuned.factory import Tuned
from autopipe.tuned.record import FileReference, ImagesReference, ModuleReference, Reference

MODULE_NAME: Final = "tuned_pipeline.py"

_MODULE: Final = Template('''"""The input pipeline that measured fastest for $workload, on each machine in $artifact.

    import tuned_pipeline
    tuned_pipeline.make_trainer().fit(epochs=3)

Written by autopipe $version. `autopipe retune $artifact` renews the artefact; this file can stay as it is.
"""

from __future__ import annotations

from pathlib import Path

import autopipe as ap

TUNED = ap.load($load)
CONFIG: ap.PipelineConfig = TUNED.config


def make_loader(shard: tuple[int, int] = (0, 1)) -> ap.Loader:
    """Open a loader of one part of every epoch, the i-th of n; its `with` block closes it."""
    return TUNED.make_loader(shard=shard)


def make_trainer() -> ap.Trainer:
    """Build the workload's model and what feeds it, for `.fit(epochs=3)`."""
    return TUNED.make_trainer()
''')


def source(tuned: Tuned, artifact: Path) -> str:
    """Return the text of a module that loads the artefact beside it.

    Args:
        tuned: what the artefact holds.
        artifact: where it is, or will be, written.
    """
    named = tuned.artifact_for(artifact.parent).workload
    load = f"Path(__file__).resolve().with_name({_quoted(artifact.name)})"
    if reference.is_outside(named, artifact.parent):  # code may allow it; an artefact may not allow it to itself
        load = f"{load}, allow_outside=True"
    return _MODULE.substitute(
        workload=_plain(_described(named)), artifact=_plain(artifact.name), version=__version__, load=load
    )


def write(tuned: Tuned, folder: str | os.PathLike[str], artifact_name: str = "autopipe.json") -> tuple[Path, Path]:
    """Write the artefact and the module beside it, in place of older ones, and return both paths.

    Raises:
        ArtifactError: the folder cannot be written to.
    """
    artifact = tuned.save(Path(folder) / artifact_name)
    return artifact, files.replace_text(artifact.with_name(MODULE_NAME), source(tuned, artifact))


def _described(named: Reference | None) -> str:
    match named:
        case FileReference():
            return f"{PurePosixPath(named.path).name}:{named.attribute}"
        case ModuleReference():
            return f"{named.module}:{named.attribute}"
        case ImagesReference():
            return f"{named.model} on {PurePosixPath(named.path).name}"
    return "a workload without a name"


def _plain(text: str) -> str:
    """Return a text that can end no docstring, whatever somebody has called a folder."""
    return re.sub(r"[^\w ./:-]", "_", text)


def _quoted(text: str) -> str:
    """Return a Python string literal in double quotes, as formatters write it; JSON's escapes are Python's, too."""
    return json.dumps(text)
