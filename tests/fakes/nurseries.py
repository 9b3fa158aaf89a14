"""Nurseries that are forked by a process which has imported what they need, and so start in no time.

Many tests of batches open loaders of processes, each of which starts a nursery: half a second of a core. How one is
really started is tested in `test_process.py` and `test_loader_faults.py`.
"""

import contextlib
import operator
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
        copies = [_Copy(number) for number in (1, stderr.fileno(), *pass_fds)]
        self._process = get_context("forkserver").Process(target=_main, args=(copies, {**env}, [*sys.path]))
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self.poll()


class _Copy:
    """A descriptor, in whose place the process that it is pickled for gets a copy of it."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.methodcaller("detach"), (DupFd(self._number),)


def _main(descriptors: Sequence[int], environment: Mapping[str, str], places: Sequence[str]) -> None:
    for number, copy in enumerate(descriptors[:2], start=1):
        os.dup2(copy, number)
    os.environ.clear()
    os.environ.update(environment)
    sys.path += [place for place in places if place not in sys.path]
    sys.argv = ["nursery", *map(str, descriptors[2:])]
    with contextlib.suppress(SystemExit):
        process.main()
