"""The whole machine as one value: what `autopipe doctor` shows and what a tuned profile is matched against.

Gathers what the other modules of this layer find. Which differences matter is decided where profiles are compared.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from autopipe.hardware import cpu, gpu, memory, mounts, opencv
from autopipe.hardware.cpu import Cpu
from autopipe.hardware.gpu import Gpu
from autopipe.hardware.memory import Memory, size_text

_DISTRIBUTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "autopipe": ("autopipe-tuner",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly"),
    "keras": ("keras", "keras-nightly"),
    "jax": ("jax",),
    "torch": ("torch",),
    "opencv": opencv.DISTRIBUTIONS,
    "kornia-rs": ("kornia-rs",),
    "numpy": ("numpy",),
    "optuna": ("optuna",),
}
"""Of the packages that matter to speed, the distributions that may bring each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this process has to work with. Equal to another one if nothing but the free space differs."""

    cpu: Cpu  # the processor and the cores that may be used
    memory: Memory  # main memory, limited by cgroups
    gpus: tuple[Gpu, ...]  # the visible GPUs, in NVML's order
    os: str  # the distribution, such as `Ubuntu 24.04.1 LTS`
    kernel: str  # such as `Linux 6.8.0-45-generic`
    python: str  # such as `3.11.7`
    versions: Mapping[str, str | None]  # see `installed_versions`

    def one_line(self) -> str:
        """Return the machine in a line, as in `2 cores (AMD EPYC), 23.5 GiB, no GPU`."""
        return ", ".join((self._cores(), size_text(self.memory.usable_bytes), *self._gpus()))

    def _cores(self) -> str:
        cores, every = self.cpu.cores, self.cpu.logical_cores
        limited = f"{cores} of " if cores < every else ""
        return f"{limited}{every} core{'s' if every > 1 else ''} ({self.cpu.model})"

    def _gpus(self) -> list[str]:
        texts = []
        for same, group in groupby(self.gpus):
            count = len(list(group))
            size = "" if same.memory_bytes is None else f" {size_text(same.memory_bytes)}"
            texts.append(f"{f'{count} x ' if count > 1 else ''}{same.name}{size}")
        return texts or ["no GPU"]


def detect(root: Path = mounts.ROOT) -> Machine:
    """Look at this machine. Imports no framework and starts no CUDA."""
    return Machine(
        cpu=cpu.detect(root),
        memory=memory.detect(root),
        gpus=gpu.detect(),
        os=_distribution(),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        versions=installed_versions(),
    )


def installed_versions() -> dict[str, str | None]:
    """Return the versions of the packages that matter to speed, from their metadata; None where one is not installed.

    A package that lies on the path without metadata is not seen. Nothing is imported to find out.
    """
    return {
        package: next(filter(None, map(opencv.distribution_version, names)), None)
        for package, names in _DISTRIBUTIONS.items()
    }


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()
