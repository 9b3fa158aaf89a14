"""What follows from what was seen of a training. The figures are made up."""

from __future__ import annotations

from typing import Any

import pytest

from autopipe.extensions.diagnose.watched import Verdict, Watched


def watched(**other: Any) -> Watched:
    figures: dict[str, Any] = {
        "backend": "jax",
        "batch_size": 10,
        "steps": 100,
        "images": 1000,
        "seconds": 10.0,
        "waiting_seconds": 0.1,
        "between_seconds": 0.1,
        "first_step_seconds": 3.0,
        "alone_images_per_second": 105.0,
        "cores": 2.0,
    }
    return Watched(**{**figures, **other})


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [
        ({}, Verdict.MODEL),
        ({"alone_images_per_second": 300.0, "waiting_seconds": 6.0}, Verdict.DATA),
        ({"alone_images_per_second": 300.0}, Verdict.CORES),
        ({"alone_images_per_second": 300.0, "between_seconds": 6.0}, Verdict.CALLBACKS),
        ({"alone_images_per_second": None}, Verdict.UNKNOWN),
    ],
)
def test_the_largest_part_of_what_is_lost_is_the_verdict(figures: dict[str, Any], verdict: Verdict) -> None:
    assert watched(**figures).verdict is verdict


@pytest.mark.parametrize("waiting", [0.0, 3.0, 9.9])
@pytest.mark.parametrize("between", [0.0, 2.0, 9.9])
@pytest.mark.parametrize("alone", [50.0, 100.0, 180.0, 1e6])
def test_the_shares_add_up_to_what_is_lost(waiting: float, between: float, alone: float) -> None:
    seen = watched(waiting_seconds=waiting, between_seconds=between, alone_images_per_second=alone)
    assert seen.lost_share == pytest.approx(seen.waiting_share + seen.between_share + seen.slowed_share)
    assert min(seen.waiting_share, seen.between_share, seen.slowed_share) >= 0


def test_the_gain_is_what_a_training_reaches_whose_data_cost_nothing() -> None:
    assert watched(alone_images_per_second=250.0, waiting_seconds=6.0).possible_gain == pytest.approx(2.5, rel=0.03)


def test_a_host_that_waits_while_the_device_computes_is_not_called_waiting() -> None:
    assert watched(alone_images_per_second=100.0, waiting_seconds=9.0).waiting_share == 0.0


def test_it_survives_json() -> None:
    seen = watched(augmentation=("RandomFlip",), without_augmentation_images_per_second=210.0)
    assert Watched.model_validate_json(seen.model_dump_json()) == seen
    assert seen.augmentation_share == 0.5
