"""OpenTelemetry gauges of a training's figures: `ap.DriftMonitor(otel=True)`. It needs the extra `otel`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

from autopipe.artifact.drift import DRIFTED, HELP
from autopipe.errors import extra_module

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider


class Gauges:
    """OpenTelemetry gauges of the figures. The meter provider exports them.

    They hold nothing until they are set. Each cause has a series of `autopipe.drifted`.

    Args:
        provider: a meter provider; True for the global one.
        causes: of a drift.

    Raises:
        MissingExtraError: OpenTelemetry is not installed.
    """

    def __init__(self, provider: MeterProvider | Literal[True], causes: Collection[str]) -> None:
        metrics = extra_module("otel", "opentelemetry.metrics")
        meter = metrics.get_meter("autopipe", meter_provider=None if provider is True else provider)
        self._causes = causes
        self._figures = {name: meter.create_gauge(f"autopipe.{name}", description=text) for name, text in HELP.items()}
        self._drifted = meter.create_gauge("autopipe.drifted", description=DRIFTED)

    def set(self, values: Mapping[str, Any]) -> None:
        """Set the gauges to the given figures, and `autopipe.drifted` to 1 for the cause, to 0 for others."""
        for name, gauge in self._figures.items():
            if values.get(name) is not None:
                gauge.set(values[name])
        for cause in self._causes:
            self._drifted.set(int(values.get("cause") == cause), {"cause": cause})
