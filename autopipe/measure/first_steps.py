"""What is told while the model runs its first steps: signs of life, and how long a step takes if that is long.

A model on a small machine can take ten seconds a step, and whoever waits should know that after the second one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from autopipe.core.outcome import Phase
from autopipe.core.report import Report

_LONG_SECONDS = 2.0
_STEPS_A_TRIAL = 4


class FirstSteps:
    """Hands a report on, without phases, and says once that steps take long. Takes news after each step."""

    def __init__(self, report: Report, clock: Callable[[], float] = time.monotonic) -> None:
        """Tell `report`; the first step ends with the first news, and compiles."""
        self._report, self._clock = report, clock
        self._last: float | None = None
        self._said = False

    def phase(self, phase: Phase) -> None:
        """Keep silent: whoever measures is in a phase of its own."""

    def progress(self, images: int, images_per_second: float) -> None:
        """A step ended."""
        now = self._clock()
        if self._last is not None and not self._said:
            self._said = True
            if (step := now - self._last) >= _LONG_SECONDS:
                self.log(
                    f"A training step takes {step:.0f} s without any loader, so each trial takes "
                    f"{_STEPS_A_TRIAL * step:.0f} s or more."
                )
        self._last = now
        self._report.progress(images, images_per_second)

    def log(self, text: str) -> None:
        """Tell at once."""
        self._report.log(text)
