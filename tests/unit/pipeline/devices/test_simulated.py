from __future__ import annotations

from typing import Any

import keras
import pytest

from autopipe.errors import ConfigError
from autopipe.pipeline.config import ModelSetup
from autopipe.pipeline.devices import model as models
from autopipe.pipeline.devices.model import SimulatedModel
from autopipe.pipeline.devices.simulated import SimulatedAccelerator, Timeline
from autopipe.pipeline.devices.trainer import Trainer
from tests.fakes.loader import ArrayLoader, blobs


class FakeTime:
    """A clock that only `sleep` and the test move; each sleep lasts `overshoot` too long."""

    def __init__(self, overshoot: float = 0.0) -> None:
        self.now, self.overshoot = 0.0, overshoot
        self.timeline = Timeline(lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.overshoot


def simulated(*settings: float, samples: int, together: int = 1) -> tuple[Trainer, FakeTime]:
    model, time = SimulatedModel(*settings), FakeTime()
    model.timeline = time.timeline
    trainer = Trainer(model, ArrayLoader(*blobs(samples), 4))
    trainer.setup = ModelSetup(steps_per_execution=together)
    return trainer, time


def test_a_step_starts_when_the_one_before_it_is_over() -> None:
    time, seen = FakeTime(), list[float]()
    for _ in range(2):
        time.timeline.start(2.0)
        seen.append(time.now)
    time.timeline.wait_until(time.timeline.free_at)
    assert [*seen, time.now] == [0.0, 2.0, 4.0]  # the host goes on


@pytest.mark.parametrize(("host", "overshoot", "over"), [(0.0, 0.0, 20.0), (5.0, 0.0, 52.0), (0.0, 0.001, 20.001)])
def test_a_late_host_idles_the_device_and_oversleeping_counts_once(host: float, overshoot: float, over: float) -> None:
    time = FakeTime(overshoot)
    for _ in range(10):
        time.now += host
        time.timeline.start(2.0)
    time.timeline.wait_until(time.timeline.free_at)
    assert time.now == pytest.approx(over, abs=1e-6)


def test_a_step_takes_its_time_whatever_the_batch_or_in_proportion_to_it() -> None:
    assert [SimulatedAccelerator(0.224, 400).seconds(size) for size in (400, 100)] == pytest.approx([0.224, 0.056])
    assert SimulatedAccelerator(0.015).seconds(7) == 0.015


@pytest.mark.parametrize("arguments", [(0.0,), (float("nan"),), ("15ms",), (1.0, 0), (1.0, "8")])
def test_impossible_devices_are_refused(arguments: Any) -> None:
    with pytest.raises(ConfigError, match="must be"):
        SimulatedAccelerator(*arguments)


@pytest.mark.parametrize("at_once", [1, 4])
def test_fit_takes_as_long_as_the_device_would(at_once: int) -> None:
    trainer, time = simulated(0.5, 4, samples=22, together=at_once)
    assert trainer.fit(epochs=2, verbose=0).history == {"loss": [0.0, 0.0]}
    assert time.now == pytest.approx(2 * 5.5 * 0.5)  # the last batch of each epoch holds 2 of 4 samples


@pytest.mark.parametrize(("reads", "expected"), [(False, [0.0, 0.5, 1.0]), (True, [0.5, 1.0, 1.5])])
def test_only_who_reads_the_loss_waits_for_the_step(reads: bool, expected: list[float]) -> None:
    seen = list[float]()

    def look(batch: int, logs: dict[str, float]) -> None:
        assert not reads or logs["loss"] == 0.0
        seen.append(time.now)

    trainer, time = simulated(0.5, samples=12)
    trainer.fit(verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=look)])
    assert seen == pytest.approx(expected)


def test_evaluation_and_prediction_take_time_too() -> None:
    trainer, time = simulated(0.5, samples=20)
    assert trainer.evaluate(trainer.loader, verbose=0) == 0.0
    assert time.now == pytest.approx(2.5)
    assert trainer.predict(trainer.loader, verbose=0).shape == (20, 1)


def test_it_is_a_workloads_model_and_can_be_saved(tmp_path: object) -> None:
    models.build(SimulatedAccelerator(0.25, 8)).save(f"{tmp_path}/device.keras")
    loaded = keras.saving.load_model(f"{tmp_path}/device.keras")
    assert (loaded.stands_for, loaded.compiled) == (SimulatedAccelerator(0.25, 8), True)


def test_the_utilisation_is_the_part_of_the_time_that_it_computes() -> None:
    found = [
        SimulatedAccelerator(0.224, 400).utilisation(*at) for at in ((1786, 400), (893, 400), (893, 32), (9999, 9))
    ]
    assert found == pytest.approx([1.0, 0.5, 0.5, 1.0], abs=0.001)
