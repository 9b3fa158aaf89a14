"""Figures of a training for those who collect them: lines of JSON, Prometheus's text format, OpenTelemetry's gauges.

No dependency but OpenTelemetry's interface, an extra, where it is asked for. What the figures mean is the caller's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autopipe.errors import MissingExtraError
from autopipe.hardware import atomic

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

_HELP: Final = {
    "images_per_second": "Samples trained a second in the last epoch.",
    "promised_images_per_second": "The same when the pipeline was tuned.",
    "data_wait_share": "Part of the time that the training waited for data, 0 to 1.",
    "cores_of_others": "Cores that others kept busy, of those that this process may use.",
    "lost_workers": "Workers of the loader that died in the last epoch, and were replaced.",
}
_DRIFTED: Final = "Whether training is slower than promised."


def append_line(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Add a line of JSON with the time, in seconds since 1970, to a file."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"time": round(time.time(), 3), **values}) + "\n")


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
    lines += [f"# HELP autopipe_drifted {_DRIFTED}", "# TYPE autopipe_drifted gauge"]
    lines.append(f"autopipe_drifted{labels} {int(cause is not None)}")
    with atomic.replacing(Path(path)) as stream:
        stream.write(("\n".join(lines) + "\n").encode())


class Gauges:
    """OpenTelemetry gauges of the figures; how they leave the process is the meter provider's."""

    def __init__(self, causes: Collection[str], provider: MeterProvider | None = None) -> None:
        """Make the gauges, which hold nothing until they are set; each cause has a series of `autopipe.drifted`.

        Raises:
            MissingExtraError: OpenTelemetry is not installed.
        """
        try:
            from opentelemetry import metrics
        except ImportError:
            raise MissingExtraError.of("otel", "opentelemetry-api") from None
        meter = metrics.get_meter("autopipe", meter_provider=provider)
        self._causes = causes
        self._figures = {name: meter.create_gauge(f"autopipe.{name}", description=text) for name, text in _HELP.items()}
        self._drifted = meter.create_gauge("autopipe.drifted", description=_DRIFTED)

    def set(self, values: Mapping[str, Any]) -> None:
        """Set the gauges to the figures that there are, and `autopipe.drifted` to 1 for the cause, to 0 for others."""
        for name, gauge in self._figures.items():
            if values.get(name) is not None:
                gauge.set(values[name])
        for cause in self._causes:
            self._drifted.set(int(values.get("cause") == cause), {"cause": cause})
