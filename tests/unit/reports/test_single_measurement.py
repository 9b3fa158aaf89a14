"""One measurement as text."""

from __future__ import annotations

import io

import pytest
from replaying.synthetic import measurement
from rich.console import Console

from autopipe.core.config import PipelineConfig
from autopipe.core.facts import Ceiling, OpCost
from autopipe.core.value import Estimate
from autopipe.devices.simulated import SimulatedAccelerator
from autopipe.loaders.processes import Processes
from autopipe.loaders.threads import Threads
from autopipe.reports import single_measurement

CONFIG = PipelineConfig(loader=Threads(workers=2))
CEILING = Ceiling(
    model_images_per_second=Estimate(value=1000.0, low=1000.0, high=1000.0),
    model_core_seconds_per_image=0.0,
    op_costs=(
        OpCost(name="read", part="fixed", seconds_per_image=0.00004, wait_seconds_per_image=0.02),
        OpCost(name="Map", part="fresh", seconds_per_image=0.005, lock_seconds_per_image=0.005),
    ),
    cores=2.0,
)


def shown(simulated: SimulatedAccelerator | None = None, config: PipelineConfig = CONFIG) -> str:
    written = io.StringIO()
    table = single_measurement.render(measurement(config, [90.0] * 8, batch_size=32), config, CEILING, simulated)
    Console(file=written, width=200).print(table)
    return written.getvalue()


@pytest.mark.parametrize(
    "said",
    [
        "an image costs wall core of it locked share",
        "read 20 ms 0.04 ms 0 ms 80%",
        "Map 5 ms 5 ms 5 ms 20%",
        "the model 0 ms",
    ],
)
def test_it_tells_what_each_op_costs_waits_and_locks(said: str) -> None:
    assert said in [" ".join(line.split()) for line in shown().splitlines()]


def test_of_processes_it_tells_what_an_op_costs_in_one() -> None:
    quicker = CEILING.op_costs[1].model_copy(update={"alone_seconds_per_image": 0.002})
    ceiling = CEILING.model_copy(update={"op_costs": (CEILING.op_costs[0], quicker)})
    for loader, said in ((Threads(workers=2), "Map 5 ms 5 ms 5 ms"), (Processes(workers=2), "Map 2 ms 2 ms 2 ms")):
        written, config = io.StringIO(), PipelineConfig(loader=loader)
        table = single_measurement.render(measurement(config, [90.0] * 8, batch_size=32), config, ceiling, None)
        Console(file=written, width=200).print(table)
        assert said in " ".join(written.getvalue().split())


def test_the_utilisation_is_shown_for_a_simulated_accelerator_alone() -> None:
    assert "AU" not in shown()
    assert "90.0% of the time" in shown(SimulatedAccelerator(step_seconds=0.32, batch_size=32))


def test_pixels_that_differ_are_told_of() -> None:
    assert "pixels differ" not in shown()
    Dali = pytest.importorskip("autopipe.extensions.dali.loader").Dali
    assert "pixels differ from those of the other loaders" in shown(config=PipelineConfig(loader=Dali(num_threads=2)))
