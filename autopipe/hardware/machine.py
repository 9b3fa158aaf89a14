"""The machine as one value: `autopipe doctor` shows it, and a tuned profile is matched against it.

Mounts, control groups, cores and memory are read here, for this process's share of them. Decisions on differences, and
on how many cores or bytes a loader takes, are made elsewhere.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from autopipe.hardware import gpu

# -------------------- mounts: the mounted file systems, from /proc/self/mountinfo (`man 5 proc`)


ROOT = Path("/")
"""Where the functions of this layer look for /proc and /sys; tests give them a folder that plays another machine."""

_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo."""

    kind: str  # the file system type, such as `ext4`, `overlay` or `cgroup2`
    inner: str  # the folder inside the file system that is mounted
    point: str  # its mount point
    options: tuple[str, ...]  # of the file system; a cgroup v1 hierarchy lists its controllers here


def read(root: Path = ROOT) -> list[Mount]:
    """Return the mounts, oldest first; empty if the kernel lists none."""
    found = []
    for line in text_of(root / "proc/self/mountinfo").splitlines():
        place, _, system = line.partition(" - ")
        match place.split(" "), system.split(" "):
            case [_, _, _, inner, point, *_], [kind, _, options, *_]:
                # Space, tab, newline and backslash are octal escapes.
                inner, point = (_ESCAPED.sub(lambda each: chr(int(each[1], 8)), path) for path in (inner, point))
                found.append(Mount(kind=kind, inner=inner, point=point, options=tuple(options.split(","))))
    return found


def text_of(path: Path) -> str:
    """Return the text of a small kernel file, or an empty string if it is missing or may not be read."""
    try:
        return path.read_text(errors="replace")
    except (OSError, ValueError):  # ValueError: a name from the kernel that is no path, such as one with a NUL
        return ""


# -------------------- cgroup: the control groups of this process and the numbers in their files (`man 7 cgroups`)
# Supports version 1, version 2 and both at once; inside a container too, where the kernel names groups by paths that
# are not mounted.


def _groups(controller: str, root: Path) -> Iterator[tuple[bool, tuple[Path, ...]]]:
    """Yield the groups that can limit this process, of each hierarchy: True for version 2, whose files may be missing
    if 1 has them; and the folders of its own group and its parents, whose limits all hold.
    """
    lines = text_of(root / "proc/self/cgroup").splitlines()  # id:controllers:path; version 2 has the controller ""
    fields = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    own = {controller: group for _, controllers, group in fields for controller in controllers.split(",")}
    for mount in read(root):
        unified = mount.kind == "cgroup2"
        if unified or (mount.kind == "cgroup" and controller in mount.options):
            base, path = root / mount.point.lstrip("/"), PurePosixPath(own.get("" if unified else controller, "/"))
            # A container sees its own group as the mount point, whatever the host calls it; `..` leads out of its
            # namespace.
            inside = path.relative_to(mount.inner) if path.is_relative_to(mount.inner) else PurePosixPath()
            group = base if ".." in inside.parts else base / inside
            yield unified, (group, *list(group.parents)[: len(group.parts) - len(base.parts)])


def number(path: Path) -> int | None:
    """Return the number in a group's file; None if it is missing or says `max`."""
    return whole(next(iter(text_of(path).split()), ""))


def whole(word: str) -> int | None:
    """Return `word` as an integer, or None."""
    try:
        return int(word)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor as seen from this process."""

    model: str  # the name in /proc/cpuinfo, or the architecture without one (Arm)
    cores: int  # logical cores that this process may keep busy; see `usable_cores`
    logical_cores: int  # logical cores of the machine, hyper-threads counted
    limits: tuple[str, ...] = ()  # what keeps the process to fewer cores, or will; see `core_limits`


def usable_cores(root: Path = ROOT) -> int:
    """Return the number of threads that can run at once, at least 1. A fraction of a core is rounded up, as in Java."""
    return max(1, math.ceil(core_time(root)))


def core_time(root: Path = ROOT) -> float:
    """Return the cores' time that this process gets, not rounded: the least of affinity and the cgroups' quota."""
    quota = quota_cores(root)
    count = float(len(allowed()))
    return count if quota is None else min(count, quota)


# Variables by which OpenMP binds a thread to one core when a library first uses it, and values that leave it alone.
_BINDING: Final = ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
_FREE: Final = ("", "false", "none", "disabled")


def core_limits(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return sentences about what keeps this process to fewer cores than there are, or will; see `usable_cores`."""
    cores, quota, said = sorted(allowed()), quota_cores(root), list[str]()
    if len(cores) < (os.cpu_count() or 1):
        runs = [[*group] for _, group in groupby(cores, lambda core: core - cores.index(core))]
        named = ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
        said.append(
            f"This process may run on core{'s' if len(cores) > 1 else ''} {named} only: what started it is bound to "
            "that (taskset, Slurm, a container), or a library has bound it since."
        )
    if quota is not None and quota < len(cores):
        said.append(f"A control group's quota gives it the time of {quota:g} cores.")
    said += [
        f"{name}={value} is set: OpenMP (of torch, scikit-learn, older BLAS) binds the thread that first uses "
        f"it to one core, and workers inherit that. Unset {name}."
        for name, value in ((name, environment.get(name, "")) for name in _BINDING)
        if value.lower() not in _FREE
    ]
    return tuple(said)


