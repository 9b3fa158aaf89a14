"""Which process a running trial belongs to, and whether that one is dead."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta
from typing import Any

import psutil
from optuna.trial import FrozenTrial

_GRACE = timedelta(seconds=60)


def is_orphan(trial: FrozenTrial) -> bool:
    """Return whether the process of a trial that runs is dead, as far as can be told from here."""
    owner = trial.user_attrs.get("owner")
    if owner is None:  # it died between two statements, or is just between them
        return trial.datetime_start is None or datetime.now() - trial.datetime_start > _GRACE
    if owner["host"] != socket.gethostname():
        return False
    try:
        return bool(abs(psutil.Process(owner["pid"]).create_time() - owner["started"]) > 1.0)
    except psutil.NoSuchProcess:
        return True


def me() -> dict[str, Any]:
    """Return what this process is known by in a trial."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": psutil.Process().create_time()}
