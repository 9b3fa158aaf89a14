"""Page faults and the kernel's time in the steps of a training, and what a second look with freed memory kept says."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from autopipe.hardware import processes
from autopipe.measure import meter
from autopipe.measure.outcome import Window
from autopipe.measure.stats import Ratio
from autopipe.reports import wording
from autopipe.values import Value

if TYPE_CHECKING:
    from autopipe.extensions.diagnose.run import Step

_SHARE: Final = 0.1  # of the processor's time, in the kernel
_FAULTS: Final = 256  # a step; fewer take no time that matters


class Pages(Value):
    """Page faults and the kernel's part of the processor's time, of the process without its children."""

    faults_per_step: float
    kernel_share: float  # 0 to 1
    kept: Pages | None = None  # the same while freed memory was kept; None without a second look
    gain: Ratio | None = None  # images/s with freed memory kept over those without; None without a second look

    @property
    def matter(self) -> bool:
        return self.kernel_share >= _SHARE and self.faults_per_step >= _FAULTS


class Counts:
    """Counts step by step. With `again`, a second look may be made, which changes the process for good."""

    def __init__(self, *, again: bool) -> None:
        self.kept_from: int | None = None  # the number of the first step of the second look
        self._again = again
        self._steps: list[NDArray[np.float64]] = []  # of each step: faults, seconds in the kernel, all seconds
        self.restart()

    def restart(self) -> None:
        self._last = _used()

    def step_ended(self) -> None:
        before, self._last = self._last, _used()
        self._steps.append(self._last - before)

    def look_again(self, seen: Sequence[Step]) -> bool:
        """Keep freed memory from now on, if pages took much of the last steps, which were `seen`; True if so."""
        if not self._again or self.kept_from is not None or not self._of(len(seen), None).matter:
            return False
        processes.keep_freed_memory()
        self.kept_from = len(self._steps)
        return True

    def found(self, seen: Sequence[Step], later: Sequence[Step]) -> Pages:
        """Return the figures of the last steps of the first look, and of those of the second, if there was one."""
        kept = {"kept": self._of(len(later), None), "gain": compared(seen, later)} if later else {}
        return self._of(len(seen), self.kept_from).model_copy(update=kept)

    def _of(self, count: int, end: int | None) -> Pages:
        faults, kernel, seconds = map(float, np.sum(self._steps[:end][-count:], axis=0))
        return Pages(faults_per_step=faults / count, kernel_share=kernel / seconds if seconds else 0.0)


def _used() -> NDArray[np.float64]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return np.array([used.ru_minflt, used.ru_stime, used.ru_utime + used.ru_stime])


def compared(before: Sequence[Step], after: Sequence[Step]) -> Ratio:
    """Return the ratio of images/s of later steps to those before, decided only if their intervals do not overlap."""
    windows = ([Window(images=step.images, seconds=step.seconds) for step in steps] for steps in (before, after))
    old, new = map(meter.overall, windows)
    high = new.high / old.low if old.has_interval else None
    return Ratio(ratio=new.value / old.value, low=new.low / old.high, high=high)


def rows(found: Pages) -> list[tuple[str, str]]:
    """Return the lines for the table that `autopipe diagnose` prints; none if pages take no time that matters."""
    if not found.matter:
        return []
    said = f"{found.faults_per_step:,.0f} a step; the kernel takes {found.kernel_share:.0%} of the processor's time"
    if found.kept is None or (gain := found.gain) is None:
        return [("page faults", said)]
    said += f". With freed memory kept: {found.kept.faults_per_step:,.0f} and {found.kept.kernel_share:.0%}"
    if not gain.decided:
        return [("page faults", f"{said}; whether that is faster could not be told")]
    said += f", {wording.times(gain.ratio)} the images/s ({wording.interval(gain.low, gain.high)})"
    to_run = " ".join([*(f"{name}={value}" for name, value in processes.KEEPING.items()), "python ..."])
    return [("page faults", said), *([("keep memory", to_run)] if gain.faster else [])]
