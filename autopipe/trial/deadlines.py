"""How long a trial may be silent, and how long it may take. Decides from clock readings; waits for nobody."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Final

from autopipe.core.outcome import FailureKind, Phase
from autopipe.errors import ConfigError

VARIABLE: Final = "AUTOPIPE_PATIENCE"
"""The environment variable that says how many times as long as usual everything may take."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds without any sign of life, by phase, and seconds for a whole request.

    They are for telling a dead trial from a slow one, so they are generous: a framework takes 8 s to import on an idle
    machine and a minute on a loaded one, and a segmentation batch can take 10 s. `request` is for a whole trial, the
    loading of the workload aside; `end` is what a process gets to clean up after SIGTERM, before SIGKILL.
    """

    start_seconds: float = 60.0
    import_seconds: float = 180.0
    build_seconds: float = 180.0
    warm_up_seconds: float = 300.0
    open_seconds: float = 60.0
    first_batch_seconds: float = 90.0
    fill_seconds: float = 120.0
    measure_seconds: float = 90.0
    close_seconds: float = 30.0
    request_seconds: float = 1200.0
    end_seconds: float = 3.0

    def of(self, phase: Phase) -> float:
        """Return how long a trial may be silent in `phase`."""
        seconds: float = getattr(self, f"{phase.value}_seconds")
        return seconds


def asked(environment: Mapping[str, str] = os.environ) -> Deadlines:
    """Return the deadlines that the environment asks for: the usual ones, or so many times as long.

    Raises:
        ConfigError: the variable holds no number of 1 or more.
    """
    text = environment.get(VARIABLE, "").strip() or "1"
    try:
        times = float(text)
    except ValueError:
        times = math.nan
    if not 1 <= times < math.inf:
        raise ConfigError(
            f"`{VARIABLE}` must be a number of 1 or more, but got {text!r}.",
            hint=f"{VARIABLE}=4 allows a trial four times as long; unset it for the usual deadlines.",
        )
    usual = dataclasses.asdict(Deadlines())
    return Deadlines(**{name: each if name == "end_seconds" else times * each for name, each in usual.items()})


class Watch:
    """Follows one request."""

    def __init__(self, deadlines: Deadlines, phase: Phase, now: float) -> None:
        self.phase = phase  # the phase it is in
        self.phase_seconds: dict[Phase, float] = {}  # how long each phase took, up to the last clock reading
        self._deadlines = deadlines
        self._began = self._heard = self._counted = now

    def enter(self, phase: Phase, now: float) -> None:
        """Note that a phase begins."""
        self.heard(now)
        self.phase = phase

    def heard(self, now: float) -> None:
        """Note a sign of life."""
        self.phase_seconds[self.phase] = self.phase_seconds.get(self.phase, 0.0) + now - self._counted
        self._heard = self._counted = now

    def elapsed_seconds(self, now: float) -> float:
        """Return how long the request has been going."""
        return now - self._began

    def left_seconds(self, now: float) -> float:
        """Return how long nothing needs to be decided."""
        silent = self._heard + self._deadlines.of(self.phase)
        return max(0.0, min(silent, self._began + self._deadlines.request_seconds) - now)

    def verdict(self, now: float) -> FailureKind | None:
        """Return HUNG after too long a silence, TIMEOUT if it talks but does not end, None while all is well."""
        if now - self._heard >= self._deadlines.of(self.phase):
            return FailureKind.HUNG
        if now - self._began >= self._deadlines.request_seconds:
            return FailureKind.TIMEOUT
        return None
