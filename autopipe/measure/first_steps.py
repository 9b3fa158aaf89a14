"""What is told while the model runs its first steps: signs of life, and how long a step takes if that is long.

A model on a small machine can take ten seconds a step, and whoever waits should know that after the second one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from autopipe.core.outcome import Phase
from autopipe.core.report import Report

_LONG_FIRST_SECONDS = 10.0
_LONG_SECONDS = 2.0
_STEPS_A_TRIAL = 4


class FirstSteps:
    """Hands a report on, without phases, and says once that steps take long. It is made when they begin."""

    def __init__(self, report: Report, clock: Callable[[], float] = time.monotonic) -> None:
        """Tell `report`; the first step compiles."""
        self._report, self._clock = report, clock
        self._last = clock()
        self._steps_began = False
        self._said = False

    def phase(self, phase: Phase) -> None:
        """Keep silent: whoever measures is in a phase of its own."""

    def progress(self, images: int, images_per_second: float) -> None:
        """A step ended, or a look at it."""
        now = self._clock()
        took, self._last = now - self._last, now
        if not self._steps_began:
            self._steps_began = True
            if took >= _LONG_FIRST_SECONDS:
                self.log(f"The model's first training step took {took:.0f} s, compiling included.")
        elif took >= _LONG_SECONDS and not self._said:
            self._said = True
            self.log(
                f"A training step takes {took:.0f} s without any loader, so each trial takes "
                f"{_STEPS_A_TRIAL * took:.0f} s or more."
            )
        self._report.progress(images, images_per_second)

    def log(self, text: str) -> None:
        """Tell at once."""
        self._report.log(text)
