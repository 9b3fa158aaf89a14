"""Reads artifacts for people: `ap.show` says what one holds, and `ap.eject` writes its pipeline as plain code."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from rich.text import Text

from autopipe.api import request
from autopipe.artifact import artifact as files
from autopipe.artifact import pick, schema
from autopipe.errors import ArtifactError
from autopipe.measure import fingerprint
from autopipe.reports import tables
from autopipe.reports.answer import Answer
from autopipe.workload.workload import Workload


def show(path: str | os.PathLike[str] | None = None) -> Answer[dict[str, schema.Artifact]]:
    """Return the profiles of an artifact, and which of them this machine would use.

    Of a folder with several artifacts it has a line for each profile. The figures are the artifacts by their files.

    Args:
        path: the artifact, or a folder, in which and below which artifacts are looked for; None: that of `tuned/`.

    Raises:
        ArtifactError: there is no artifact.

    Examples:
        >>> ap.show("tuned")    # doctest: +SKIP
    """
    file = files.located(path)
    found = {file: files.read(file)} if path is None or not Path(path).is_dir() else files.below(Path(path))
    named = {str(file): content for file, content in found.items()}
    here, now = fingerprint.detect(), datetime.datetime.now(datetime.UTC)
    if len(found) > 1:
        return Answer(named, tables.artifacts(found, here=here, now=now))
    ((file, content),) = found.items()
    try:
        choice = pick.pick(content, here, name=str(file))
        used, note, live = choice.profile, choice.warning, choice.live
    except ArtifactError as error:  # the package of its loader is missing: show the rest
        used, note, live = None, str(error), None
    return Answer(named, tables.profiles(content, used, note, here=here, now=now, live=live))


def eject(
    path: Workload | str | os.PathLike[str] | None = None,
    *,
    to: str | None = None,
    workload: Workload | str | None = None,
    allow_outside: bool = False,
) -> Answer[str]:
    """Return the tuned pipeline as plain code, which does not import autopipe.

    Args:
        path: the artifact, or its folder; None: that of `tuned/`. With `to` also a workload or a folder of images.
        to: writes the untuned workload in this usual form, which a tune takes as a baseline: "tf.data", say.
        workload: the workload, or "train.py:workload", in place of the one that the artifact names.
        allow_outside: trust everything that the artifact names; see `ap.load`.

    Raises:
        PlainCodeError: the configuration, an op or the source has no plain form.
        ArtifactError: the file is no artifact, or its workload cannot be found.

    Examples:
        >>> ap.eject("tuned").save("plain_pipeline.py")         # doctest: +SKIP
    """
    from autopipe.artifact import codegen  # imports Optuna

    if to is not None and (workload is not None or request.artifact_of(path) is None):
        code = codegen.eject_usual(request.target(path if workload is None else workload).workload, to)
    else:
        stored = files.stored(files.located(path), workload=workload, allow_outside=allow_outside)
        code = codegen.eject(stored) if to is None else codegen.eject_usual(stored.workload, to)
    return Answer(code, Text(code.rstrip("\n")))
