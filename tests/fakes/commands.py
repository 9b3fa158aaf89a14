"""Programs run as users run them: in a process of their own, with this checkout's `autopipe`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
Done = subprocess.CompletedProcess[str]


def environment(backend: str = "jax", **variables: str) -> dict[str, str]:
    """This process's variables with a Keras backend, of which JAX is imported in a second."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"} | variables


def python(*arguments: object, cwd: Path | str | None = None, backend: str = "jax", **variables: str) -> Done:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment(backend, **variables),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def autopipe(*arguments: object, cwd: Path | str | None = None, backend: str = "jax", **variables: str) -> Done:
    return python("-m", "autopipe", *arguments, cwd=cwd, backend=backend, **variables)


def in_shell(line: str, folder: Path) -> Done:
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment(), capture_output=True, text=True, timeout=280, check=False
    )


def succeeded(done: Done) -> Done:
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done


def children() -> list[psutil.Process]:
    """The processes below this one but for two of Python's own, which begin once and end with this one.

    The resource tracker begins with the first memory that a test shares by `multiprocessing`, and the fork server with
    the first nursery that `tests.fakes.nurseries` forks.
    """
    tracker, server = ("from multiprocessing." + name for name in ("resource_tracker", "forkserver"))
    found = list[psutil.Process]()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            line = " ".join(process.cmdline())
            if tracker not in line and not (server in line and process.ppid() == os.getpid()):
                found.append(process)
    return found


def content(folder: Path) -> dict[str, bytes]:
    """The files in a folder but for hidden ones."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}


@contextlib.contextmanager
def forgotten(folder: Path) -> Iterator[None]:
    """Forget what was imported from a folder, and where it was looked for, as if a process of its own had done it."""
    before = list(sys.path)
    yield
    sys.path[:] = before
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]
