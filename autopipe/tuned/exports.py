"""Figures of a training for those who collect them: lines of JSON, and Prometheus's text format. No dependency."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from autopipe.hardware import atomic

_HELP: Final = {
    "images_per_second": "Samples trained a second in the last epoch.",
    "promised_images_per_second": "The same when the pipeline was tuned.",
    "data_wait_share": "Part of the time that the training waited for data, 0 to 1.",
    "cores_of_others": "Cores that others on the machine kept busy.",
}


def append_line(
    path: str | os.PathLike[str], values: Mapping[str, Any], clock: Callable[[], float] = time.time
) -> None:
    """Add a line of JSON with the time, in seconds since 1970, to a file."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"time": round(clock(), 3), **values}) + "\n")


def write_prometheus(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write the figures as gauges, in place of those of the epoch before; a reader sees the old file or the new one.

    The format is Prometheus's text exposition format, version 0.0.4.
    """
    lines = []
    for name, help_text in _HELP.items():
        if values.get(name) is not None:
            metric = f"autopipe_{name}"
            lines += [f"# HELP {metric} {help_text}", f"# TYPE {metric} gauge", f"{metric} {values[name]:.6g}"]
    cause = values.get("cause")
    labels = "" if cause is None else f'{{cause="{cause}"}}'
    lines += ["# HELP autopipe_drifted Whether training is slower than promised.", "# TYPE autopipe_drifted gauge"]
    lines.append(f"autopipe_drifted{labels} {int(cause is not None)}")
    with atomic.replacing(Path(path)) as stream:
        stream.write(("\n".join(lines) + "\n").encode())
