from __future__ import annotations

import types
from pathlib import Path

import pytest

from autopipe import again
from autopipe.artifact.drift import DriftMonitor, DriftWarning, Promise, shortfall
from autopipe.pipeline.devices.callbacks import EpochFigures
from autopipe.values import Estimate
from tests.fakes.facts import known
from tests.fakes.profiles import config, hardware, profile

LIES = "/my models/retune/autopipe.json"
PROMISE = Promise(profile=profile(hardware=hardware(cores=4)), artifact=Path(LIES))


def fell(rate: float, waits: float, *, others: float = 0.0, cores: int = 4, promise: Promise = PROMISE) -> str | None:
    return shortfall(
        promise, EpochFigures(images_per_second=rate, data_wait_share=waits, cores_of_others=others), cores
    )


@pytest.mark.parametrize("rate", [2000.0, 1000.0, 961.0])
def test_a_training_within_the_interval_keeps_the_promise(rate: float) -> None:
    assert fell(rate, 0.9, others=3.0, cores=1) is None


def test_a_training_that_waits_for_data_is_told_to_retune() -> None:
    assert fell(800.0, 0.25, others=0.2) == (
        "The training takes 800 images/s, 20% less than the 1000 when its pipeline was tuned, "
        f"and waits for data 25% of the time (5% then). Run: {again.autopipe('retune', LIES)}"
    )


@pytest.mark.parametrize(
    ("waits", "others", "cores", "said", "command"),
    [
        (0.25, 1.5, 4, "others on this machine keep 1.5 of", "check"),
        (0.06, 1.5, 4, "waits no longer for data (6% of the time)", "check"),
        (0.06, 0.0, 2, "it may use 2 of the 4 cores that it had then.", "retune"),
        (0.25, 0.0, 2, "it may use 2 of the 4 cores that it had then.", "retune"),
    ],
    ids=str,
)
def test_what_is_in_the_way_of_a_slow_training_is_told_with_what_to_run(
    waits: float, others: float, cores: int, said: str, command: str
) -> None:
    found = known(fell(800.0, waits, others=others, cores=cores))
    assert said in found
    assert found.endswith(f"Run: {again.autopipe(command, LIES)}")


def test_half_of_the_promise_is_too_little_whatever_its_interval_or_cores() -> None:
    one_window = profile(hardware=hardware(cores=4), images_per_second=Estimate.of_one(1000.0))  # steps of many seconds
    once = Promise(profile=one_window)
    assert fell(510.0, 0.25, promise=once) is None
    assert fell(490.0, 0.25, promise=once) is not None


def test_the_first_epoch_does_not_count_if_a_cache_fills_in_it() -> None:
    judge = DriftMonitor()._judge
    cached = types.SimpleNamespace(promise=Promise(profile=profile(config=config(keep="memory"))))
    slow = EpochFigures(images_per_second=1.0, data_wait_share=1.0)
    judge(cached, 0, slow)  # a warning would be an error
    with pytest.warns(DriftWarning):
        judge(cached, 1, slow)
    judge(cached, 2, slow)  # told once


def test_a_failure_to_compare_ends_no_training_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> int:
        raise ValueError("invalid literal for int(): 'max'")  # what a kernel of tomorrow may make of a file of limits

    judge, trainer = DriftMonitor()._judge, types.SimpleNamespace(promise=PROMISE)
    slow = EpochFigures(images_per_second=1.0, data_wait_share=1.0)
    with monkeypatch.context() as patch:
        patch.setattr("autopipe.hardware.machine.usable_cores", unreadable)
        with pytest.warns(DriftWarning, match="cannot be compared"):
            judge(trainer, 0, slow)
        judge(trainer, 1, slow)
    with pytest.warns(DriftWarning, match="takes 1 images/s"):
        judge(trainer, 2, slow)
