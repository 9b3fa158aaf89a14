"""Where a tuned pipeline gets its workload from: what the user gave, or what the artefact names, imported if needed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from autopipe.core.workload import Workload
from autopipe.tuned import pin
from autopipe.tuned.schema import Artifact


class ImportWorkload(Protocol):
    """Returns the workload that "train.py:workload" or "package.module:workload" names."""

    def __call__(self, reference: str, *, may_call: bool) -> Workload:
        """Import it; `may_call` tells whether the name may be a function that returns it."""


def itself(workload: Workload) -> Callable[[], Workload]:
    """Return what returns just this workload."""
    return lambda: workload


def given(workload: Workload | str, import_workload: ImportWorkload) -> Callable[[], Workload]:
    """Return what returns a workload that the caller gave, or named."""
    if isinstance(workload, str):
        return functools.partial(import_workload, workload, may_call=True)
    return itself(workload)


def named(
    artifact: Artifact, file: Path, import_workload: ImportWorkload, *, pinned: pin.Pin | None, allow_outside: bool
) -> Callable[[], Workload]:
    """Return what returns the workload that an artefact names, as far as it may; see `autopipe.tuned.pin`."""

    def imported() -> Workload:
        found = pin.workload_of(artifact, file, pin=pinned, allow_outside=allow_outside)
        return found if isinstance(found, Workload) else import_workload(found.text, may_call=found.may_call)

    return imported
