from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autopipe.core.value import Estimate
from autopipe.tuned.drift import Promise, shortfall

PROMISE = Promise(images_per_second=Estimate(value=1000.0, low=980.0, high=1020.0), data_wait_share=0.05)


@pytest.mark.parametrize("rate", [2000.0, 1000.0, 961.0])
def test_a_training_within_the_interval_keeps_the_promise(rate: float) -> None:
    assert shortfall(PROMISE, rate, 0.9) is None


def test_a_training_that_waits_for_data_is_told_to_retune() -> None:
    said = shortfall(PROMISE, 800.0, 0.25)
    assert said == (
        "The training takes 800 images/s, 20% less than the 1000 when its pipeline was tuned, "
        "and waits for data 25% of the time (5% then). Run: autopipe retune autopipe.json"
    )


def test_a_training_that_is_slow_for_another_reason_is_told_so() -> None:
    said = shortfall(PROMISE, 800.0, 0.06)
    assert said is not None
    assert "waits no longer for data (6% of the time)" in said
    assert "Run: autopipe check autopipe.json" in said


def test_the_artefact_is_named_where_it_lies() -> None:
    promise = dataclasses.replace(PROMISE, artifact=Path("/my models/retune/autopipe.json"))
    for waits, command in ((0.25, "retune"), (0.06, "check")):
        said = shortfall(promise, 800.0, waits)
        assert said is not None
        assert said.endswith(f"Run: autopipe {command} '/my models/retune/autopipe.json'")
