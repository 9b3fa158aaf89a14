"""What the meter of a trial is told of the loader that feeds it."""

from __future__ import annotations

import itertools

import pytest

from autopipe.core.config import PipelineConfig
from autopipe.devices.timed import TimedLoader
from autopipe.loaders.tfdata import TfData
from autopipe.measure.feed import meter_for
from autopipe.measure.options import MeasureOptions
from tests.fakes.loader import ArrayLoader, blobs


@pytest.mark.parametrize(("at_once", "workers"), [(None, 3), (1, 1), (8, 8)])
def test_windows_begin_when_batches_that_are_made_side_by_side_have_spread_out(
    at_once: int | None, workers: int
) -> None:
    source = ArrayLoader(*blobs(), 4)
    source.batches_at_once = at_once
    config = PipelineConfig(loader=TfData(num_parallel_calls=3, prefetch=1))
    meter = meter_for(TimedLoader(source), config, MeasureOptions())
    for step in itertools.count(1):
        if meter.step(step, None):
            meter.look(step * 0.001, 0.0)
        if meter.began_at is not None:
            break
    assert meter.discarded_batches == 1 + workers + 2
