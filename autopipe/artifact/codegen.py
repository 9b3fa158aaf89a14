"""Writes Python files: `tuned_pipeline.py`, the lines to import for training, beside its artifact; and plain code.

The module holds no measurement and no configuration: it reads them, so that a retune changes the artifact only. Plain
code is written by `autopipe.pipeline.eject`. Profiles are made and updated here, too.
"""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path
from string import Template
from typing import Final

from autopipe._version import __version__
from autopipe.artifact import artifact as files
from autopipe.artifact import converting, factory, pick, reference
from autopipe.artifact.schema import ImagesReference, Profile, Reference
from autopipe.errors import ConfigError, near
from autopipe.measure import fingerprint
from autopipe.measure.facts import Description
from autopipe.measure.trial.workload_import import WorkloadName
from autopipe.pipeline.eject import NAMES, module
from autopipe.search.result import Result
from autopipe.search.settings import Settings, request_of
from autopipe.workload.workload import Workload

_MODULE: Final = Template('''"""The input pipeline that measured fastest for $workload, on each machine in $artifact.

    import tuned_pipeline
    tuned_pipeline.make_trainer().fit(epochs=3)

Written by autopipe $version. `autopipe retune $artifact` renews the artifact, and this file can stay as it is;
`autopipe repoint $artifact train.py:workload` names another workload in both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import autopipe as ap

ARTIFACT = $name
WORKLOAD = $pinned  # what the artifact may name; it cannot choose what runs

TUNED = ap.load(Path(__file__).resolve().with_name(ARTIFACT), pinned=WORKLOAD)
CONFIG: ap.PipelineConfig = TUNED.config


def make_loader(shard: tuple[int, int] = (0, 1), tune: Any = None) -> ap.Loader:
    """Open a loader of one part of every epoch, the i-th of n; its `with` block closes it."""
    return TUNED.make_loader(shard=shard, tune=tune)


def make_trainer(shard: tuple[int, int] = (0, 1), tune: Any = None) -> ap.Trainer:
    """Build the workload's model and what feeds it, for `.fit(epochs=3)`; tune="live" goes on tuning meanwhile."""
    return TUNED.make_trainer(shard=shard, tune=tune)


def make_dataset(data: Any = None, shard: tuple[int, int] = (0, 1), initial_epoch: int = 0) -> Any:
    """Give batches to a `model.fit(make_dataset(), epochs=3)` of your own; of other `data`, to validate with."""
    return TUNED.make_dataset(data, shard=shard, initial_epoch=initial_epoch)
''')


def text_for(named: Reference | None, artifact: str) -> str:
    """Return the text of a module beside an artifact of that name; the workload's path starts at their folder."""
    # In the quotes that formatters write; JSON's own escapes would make two letters of one beyond U+FFFF.
    literal = functools.partial(json.dumps, ensure_ascii=False)
    pinned = "None"
    if named is not None:
        lines = (f'    "{key}": {literal(value)},\n' for key, value in named.model_dump(exclude_none=True).items())
        pinned = f"{{\n{''.join(lines)}}}"
    said = "a workload without a name" if named is None else reference.short_text(named)
    plain = functools.partial(re.sub, r"[^\w ./:-]", "_")  # as a docstring may have it
    texts = {"workload": plain(said), "artifact": plain(artifact), "name": literal(artifact), "pinned": pinned}
    return _MODULE.substitute(texts, version=__version__)


def write(tuned: factory.Tuned, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write the artifact and the module beside it, in place of older ones; raises ArtifactError if that fails."""
    artifact = tuned.save(Path(folder) / "autopipe.json")
    text = text_for(tuned.artifact_for(artifact.parent).workload, artifact.name)
    return artifact, files.replace_text(artifact.with_name(reference.MODULE_NAME), text, usual=reference.MODULE_NAME)


def profile_of(
    result: Result, described: Description, hardware: fingerprint.Hardware, settings: Settings, *, retune: bool = False
) -> Profile | None:
    """Return the artifact's profile of a search with these settings; None if the search found nothing to use."""
    if result.winner is None:
        return None
    return Profile(
        hardware=hardware,
        workload=described.digest,
        request=request_of(settings, retune=retune),
        measured_at=result.ended_at,
        result=result,
    )


def repoint(path: Path, workload: str) -> tuple[tuple[Path, ...], tuple[fingerprint.Difference, ...]]:
    """Change the workload that an artifact and its generated module name, to "train.py:workload" or a folder of images.
    Return the written files, and what differs from the tuned workload. Raise WorkloadError if it does not exist.
    """
    artifact = files.read(path)
    named: Reference
    if isinstance(artifact.workload, ImagesReference) and Path(workload).is_dir():
        named = artifact.workload.model_copy(update={"path": str(Path(workload).absolute()), "origin": None})
        found = reference.images_workload(named, named.path)
    else:
        found, named = converting.imported(workload), reference.parse(workload)  # the first refuses what is no name
    digest = fingerprint.workload_digest(found)
    return point(path, named), fingerprint.compare_workload(artifact.profiles[-1].workload, digest)


def point(path: Path, workload: Reference) -> tuple[Path, ...]:
    """Write the place of a workload to an artifact and to its generated module, and return the written paths."""
    file = path.absolute()
    with files.alone(file):
        named = reference.moved(workload, None, file.parent)
        files.write(files.read(file).model_copy(update={"workload": named}), file)
        if not reference.is_generated(file):
            return (path,)
        module = path.with_name(reference.MODULE_NAME)
        return path, files.replace_text(module, text_for(named, path.name), usual=reference.MODULE_NAME)


def eject(stored: files.Stored) -> str:
    """Return this machine's configuration as code; raises PlainCodeError, with why, if plain code cannot be."""
    return module.eject(converting.imported(stored.workload), pick.pick(stored.artifact, fingerprint.detect()).config)


def eject_usual(named: Workload | WorkloadName, to: str) -> str:
    """Return a workload's pipeline in a usual form, such as "keras-workers=32"; raises ConfigError, with why."""
    try:
        module.named(to)
    except KeyError:
        known = ", ".join(NAMES)
        raise ConfigError(f"`--to` must be one of {known}, but got {to!r}.{near(to, NAMES)}") from None
    return module.eject(converting.imported(named), to)
