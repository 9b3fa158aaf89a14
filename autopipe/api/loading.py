"""Loading an artefact: `ap.load`."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import filelock

from autopipe.artifact import artifact as files
from autopipe.artifact import factory, pick
from autopipe.artifact.factory import ProfileWarning, Tuned
from autopipe.errors import AutopipeError, ConfigError
from autopipe.measure import fingerprint
from autopipe.measure.fingerprint import Hardware, MatchLevel
from autopipe.measure.trial import protocol, workload_import
from autopipe.reports import profile_report
from autopipe.workload import digests
from autopipe.workload.workload import Workload

RETUNE_SECONDS: Final = 90.0
_PATIENCE: Final = 3.0  # times its budget: importing, and other tunes on the machine, come before a retune
_AT_LEAST_SECONDS: Final = 300.0


OnNewHardware: TypeAlias = Literal["nearest", "retune", "error"]


def load(  # noqa: PLR0913  the entry point: what is asked for most, by keyword
    path: str | os.PathLike[str] = "autopipe.json",
    *,
    workload: Workload | str | None = None,
    pinned: Mapping[str, Any] | None = None,
    strict: bool = False,
    allow_outside: bool = False,
    on_new_hardware: OnNewHardware = "nearest",
    retune_seconds: float = RETUNE_SECONDS,
) -> Tuned:
    """Load the tuned pipeline of an artefact, with the profile that fits this machine.

    The user's code is imported only when a loader or a trainer is made, and nothing is ever unpickled. The
    artefact may name the workload that the generated module beside it names; without one, a `Workload` in a file of its
    own folder. docs/security.md lists what an artefact can and cannot do.

    Args:
        path: the artefact.
        workload: the workload, or "train.py:workload", in place of the one that the artefact names.
        pinned: the only workload that the artefact may name, as the generated module holds it.
        strict: refuse a profile of another machine instead of warning.
        allow_outside: trust everything that the artefact names: any file, any module, and any function in it.
        on_new_hardware: what to do on a machine that has no profile: take the "nearest" one, with a warning;
            "retune" first, which imports the workload in child processes and writes the artefact; or "error", as
            `strict`. Of several jobs that start at once on one kind of machine, one retunes and the others wait for
            it. If it fails, the nearest profile is taken, with a warning that gives the reason.
        retune_seconds: the budget of that retune.

    Raises:
        ArtifactError: the file is no artefact; or it has no profile of this machine, and that is an "error".
        ConfigError: `on_new_hardware` is none of the three.

    Example:
        >>> tuned = ap.load("autopipe.json")            # doctest: +SKIP
        >>> tuned.make_trainer().fit(epochs=3)          # doctest: +SKIP
    """
    if on_new_hardware not in (choices := get_args(OnNewHardware)):
        raise ConfigError(f"`on_new_hardware` must be one of {', '.join(choices)}, but got {on_new_hardware!r}.")
    if on_new_hardware == "retune" and protocol.IN_TRIAL not in os.environ:  # a trial imports the script that loads
        _retuned(Path(path).absolute(), workload, retune_seconds, allow_outside=allow_outside)
    return factory.load(
        path,
        import_workload=workload_import.load_workload,
        workload=workload,
        pinned=pinned,
        strict=strict or on_new_hardware == "error",
        allow_outside=allow_outside,
        shown=profile_report.piece,
    )


def _retuned(path: Path, workload: Workload | str | None, seconds: float, *, allow_outside: bool) -> None:
    """Retune if this machine has no profile, or wait until another job on such a machine has done so."""
    here = fingerprint.detect()
    if _is_known(path, here):
        return
    kind = digests.digest(digests.canonical(here))[:8]
    lock = filelock.FileLock(
        path.with_name(f".{path.name}.{kind}.lock"), timeout=max(_AT_LEAST_SECONDS, _PATIENCE * seconds)
    )
    try:
        with lock:
            if _is_known(path, here):  # by now
                return
            _retune(path, workload, seconds, allow_outside=allow_outside)
    except (AutopipeError, OSError) as error:  # a lock that is never released is an OSError, too
        said = f"This machine has no profile in `{path}`, and a retune came to nothing: {error}"
        warnings.warn(said, ProfileWarning, stacklevel=3)


def _retune(path: Path, workload: Workload | str | None, seconds: float, *, allow_outside: bool) -> None:
    from autopipe.api import retuning
    from autopipe.artifact import pin
    from autopipe.search.searching import Watcher
    from autopipe.search.settings import Settings
    from autopipe.search.trial_measurer import nothing_measured

    named = workload if isinstance(workload, str) else None
    stored = pin.read(path, workload=named, allow_outside=allow_outside)
    if isinstance(workload, Workload):
        stored = dataclasses.replace(stored, workload=workload)
    settings = Settings(trials=retuning.TRIALS, budget_seconds=seconds)
    done = retuning.run(stored, settings, Watcher(), given=["budget_seconds"])
    if done.profile is None and done.result is not None:
        raise nothing_measured(done.result)


def _is_known(path: Path, here: Hardware) -> bool:
    return pick.nearest(files.read(path), here)[1].level is MatchLevel.SAME
