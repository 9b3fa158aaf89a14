from __future__ import annotations

import json

import pydantic
import pytest

from autopipe.measure.outcome import (
    FailureKind,
    Measurement,
    Phase,
    Ran,
    Resources,
    TrialFailure,
    Window,
    parse_outcome,
)
from autopipe.values import Estimate

MEASUREMENT = Measurement(
    config={"loader": {"kind": "threads", "workers": 2}, "devices": 1},
    config_key="abc",
    batch_size=32,
    windows=(Window(images=320, seconds=2.0, waiting_seconds=0.5), Window(images=320, seconds=1.5)),
    images_per_second=Estimate(value=100.0, low=99.0, high=101.0),
    first_batch_seconds=0.2,
    cache_fill_seconds=3.0,
    discarded_batches=21,
    stable=False,
    warnings=("The rate still moved.",),
    data_wait_share=0.1,
    resources=Resources(cpu_percent=180.0, peak_rss_bytes=1 << 30),
    page_cache="warm",
    ran=Ran(threads=2, processes=1, devices=("CPU:0",), backend="tensorflow", versions={"keras": "3"}),
    phase_seconds={Phase.OPEN: 0.1, Phase.MEASURE: 3.5},
    overhead_seconds=0.4,
)

FAILURE = TrialFailure(
    kind=FailureKind.HUNG, phase=Phase.FILL, message="silent", hint="wait", log_tail="…", config={"devices": 1}
)


@pytest.mark.parametrize("outcome", [MEASUREMENT, FAILURE])
def test_an_outcome_survives_json(outcome: Measurement | TrialFailure) -> None:
    assert outcome == parse_outcome(outcome.model_dump_json())


def test_an_outcome_survives_a_store_of_json_values() -> None:
    assert parse_outcome(json.dumps(MEASUREMENT.model_dump(mode="json"))) == MEASUREMENT


def test_measured_time_is_the_sum_of_the_windows() -> None:
    assert MEASUREMENT.measured_seconds == 3.5


@pytest.mark.parametrize(
    "change", [{"status": "fine"}, {"schema_version": 2}, {"surprise": 1}, {"kind": "odd"}, {"message": 3}]
)
def test_another_schema_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(pydantic.ValidationError):
        parse_outcome(json.dumps({**FAILURE.model_dump(mode="json"), **change}))
