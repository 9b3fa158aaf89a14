"""`--trace`: what trials note of their reads and ops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe import native
from autopipe.measure.session import Session
from autopipe.pipeline.batching import trace
from autopipe.pipeline.config import LoaderConfig
from tests.fakes.reports import Told
from tests.integration.test_measure import QUICK

pytestmark = pytest.mark.slow


def slow(image: Any) -> Any:
    return np.sort(np.repeat(image, 40, axis=0), axis=0)[: len(image)]  # takes longer than spans that are left out


@pytest.mark.parametrize(
    "loader", [ap.Threads(workers=2), ap.Threads(workers=2, read_ahead=4), ap.Processes(workers=1), ap.TfData()]
)
def test_a_trial_and_the_ops_and_batches_of_its_workers_are_spans(
    loader: LoaderConfig, tmp_path: Path, photos: Path
) -> None:
    workload = ap.Workload(
        data=ap.Table(photos / "labels.csv", path="path", label="label"),
        ops=[ap.Decode(), ap.Resize(256, 256), ap.Map(slow)],
        model=ap.SimulatedAccelerator(step_seconds=0.002),
        batch_size=4,
    )
    config = ap.PipelineConfig(loader=loader)
    session = Session(workload)
    with trace.begun(tmp_path / "trace.json") as file:
        session.measure(config, {**QUICK, "trace": file}, Told())
    session.close()
    spans = [event for event in json.loads((tmp_path / "trace.json").read_text()) if event["ph"] == "X"]
    named = {event["name"] for event in spans}
    mapped = workload.ops[-1].name
    assert named >= {config.short(), mapped}
    assert named >= ({"native batch"} if native.why_not() is None else {"Decode", "Resize"})
    of_ops = {event["pid"] for event in spans if event["name"] == mapped}
    of_trial = {event["pid"] for event in spans if event["name"] == config.short()}
    assert (of_ops == of_trial) == (loader.kind != "processes")
