"""What a collector sees of a training, and the extra that it needs."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from autopipe.artifact import drift
from autopipe.artifact.drift import Cause, DriftMonitor, DriftWarning
from autopipe.errors import MissingExtraError
from autopipe.extensions.otel import Gauges
from autopipe.pipeline.devices.callbacks import EpochFigures
from tests.unit.artifact.test_drift import PROMISE


def _points(reader: InMemoryMetricReader) -> dict[str, dict[str | None, float]]:
    """Return what a collector would see: the value of each series by its cause, of each metric."""
    data: Any = reader.get_metrics_data()
    metrics = [metric for each in data.resource_metrics for scope in each.scope_metrics for metric in scope.metrics]
    return {
        metric.name: {point.attributes.get("cause"): point.value for point in metric.data.data_points}
        for metric in metrics
    }


def test_each_epoch_sets_the_gauges_of_open_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autopipe.hardware.machine.usable_cores", lambda: 4)
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    judge = drift._Judge([Gauges(provider, tuple(Cause)).set])
    trainer = types.SimpleNamespace(promise=PROMISE)
    with pytest.warns(DriftWarning, match="others on this machine"):
        judge(trainer, 0, EpochFigures(images_per_second=500.0, data_wait_share=0.5, cores_of_others=2.0))
    causes = dict.fromkeys(Cause, 0)
    assert _points(reader) == {
        "autopipe.images_per_second": {None: 500.0},
        "autopipe.promised_images_per_second": {None: 1000.0},
        "autopipe.data_wait_share": {None: 0.5},
        "autopipe.cores_of_others": {None: 2.0},
        "autopipe.lost_workers": {None: 0},
        "autopipe.loader_changes": {None: 0},
        "autopipe.drifted": {**causes, Cause.NEIGHBOURS: 1},
    }
    judge(trainer, 1, EpochFigures(images_per_second=1000.0, data_wait_share=0.05))
    recovered = _points(reader)
    provider.shutdown()
    assert recovered["autopipe.images_per_second"] == {None: 1000.0}
    assert recovered["autopipe.drifted"] == causes


def test_open_telemetry_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(MissingExtraError, match="the extra `otel` brings it"):
        DriftMonitor(otel=True)
