"""Looks at a process tree and the GPUs at a steady pace, from a thread of its own.

Started best in the process that watches a trial, where it takes nothing from the trial's interpreter. It only takes
samples; the figures are derived in `usage`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from autopipe.hardware import cpu, neighbours, process_tree
from autopipe.hardware.gpu import Nvml
from autopipe.hardware.process_tree import ProcessTree
from autopipe.hardware.usage import Sample, Usage


class Sampler:
    """Samples a process tree from `start` to `stop`, or within a `with` block.

    Example:
        >>> with Sampler(period_seconds=0.05) as sampler:
        ...     total = sum(range(1000))
        >>> sampler.usage.peak_processes >= 1
        True

    Args:
        pid: the first process of the tree; this process where None.
        period_seconds: time between samples.
        nvml: an open library to ask about GPUs, which stays open; where None, one is opened and closed here.
        clock: time of a sample.
        proc: where the kernel shows processes; a test shows its own.
    """

    def __init__(
        self,
        pid: int | None = None,
        *,
        period_seconds: float = 0.25,
        nvml: Nvml | None = None,
        clock: Callable[[], float] = time.monotonic,
        proc: Path = process_tree.PROC,
    ) -> None:
        self._tree, self._proc = ProcessTree(os.getpid() if pid is None else pid, proc), proc
        self._period, self._spare = period_seconds, cpu.spare_cores()
        self._given, self._nvml = nvml, nvml
        self._clock = clock
        self._samples: list[Sample] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autopipe-sampler", daemon=True)

    def start(self) -> None:
        """Take the first sample and go on in a thread. A sampler starts once."""
        self._nvml = self._given or Nvml()
        self._sample()
        self._thread.start()

    def stop(self) -> Usage:
        """Take the last sample, end the thread and return everything; a second call returns the same."""
        if self._thread.is_alive():
            self._stopping.set()
            self._thread.join()
            self._sample()
            if self._nvml is not None and self._given is None:
                self._nvml.close()
        return self.usage

    @property
    def usage(self) -> Usage:
        """What was seen until now."""
        return Usage(samples=tuple(self._samples), spare_cores=self._spare)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stopping.wait(self._period):
            self._sample()

    def _sample(self) -> None:
        self._samples.append(
            Sample(
                tree=self._tree.read(),
                seconds=self._clock(),
                machine_cpu_seconds=neighbours.busy_seconds(self._proc),
                gpus=self._nvml.use() if self._nvml else (),
            )
        )
