"""Programs run as users run them: in a process of their own, with this checkout's `autopipe`."""

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autopipe import native
from autopipe.pipeline.config import LoaderConfig

ROOT = Path(__file__).parents[2]
Done = subprocess.CompletedProcess[str]
TRAIN = """
import numpy as np
import autopipe as ap

def build_model():
    import keras
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return model

data = ap.Arrays(np.zeros((256, 4), "float32"), np.zeros((256, 1), "float32"))
workload = ap.Workload(data=data, ops=[ap.Rescale(0.5)], batch_size=4, model=build_model)
"""


def environment(backend: str = "jax", **variables: str) -> dict[str, str]:
    """This process's variables with a Keras backend, of which JAX is imported in a second."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"} | variables


def _run(command: list[str], cwd: Path | str | None, env: dict[str, str]) -> Done:
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=280, check=False)


def python(*arguments: object, cwd: Path | str | None = None, backend: str = "jax", **variables: str) -> Done:
    return _run([sys.executable, *map(str, arguments)], cwd, environment(backend, **variables))


def autopipe(*arguments: object, cwd: Path | str | None = None, backend: str = "jax", **variables: str) -> Done:
    return python("-m", "autopipe", *arguments, cwd=cwd, backend=backend, **variables)


def in_shell(line: str, folder: Path) -> Done:
    return _run(["bash", "-c", line], folder, environment())


def succeeded(done: Done) -> Done:
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done


def children() -> list[psutil.Process]:
    """The processes below this one but for Python's tracker of shared memory and the fork server of `nurseries`."""
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


@contextlib.contextmanager
def by_python() -> Iterator[None]:
    """Have Python make samples, in this process and in those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOPIPE_NATIVE", "0")
        patch.setattr(native, "why_not", lambda: "AUTOPIPE_NATIVE=0 is set")
        yield


_CONSUMER = """
import os, signal, sys, psutil
import autopipe as ap

if __name__ == "__main__":
    work = ap.Workload(data=ap.Table({table!r}), ops=[{decode}, ap.Resize(16, 16)], batch_size=4)
    loader = ap.make_loader(work, ap.PipelineConfig(loader={loader}, keep={keep!r}))
    batches = loader.batches(0)
    next(batches)
    print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
{end}
"""


def code(loader: LoaderConfig) -> str:
    knobs = ", ".join(f"{name}={value!r}" for name, value in loader.model_dump(exclude={"kind"}).items())
    return f"ap.{type(loader).__name__}({knobs})"


def script(folder: Path, loader: LoaderConfig, end: str, *, decode: str = "ap.Decode()", keep: str = "none") -> str:
    """Return a script that reads a first batch of `labels.csv` in a folder, prints its processes, and ends somehow."""
    table = str(folder / "labels.csv")
    end = textwrap.indent(textwrap.dedent(end), "    ")
    return _CONSUMER.format(table=table, loader=code(loader), end=end, decode=decode, keep=keep)
