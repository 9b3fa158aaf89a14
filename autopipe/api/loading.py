"""Loading an artefact: `ap.load`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from autopipe.core.workload import Workload
from autopipe.reports import story
from autopipe.trial import workload_import
from autopipe.tuned import factory
from autopipe.tuned.factory import Tuned


def load(
    path: str | os.PathLike[str] = "autopipe.json",
    *,
    workload: Workload | str | None = None,
    pinned: Mapping[str, Any] | None = None,
    strict: bool = False,
    allow_outside: bool = False,
) -> Tuned:
    """Return the tuned pipeline of an artefact, with the profile that fits this machine.

    Nothing of the user's code is imported before a loader or a trainer is made, and nothing is ever unpickled. The
    artefact may name the workload that the generated module beside it names; without one, a `Workload` in a file of its
    own folder. docs/security.md says what an artefact can and cannot do.

    Args:
        path: the artefact.
        workload: the workload, or "train.py:workload", in place of the one that the artefact names.
        pinned: the only workload that the artefact may name, as the generated module holds it.
        strict: refuse a profile of another machine instead of warning.
        allow_outside: trust the artefact in whatever it names: any file, any module, and any function in it.

    Raises:
        ArtifactError: the file is no artefact; or `strict`, and no profile is of this machine.

    Example:
        >>> tuned = ap.load("autopipe.json")            # doctest: +SKIP
        >>> tuned.make_trainer().fit(epochs=3)          # doctest: +SKIP
    """
    return factory.load(
        path,
        import_workload=workload_import.load_workload,
        workload=workload,
        pinned=pinned,
        strict=strict,
        allow_outside=allow_outside,
        shown=story.piece,
    )
