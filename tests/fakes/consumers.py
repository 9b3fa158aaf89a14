"""Scripts of users who read a loader's first batch, say which processes it has, and end in one way or another."""

from __future__ import annotations

import textwrap
from pathlib import Path

from autopipe.pipeline.config import LoaderConfig

_SCRIPT = """
import os, signal, sys, psutil
import autopipe as ap

if __name__ == "__main__":
    work = ap.Workload(data=ap.Table({table!r}), ops=[{decode}, ap.Resize(16, 16)], batch_size=4)
    loader = ap.build_loader(work, ap.PipelineConfig(loader={loader}, keep={keep!r}))
    batches = loader.batches(0)
    next(batches)
    print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
{end}
"""


def code(loader: LoaderConfig) -> str:
    knobs = ", ".join(f"{name}={value!r}" for name, value in loader.model_dump(exclude={"kind"}).items())
    return f"ap.{type(loader).__name__}({knobs})"


def script(folder: Path, loader: LoaderConfig, end: str, *, decode: str = "ap.Decode()", keep: str = "none") -> str:
    """Return a script that reads the images of `labels.csv` in a folder."""
    table = str(folder / "labels.csv")
    end = textwrap.indent(textwrap.dedent(end), "    ")
    return _SCRIPT.format(table=table, loader=code(loader), end=end, decode=decode, keep=keep)
