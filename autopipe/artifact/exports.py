"""The figures of a training for collectors: lines of JSON, Prometheus's text format, and exporters of extensions.

What the figures mean is the caller's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from autopipe import registry
from autopipe.errors import ConfigError, near
from autopipe.hardware import atomic

GROUP: Final = "autopipe.exporters"
HELP: Final = {
    "images_per_second": "Samples trained a second in the last epoch.",
    "promised_images_per_second": "The same when the pipeline was tuned.",
    "data_wait_share": "Part of the time that the training waited for data, 0 to 1.",
    "cores_of_others": "Cores that others kept busy, of those that this process may use.",
    "lost_workers": "Workers of the loader that died in the last epoch, and were replaced.",
}
DRIFTED: Final = "Whether training is slower than promised."


def append_line(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Add a line of JSON with the time, in seconds since 1970, to a file."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"time": round(time.time(), 3), **values}) + "\n")


def write_prometheus(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write the figures as gauges, in place of those of the epoch before; a reader sees the old file or the new one.

    The format is Prometheus's text exposition format, version 0.0.4.
    """
    lines = []
    for name, help_text in HELP.items():
        if values.get(name) is not None:
            metric = f"autopipe_{name}"
            lines += [f"# HELP {metric} {help_text}", f"# TYPE {metric} gauge", f"{metric} {values[name]:.6g}"]
    cause = values.get("cause")
    labels = "" if cause is None else f'{{cause="{cause}"}}'
    lines += [f"# HELP autopipe_drifted {DRIFTED}", "# TYPE autopipe_drifted gauge"]
    lines.append(f"autopipe_drifted{labels} {int(cause is not None)}")
    with atomic.replacing(Path(path)) as stream:
        stream.write(("\n".join(lines) + "\n").encode())


class Exporter(Protocol):
    """Hands the figures of each epoch on."""

    def set(self, values: Mapping[str, Any], /) -> None:
        """Take the figures of an epoch: those of `HELP`, some of them None, and `cause`, None without a drift."""
        ...


def exporter(name: str, value: Any, causes: Collection[str]) -> Exporter:
    """Make the exporter that an installed package has under a name, in the entry point group `autopipe.exporters`.

    Args:
        name: of the exporter.
        value: what it was asked for with, such as True; the exporter knows what it may be.
        causes: all that `cause` can be.

    Raises:
        ConfigError: there is none of that name.
        MissingExtraError: a package that it needs is not installed.
    """
    made = registry.named(name, GROUP)
    if made is None:
        known = ["jsonl", "prometheus", *(entry.name for entry in registry.declared(GROUP))]
        raise ConfigError(f"`DriftMonitor` takes {', '.join(known)}, but got `{name}`.{near(name, known)}")
    found: Exporter = made(value, causes)
    return found
