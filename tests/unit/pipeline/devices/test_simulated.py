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
        self.now = 100.0
        self.overshoot = overshoot

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.overshoot

    def timeline(self) -> Timeline:
        return Timeline(self.clock, self.sleep)


def test_a_step_starts_when_the_one_before_it_is_over() -> None:
    time = FakeTime()
    timeline = time.timeline()
    timeline.start(2.0)
    assert time.now == 100.0  # the host goes on
    timeline.start(2.0)
    assert time.now == 102.0
    timeline.wait_until(timeline.free_at)
    assert time.now == 104.0


@pytest.mark.parametrize(("host", "overshoot", "over"), [(0.0, 0.0, 20.0), (5.0, 0.0, 52.0), (0.0, 0.001, 20.001)])
def test_a_late_host_idles_the_device_and_oversleeping_counts_once(host: float, overshoot: float, over: float) -> None:
    time = FakeTime(overshoot)
    timeline = time.timeline()
    for _ in range(10):
        time.now += host
        timeline.start(2.0)
    timeline.wait_until(timeline.free_at)
    assert time.now - 100.0 == pytest.approx(over, abs=1e-6)


def test_a_step_takes_its_time_whatever_the_batch_or_in_proportion_to_it() -> None:
    assert [SimulatedAccelerator(0.224, 400).seconds(size) for size in (400, 100)] == pytest.approx([0.224, 0.056])
    assert SimulatedAccelerator(0.015).seconds(7) == 0.015


@pytest.mark.parametrize("arguments", [(0.0,), (float("nan"),), ("15ms",), (1.0, 0), (1.0, "8")])
def test_impossible_devices_are_refused(arguments: Any) -> None:
    with pytest.raises(ConfigError, match="must be"):
        SimulatedAccelerator(*arguments)


@pytest.mark.parametrize("at_once", [1, 4])
def test_fit_takes_as_long_as_the_device_would(at_once: int) -> None:
    time = FakeTime()
    model = SimulatedModel(0.5, 4)
    model.timeline = time.timeline()
    trainer = Trainer(model, ArrayLoader(*blobs(22), 4))
    trainer.setup = ModelSetup(steps_per_execution=at_once)
    history = trainer.fit(epochs=2, verbose=0)
    assert time.now - 100.0 == pytest.approx(2 * 5.5 * 0.5)  # the last batch of each epoch holds 2 of 4 samples
    assert history.history == {"loss": [0.0, 0.0]}


@pytest.mark.parametrize(("reads", "expected"), [(False, [0.0, 0.5, 1.0]), (True, [0.5, 1.0, 1.5])])
def test_only_who_reads_the_loss_waits_for_the_step(reads: bool, expected: list[float]) -> None:
    time, seen = FakeTime(), list[float]()

    def look(batch: int, logs: dict[str, float]) -> None:
        assert not reads or logs["loss"] == 0.0
        seen.append(time.now - 100.0)

    model = SimulatedModel(0.5)
    model.timeline = time.timeline()
    trainer = Trainer(model, ArrayLoader(*blobs(12), 4))
    trainer.fit(verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=look)])
    assert seen == pytest.approx(expected)


def test_evaluation_and_prediction_take_time_too() -> None:
    time = FakeTime()
    model = SimulatedModel(0.5)
    model.timeline = time.timeline()
    loader = ArrayLoader(*blobs(20), 4)
    trainer = Trainer(model, loader)
    assert trainer.evaluate(loader, verbose=0) == 0.0
    assert time.now - 100.0 == pytest.approx(2.5)
    assert trainer.predict(loader, verbose=0).shape == (20, 1)


def test_it_is_a_workloads_model_and_can_be_saved(tmp_path: object) -> None:
    model = models.build(SimulatedAccelerator(0.25, 8))
    model.save(f"{tmp_path}/device.keras")
    loaded = keras.saving.load_model(f"{tmp_path}/device.keras")
    assert loaded.stands_for == SimulatedAccelerator(0.25, 8)
    assert loaded.compiled


def test_the_utilisation_is_the_part_of_the_time_that_it_computes() -> None:
    h100 = SimulatedAccelerator(0.224, 400)
    assert h100.utilisation(1786.0, 400) == pytest.approx(1.0, abs=0.001)
    assert h100.utilisation(893.0, 400) == pytest.approx(0.5, abs=0.001)
    assert h100.utilisation(893.0, 32) == pytest.approx(0.5, abs=0.001)
    assert h100.utilisation(9999.0, 400) == 1.0
