"""Which process a running trial belongs to, and whether that one is dead."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from autopipe.hardware import mounts

GRACE_SECONDS = 60.0
"""For so long a trial that runs may have no owner: as its process has just begun it."""


def is_orphan(trial: FrozenTrial, ownerless_seconds: float, lost: Collection[str] = ()) -> bool:
    """Return whether the process of a trial that runs is dead, as far as can be told from here.

    Args:
        trial: the trial.
        ownerless_seconds: for how long it is known to have had no owner, if it has none.
        lost: ids of participants of the study that are known to be dead, wherever they ran.
    """
    owner = trial.user_attrs.get("owner")
    if owner is None:  # it died between two statements, or is just between them
        return ownerless_seconds > GRACE_SECONDS
    if owner.get("participant") in lost:
        return True
    if owner["host"] != socket.gethostname() or owner.get("processes", _processes()) != _processes():
        return False
    return bool(_ticks(owner["pid"]) != owner["ticks"])


def me(participant: str | None = None) -> dict[str, Any]:
    """Return what this process is known by in a trial; `participant` is its id where others share the study."""
    mine = {"host": socket.gethostname(), "pid": os.getpid(), "ticks": _ticks(os.getpid())}
    return mine if participant is None else {**mine, "participant": participant, "processes": _processes()}


def _ticks(pid: int) -> int | None:
    """Return when a process began, in the kernel's ticks since the machine started; None if there is none."""
    fields = mounts.text_of(mounts.ROOT / f"proc/{pid}/stat").rpartition(") ")[2].split()
    return int(fields[19]) if len(fields) > 19 else None


def _processes() -> str:
    """Return what tells the processes of one container from those of another, whose host may be called the same."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
