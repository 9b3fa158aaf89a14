"""Writes `tuned_pipeline.py`: the few lines to import for training, beside the artefact that they read.

The module holds no measurement and no configuration: it reads them, so that a retune changes the artefact alone.
A file that does without autopipe is written by `autopipe.pipeline.eject`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from string import Template
from typing import Final

from autopipe._version import __version__
from autopipe.artifact import artifact as files
from autopipe.artifact import reference
from autopipe.artifact.factory import Tuned
from autopipe.artifact.pin import MODULE_NAME
from autopipe.artifact.schema import Reference

_MODULE: Final = Template('''"""The input pipeline that measured fastest for $workload, on each machine in $artifact.

    import tuned_pipeline
    tuned_pipeline.make_trainer().fit(epochs=3)

Written by autopipe $version. `autopipe retune $artifact` renews the artefact, and this file can stay as it is;
`autopipe repoint $artifact train.py:workload` names another workload in both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import autopipe as ap

ARTIFACT = $name
WORKLOAD = $pinned  # what the artefact may name; it cannot choose what runs

TUNED = ap.load(Path(__file__).resolve().with_name(ARTIFACT), pinned=WORKLOAD)
CONFIG: ap.PipelineConfig = TUNED.config


def make_loader(shard: tuple[int, int] = (0, 1)) -> ap.Loader:
    """Open a loader of one part of every epoch, the i-th of n; its `with` block closes it."""
    return TUNED.make_loader(shard=shard)


def make_trainer(shard: tuple[int, int] = (0, 1)) -> ap.Trainer:
    """Build the workload's model and what feeds it, for `.fit(epochs=3)`."""
    return TUNED.make_trainer(shard=shard)


def make_dataset(data: Any = None, shard: tuple[int, int] = (0, 1), initial_epoch: int = 0) -> Any:
    """Give batches to a `model.fit(make_dataset(), epochs=3)` of your own; of other `data`, to validate with."""
    return TUNED.make_dataset(data, shard=shard, initial_epoch=initial_epoch)
''')


def text_for(named: Reference | None, artifact: str) -> str:
    """Return the text of a module beside an artefact of that name; the workload's path starts at their folder."""
    return _MODULE.substitute(
        workload=_plain("a workload without a name" if named is None else reference.short_text(named)),
        artifact=_plain(artifact),
        version=__version__,
        name=json.dumps(artifact),
        pinned=_literal(named),
    )


def write(tuned: Tuned, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write the artefact and the module beside it, in place of older ones, and return both paths.

    Raises:
        ArtifactError: the folder cannot be written to.
    """
    artifact = tuned.save(Path(folder) / "autopipe.json")
    text = text_for(tuned.artifact_for(artifact.parent).workload, artifact.name)
    return artifact, files.replace_text(artifact.with_name(MODULE_NAME), text, usual=MODULE_NAME)


def _literal(named: Reference | None) -> str:
    """Return a reference as Python, one line a key."""
    if named is None:
        return "None"
    values = named.model_dump(exclude_none=True)
    # JSON's texts are Python's, too, in the quotes that formatters write.
    lines = [f'    "{key}": {json.dumps(value)},\n' for key, value in values.items()]
    return f"{{\n{''.join(lines)}}}"


def _plain(text: str) -> str:
    """Return a text that can end no docstring, whatever somebody has called a folder."""
    return re.sub(r"[^\w ./:-]", "_", text)
