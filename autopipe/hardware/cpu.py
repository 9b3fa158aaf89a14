"""The cores that this process may use. How many of them a loader should use is decided elsewhere, by measurement."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from autopipe.hardware import cgroup, mounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor as seen from this process."""

    model: str  # the name in /proc/cpuinfo, or the architecture where there is none (Arm)
    cores: int  # logical cores that this process may keep busy; see `usable_cores`
    logical_cores: int  # logical cores of the machine, hyper-threads counted


def detect(root: Path = mounts.ROOT) -> Cpu:
    """Return the processor of this machine, limited to what this process may use."""
    return Cpu(model=model_name(root), cores=usable_cores(root), logical_cores=os.cpu_count() or 1)


def usable_cores(root: Path = mounts.ROOT) -> int:
    """Return how many threads can run at once: the least of CPU affinity and the cgroups' CPU quota, at least 1.

    A broken quota is rounded up (1.5 cores keep two threads partly busy), as the Java runtime does.
    """
    return max(1, math.ceil(core_time(root)))


def core_time(root: Path = mounts.ROOT) -> float:
    """Return how many cores' time this process gets: the least of CPU affinity and the cgroups' CPU quota, not rounded.

    A quota of 1.5 cores keeps two threads busy for three quarters of the time.
    """
    quota = quota_cores(root)
    count = float(len(allowed()))
    return count if quota is None else min(count, quota)


def spare_cores(root: Path = mounts.ROOT) -> float:
    """Return how many of the cores that this process may run on its CPU quota keeps it from; 0 without a quota.

    What others do on so many of them takes nothing from it.
    """
    return len(allowed()) - core_time(root)


def quota_cores(root: Path = mounts.ROOT) -> float | None:
    """Return the CPU quota in cores, the lowest of all enclosing cgroups; None where there is none."""
    quotas = [
        quota
        for hierarchy in cgroup.hierarchies("cpu", root)
        for folder in hierarchy.folders
        if (quota := _quota(folder, hierarchy.unified)) is not None
    ]
    return min(quotas, default=None)


def model_name(root: Path = mounts.ROOT) -> str:
    """Return the processor's name as /proc/cpuinfo gives it, or else the architecture."""
    try:
        with (root / "proc/cpuinfo").open(errors="replace") as lines:  # line by line: it is long on a large machine
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    return value.strip()
    except OSError:
        pass
    return platform.machine()


def allowed() -> set[int]:
    """Return the numbers of the logical cores that this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _quota(folder: Path, unified: bool) -> float | None:
    """Return microseconds of CPU per period, over the microseconds of that period."""
    if unified:
        numbers = [cgroup.whole(word) for word in cgroup.words(folder / "cpu.max")]
    else:
        numbers = [cgroup.number(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    match numbers:
        case [int(quota), int(period)] if quota > 0 and period > 0:
            return quota / period
    return None  # version 2 says "max", version 1 says -1
