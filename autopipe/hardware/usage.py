"""What a process tree used over some time: the samples, and the figures derived from them. Pure; `sampler` fills it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean

from autopipe.hardware.gpu import GpuUse
from autopipe.hardware.process_tree import TreeReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a process tree."""

    seconds: float  # when, by `time.monotonic`, which on Linux all processes of a machine share
    tree: TreeReading
    # CPU time of everything on the cores that may be used until now, time stolen by a hypervisor included
    machine_cpu_seconds: float
    gpus: tuple[GpuUse, ...]  # what each GPU does, for anybody


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The samples of some time, oldest first, and what follows from them.

    Peaks are of the samples: what comes and goes between two is not seen. Percentages of CPU are of one core: two busy
    cores are 200 %. A figure that no sample holds is None.
    """

    samples: tuple[Sample, ...]
    # That a CPU quota keeps the tree from anyway: so many may others use and take nothing from it.
    spare_cores: float = 0.0

    def between(self, start_seconds: float, stop_seconds: float) -> Usage:
        """Return the part from the last sample before the start to the first after the stop, by `time.monotonic`."""
        times = [sample.seconds for sample in self.samples]
        first, last = bisect_right(times, start_seconds) - 1, bisect_left(times, stop_seconds)
        return replace(self, samples=self.samples[max(0, first) : last + 1])

    def of_gpus(self, count: int) -> Usage:
        """Return the same with the first `count` GPUs only: those that a training on so many devices uses."""
        return replace(self, samples=tuple(replace(sample, gpus=sample.gpus[:count]) for sample in self.samples))

    @property
    def seconds(self) -> float:
        """Time from the first sample to the last."""
        return self.samples[-1].seconds - self.samples[0].seconds if self.samples else 0.0

    @property
    def cpu_seconds(self) -> float:
        """CPU time that the tree used."""
        return self.samples[-1].tree.cpu_seconds - self.samples[0].tree.cpu_seconds if self.samples else 0.0

    @property
    def cpu_percent(self) -> float | None:
        """Mean CPU use of the tree."""
        return 100 * self.cpu_seconds / self.seconds if self.seconds > 0 else None

    @property
    def others_cpu_percent(self) -> float | None:
        """Mean CPU use of everything else on the cores that may be used, but the spare ones: the noisy neighbours."""
        if self.seconds <= 0:
            return None
        machine = self.samples[-1].machine_cpu_seconds - self.samples[0].machine_cpu_seconds
        return 100 * max(0.0, (machine - self.cpu_seconds) / self.seconds - self.spare_cores)

    @property
    def peak_memory_bytes(self) -> int | None:
        """Most memory that the tree held."""
        return max((sample.tree.memory_bytes for sample in self.samples), default=None)

    @property
    def peak_processes(self) -> int | None:
        """Most processes that the tree had."""
        return max((sample.tree.processes for sample in self.samples), default=None)

    @property
    def gpu_busy_percent(self) -> float | None:
        """Mean over samples and GPUs of the share of time in which kernels ran."""
        return _mean(use.busy_percent for sample in self.samples for use in sample.gpus)

    @property
    def gpus_busy_percent(self) -> tuple[float | None, ...]:
        """Mean share of time in which kernels ran, of each GPU."""
        columns = zip(*(sample.gpus for sample in self.samples), strict=False)  # a card may go away meanwhile
        return tuple(_mean(use.busy_percent for use in column) for column in columns)

    @property
    def peak_gpu_memory_bytes(self) -> int | None:
        """Most memory taken on all GPUs together."""
        sums = (sum(use.memory_used_bytes or 0 for use in sample.gpus) for sample in self.samples if sample.gpus)
        return max(sums, default=None)

    @property
    def gpu_watts(self) -> float | None:
        """Mean power of all GPUs together."""
        sums = [[use.power_watts for use in sample.gpus if use.power_watts is not None] for sample in self.samples]
        return _mean(sum(watts) for watts in sums if watts)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