def spare_cores(root: Path = ROOT) -> float:
    """Return the cores of this process's affinity that its CPU quota leaves to others; 0 without a quota."""
    return len(allowed()) - core_time(root)


def quota_cores(root: Path = ROOT) -> float | None:
    """Return the CPU quota in cores, the lowest of all enclosing cgroups; None without a quota."""
    quotas = []
    for unified, folder in ((unified, folder) for unified, folders in _groups("cpu", root) for folder in folders):
        names = ["cpu.max"] if unified else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        match [whole(word) for name in names for word in text_of(folder / name).split()]:
            case [int(quota), int(period)] if quota > 0 and period > 0:  # version 2 says "max", version 1 says -1
                quotas.append(quota / period)
    return min(quotas, default=None)


def model_name(root: Path = ROOT) -> str:
    """Return the processor's name in /proc/cpuinfo, or else the architecture."""
    with contextlib.suppress(OSError), (root / "proc/cpuinfo").open(errors="replace") as lines:
        for line in lines:  # one by one: they are many on a large machine
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.machine()


def allowed(pid: int = 0) -> set[int]:
    """Return the numbers of the logical cores on which this process, or another one, may run; all if it is gone."""
    try:
        return os.sched_getaffinity(pid)
    except ProcessLookupError:
        return set(range(os.cpu_count() or 1))


class _Files(NamedTuple):
    limits: tuple[str, ...]
    use: str
    cache: tuple[str, str, str]  # lines of memory.stat: pages of files, inactive and active, and the mapped among them
    kills: str  # has a line `oom_kill`


