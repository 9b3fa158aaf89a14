from __future__ import annotations

from autopipe.core.ceiling import Ceiling, OpCost
from autopipe.core.config import ModelSetup
from autopipe.core.value import Estimate

RATE = Estimate(value=100.0, low=99.0, high=101.0)
CEILING = Ceiling(
    model_images_per_second=RATE,
    model_core_seconds_per_image=0.001,
    loader_images_per_second=RATE,
    op_costs=(OpCost(name="Decode", part="fixed", seconds_per_image=0.0005),),
    read_bytes_per_second=2e9,
    cores=2.0,
    bound_images_per_second=900.0,
    devices=2,
    finish="host",
)


def test_a_ceiling_survives_json() -> None:
    assert Ceiling.model_validate_json(CEILING.model_dump_json()) == CEILING


def test_a_ceiling_says_for_which_setup_it_holds() -> None:
    assert CEILING.setup == ModelSetup(devices=2, channels="last", finish="host")
