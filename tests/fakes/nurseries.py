"""Nurseries that are forked by a process which has imported what they need, and so start in no time.

Many tests of batches open loaders of processes, each of which starts a nursery: half a second of a core. How one is
really started is tested in `test_process.py`, `test_wrapped_faults.py` and `test_loader_faults.py`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import DupFd
from typing import IO, Any

from autopipe.pipeline.batching import process

IMPORTED = [
    f"autopipe.workload.{name}" for name in ("data.table", "ops.colors", "ops.custom", "ops.decode", "ops.geometry")
]


class Forked:
    """Stands in for `subprocess.Popen` in the module `process`."""

    def __init__(
        self, _: Sequence[str], *, pass_fds: Sequence[int], env: Mapping[str, str], stdin: int, stderr: IO[bytes]
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, *IMPORTED])
        self._process = context.Process(target=_Main(pass_fds, stderr.fileno(), env))
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode


class _Main:
    """Runs a nursery with copies of the descriptors, which it is pickled with."""

    def __init__(self, descriptors: Sequence[int], stderr: int, environment: Mapping[str, str]) -> None:
        self._descriptors: list[Any] = [*descriptors]
        self._stderr: Any = stderr
        self._environment, self._places = {**environment}, [*sys.path]

    def __getstate__(self) -> dict[str, Any]:
        copies = {"_descriptors": [*map(DupFd, self._descriptors)], "_stderr": DupFd(self._stderr)}
        return self.__dict__ | copies

    def __call__(self) -> None:
        numbers = [each.detach() for each in self._descriptors]
        os.dup2(self._stderr.detach(), 2)
        os.environ.clear()
        os.environ.update(self._environment)
        sys.path += [place for place in self._places if place not in sys.path]
        sys.argv = ["nursery", *map(str, numbers)]
        with contextlib.suppress(SystemExit):
            process.main()
