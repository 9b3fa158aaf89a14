"""Nurseries that are forked by a process which has imported what they need, and so start in no time.

Many tests of batches open loaders of processes, each of which starts a nursery: half a second of a core. How one is
really started is tested in `test_process.py` and `test_loader_faults.py`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, get_context
from multiprocessing.reduction import DupFd
from typing import IO, Any

from autopipe.pipeline.batching import process

IMPORTED = [
    f"autopipe.workload.{name}" for name in ("data.table", "ops.colors", "ops.custom", "ops.decode", "ops.geometry")
]


def begin() -> None:
    """Start the process that nurseries are forked from, unless it runs."""
    forkserver.set_forkserver_preload([__name__, *IMPORTED])
    forkserver.ensure_running()


class Forked:
    """Stands in for `subprocess.Popen` in the module `process`."""

    def __init__(
        self, _: Sequence[str], *, pass_fds: Sequence[int], env: Mapping[str, str], stdin: int, stderr: IO[bytes]
    ) -> None:
        self._process = get_context("forkserver").Process(target=_Main(pass_fds, stderr.fileno(), env))
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self.poll()


class _Main:
    """Runs a nursery with copies of the descriptors, which it is pickled with."""

    def __init__(self, descriptors: Sequence[int], stderr: int, environment: Mapping[str, str]) -> None:
        self._descriptors: list[Any] = [*descriptors]
        self._standard: list[Any] = [1, stderr]
        self._environment, self._places = {**environment}, [*sys.path]

    def __getstate__(self) -> dict[str, Any]:
        numbers = {"_descriptors": self._descriptors, "_standard": self._standard}
        return self.__dict__ | {name: [*map(DupFd, each)] for name, each in numbers.items()}

    def __call__(self) -> None:
        numbers = [each.detach() for each in self._descriptors]
        for number, copy in enumerate(self._standard, start=1):
            os.dup2(copy.detach(), number)
        os.environ.clear()
        os.environ.update(self._environment)
        sys.path += [place for place in self._places if place not in sys.path]
        sys.argv = ["nursery", *map(str, numbers)]
        with contextlib.suppress(SystemExit):
            process.main()
