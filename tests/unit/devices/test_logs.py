from __future__ import annotations

import json
from typing import Any

import numpy as np

from autopipe.devices.logs import StepLogs


class OnDevice:
    """A number that counts how often it was fetched."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.fetched = 0

    def __float__(self) -> float:
        self.fetched += 1
        return self.value


def logs() -> tuple[StepLogs, OnDevice]:
    loss = OnDevice(0.5)
    return StepLogs({"loss": loss, "accuracy": 1.0}), loss


def test_nothing_is_fetched_until_it_is_read() -> None:
    step, loss = logs()
    assert "loss" in (step or {})
    assert list(step) == ["accuracy", "loss"]
    assert len(step) == 2
    assert loss.fetched == 0
    assert step["loss"] == 0.5
    assert loss.fetched == 1


def test_every_way_of_reading_gives_numbers() -> None:
    expected = {"accuracy": 1.0, "loss": 0.5}
    ways: list[Any] = [
        dict(logs()[0]),
        {**logs()[0]},
        dict(logs()[0].items()),
        dict(zip(logs()[0], logs()[0].values(), strict=True)),
        logs()[0].copy(),
        {name: logs()[0].get(name) for name in logs()[0]},
        json.loads(json.dumps(logs()[0])),
    ]
    assert ways == [expected] * len(ways)
    assert logs()[0].get("none", 3) == 3


def test_as_an_array_all_are_waited_for() -> None:
    step, loss = logs()
    assert np.asarray(step).tolist() == [1.0, 0.5]
    assert loss.fetched == 1


def test_what_is_no_number_is_passed_on() -> None:
    step = StepLogs({"words": "a", "nested": {"loss": OnDevice(2.0)}})
    assert step["words"] == "a"
    assert step["nested"]["loss"] == 2.0