_UNIFIED = _Files(
    ("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file", "file_mapped"), "memory.events"
)
_LEGACY = _Files(
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file", "total_mapped_file"),
    "memory.oom_control",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Main memory."""

    usable_bytes: int  # the least of the machine's memory and the limits of all enclosing cgroups
    available_bytes: int  # at the time of reading; page cache that can be dropped counts as free


def detect_memory(root: Path = ROOT) -> Memory:
    """Return this machine's memory, limited to the share of this process."""
    entries = _entries(root / "proc/meminfo")
    total = entries.get("MemTotal", 0) * 1024
    available = entries.get("MemAvailable", total // 1024) * 1024
    for limit, used in _limits(root):
        total = min(total, limit)
        available = min(available, max(0, limit - used))
    return Memory(usable_bytes=total, available_bytes=available)


def oom_kills(root: Path = ROOT) -> int:
    """Return the processes of this cgroup that the kernel killed for memory; 0 if unknown."""
    return sum(
        _entries(folders[0] / (_UNIFIED if unified else _LEGACY).kills).get("oom_kill", 0)
        for unified, folders in _groups("memory", root)
    )


def size_text(count_bytes: float) -> str:
    """Return a size for people to read.

    >>> size_text(64 * 2**20), size_text(25_165_824_000)
    ('64 MiB', '23.4 GiB')
    """
    units = ["TiB", "GiB", "MiB", "KiB", "B"]
    while round(count_bytes, 1) >= 1024 and len(units) > 1:  # as it is shown
        count_bytes /= 1024
        units.pop()
    return f"{count_bytes:.1f}".removesuffix(".0") + f" {units[-1]}"


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """Yield limit and use in bytes of every enclosing cgroup with a limit, `memory.high` among them, as the kernel
    slows a process down above it. Pages of files count as free, as in MemAvailable, but mapped ones, above all of
    libraries, do not. Version 1 says almost 2**63 without a limit.
    """
    for unified, folders in _groups("memory", root):
        files = _UNIFIED if unified else _LEGACY
        for folder in folders:
            limits = [max(0, limit) for name in files.limits if (limit := number(folder / name)) is not None]
            if limits:
                entries = _entries(folder / "memory.stat")
                inactive, active, mapped = (entries.get(name, 0) for name in files.cache)
                cache = max(inactive, inactive + active - mapped)
                yield min(limits), max(0, (number(folder / files.use) or 0) - cache)


def _entries(path: Path) -> dict[str, int]:
    pairs = [line.split()[:2] for line in text_of(path).splitlines()]
    return {pair[0].rstrip(":"): value for pair in pairs if len(pair) == 2 and (value := whole(pair[1])) is not None}


# Four distributions bring one and the same module `cv2`. With two of them, the one installed last has overwritten files
# of the other, and removing either leaves a broken one.
_OPENCV = ("opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless")
_DISTRIBUTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "autopipe": ("autopipe-tuner",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly"),
    "keras": ("keras", "keras-nightly"),
    "jax": ("jax",),
    "torch": ("torch",),
    "opencv": _OPENCV,
    "numpy": ("numpy",),
    "optuna": ("optuna",),
}
"""Of the packages that matter to speed, the distributions that may bring each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The resources of this process."""

    cpu: Cpu  # the processor and the cores that may be used
    memory: Memory  # main memory, limited by cgroups
    gpus: tuple[gpu.Gpu, ...]  # the visible GPUs, in NVML's order
    os: str  # the distribution, such as `Ubuntu 24.04.1 LTS`
    kernel: str  # such as `Linux 6.8.0-45-generic`
    python: str  # such as `3.11.7`
    versions: Mapping[str, str | None]  # see `installed_versions`

    def one_line(self) -> str:
        """Return the machine in a line, as in `2 cores (AMD EPYC), 23.5 GiB, no GPU`."""
        cores, every = self.cpu.cores, self.cpu.logical_cores
        limited = f"{cores} of " if cores < every else ""
        texts = [f"{limited}{every} core{'s' if every > 1 else ''} ({self.cpu.model})"]
        texts.append(size_text(self.memory.usable_bytes))
        for same, group in groupby(self.gpus):
            count = len(list(group))
            size = "" if same.memory_bytes is None else f" {size_text(same.memory_bytes)}"
            texts.append(f"{f'{count} x ' if count > 1 else ''}{same.name}{size}")
        return ", ".join(texts if self.gpus else [*texts, "no GPU"])


def detect(root: Path = ROOT) -> Machine:
    """Look at this machine. Imports no framework and starts no CUDA."""
    release = dict[str, str]()
    with contextlib.suppress(OSError):
        release = platform.freedesktop_os_release()
    return Machine(
        cpu=Cpu(
            model=model_name(root),
            cores=usable_cores(root),
            logical_cores=os.cpu_count() or 1,
            limits=core_limits(root),
        ),
        memory=detect_memory(root),
        gpus=gpu.detect(),
        os=release.get("PRETTY_NAME", platform.system()),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        versions=installed_versions(),
    )


def installed_versions() -> dict[str, str | None]:
    """Return the versions of packages that matter to speed, from their metadata; None if not installed."""
    return {name: next(filter(None, map(_installed_version, of)), None) for name, of in _DISTRIBUTIONS.items()}


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def opencv_installed() -> dict[str, str]:
    """Return the installed OpenCV distributions with their versions; normally one."""
    return {name: version for name in _OPENCV if (version := _installed_version(name)) is not None}


def opencv_warning(found: Mapping[str, str]) -> str | None:
    """Return a warning about the result of `opencv_installed`, with advice; None if all is well."""
    if not found:
        return "No OpenCV distribution is installed. Run: pip install opencv-python-headless"
    if len(found) == 1:
        return None
    names = " and ".join(f"{name} {version}" for name, version in found.items())
    keep = next((name for name in found if name.endswith("-headless")), next(iter(found)))
    return (
        f"{names} are installed together, but bring the same module `cv2`. "
        f"Run: pip uninstall -y {' '.join(found)} && pip install {keep}"
    )
