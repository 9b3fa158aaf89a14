"""What commands beside `tune` print."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from replaying.synthetic import measurement
from rich.console import Console, RenderableType

from autopipe.artifact.drift import Result, Verdict
from autopipe.measure.facts import Ceiling, OpCost
from autopipe.measure.outcome import StepTime
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.pipeline.loaders.processes import Processes
from autopipe.pipeline.loaders.threads import Threads
from autopipe.reports import tables, terminal
from autopipe.values import Estimate
from autopipe.workload.mode import Mode

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
    table = tables.measurement(measurement(config, [90.0] * 8, batch_size=32), config, CEILING, simulated)
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
        table = tables.measurement(measurement(config, [90.0] * 8, batch_size=32), config, ceiling, None)
        Console(file=written, width=200).print(table)
        assert said in " ".join(written.getvalue().split())


def test_the_utilisation_is_shown_for_a_simulated_accelerator_alone() -> None:
    assert "AU" not in shown()
    assert "90.0% of the time" in shown(SimulatedAccelerator(step_seconds=0.32, batch_size=32))


def test_pixels_that_differ_are_told_of() -> None:
    dali = pytest.importorskip("autopipe.extensions.dali.loader").Dali(num_threads=2)
    assert "pixels differ" not in shown()
    assert "pixels differ from those of the other loaders" in shown(config=PipelineConfig(loader=dali))


def test_a_step_is_told_warm_with_the_first_call_apart() -> None:
    found = StepTime(
        mode=Mode.PREDICT,
        batch_size=16,
        step_seconds=Estimate(value=0.004, low=0.0039, high=0.0042),
        first_call_seconds=2.5,
        backend="jax",
    )
    assert StepTime.model_validate_json(found.model_dump_json()) == found
    assert tables.step_time(found) == [
        "step        4 ms (3.9 ms to 4.2 ms) for 16 images: predict",
        "images/s    4,000 on a batch that is there, without a loader",
        "first call  2.5 s: it traces and compiles, and then does a step",
    ]


# ---------------------------------------------------------------- check

DRIFTED = Result(
    verdict=Verdict.DRIFTED,
    reasons=("it is slower",),
    age_days=3,
    profile=None,
    recorded_share=0.9,
    share=0.6,
    images_per_second=Estimate(value=900.0, low=880.0, high=920.0),
)


def checked(result: Result) -> list[list[str]]:
    written = io.StringIO()
    Console(file=written, width=100).print(tables.fitness(result))
    return [line.split(maxsplit=1) for line in written.getvalue().splitlines()]


def test_a_check_shows_the_verdict_its_reasons_and_both_shares() -> None:
    assert [row[0] for row in checked(DRIFTED)] == ["verdict", "because", "age", "images/s", "share"]
    text = " ".join(" ".join(row) for row in checked(DRIFTED))
    assert "60% now, 90% when it was tuned" in text
    assert "900 (880 to 920) now" in text


def test_a_quick_check_shows_no_figures_and_one_day_is_called_that() -> None:
    quick = Result(verdict=Verdict.FITS, age_days=1, profile=None)
    assert [row[0] for row in checked(quick)] == ["verdict", "age"]
    ages = [checked(dataclasses.replace(DRIFTED, age_days=days))[2][1].strip() for days in (0, 1, 2)]
    assert ages == ["0 days", "1 day", "2 days"]


def test_the_document_of_a_check_is_json_and_complete() -> None:
    assert json.loads(json.dumps(tables.fitness_document(DRIFTED))) == {
        "verdict": "drifted",
        "reasons": ["it is slower"],
        "age_days": 3,
        "share": 0.6,
        "recorded_share": 0.9,
        "images_per_second": {"value": 900.0, "low": 880.0, "high": 920.0},
    }


# ---------------------------------------------------------------- narrow terminals

PATH = "/home/somebody/projects/segmentation-of-streets/train_with_a_long_name.py:workload"


def narrow(shown: RenderableType) -> str:
    """Return what a terminal of 40 columns shows, without its line breaks."""
    written = io.StringIO()
    Console(file=written, width=40).print(shown)
    return "".join(written.getvalue().split())


def test_of_a_path_that_is_longer_than_a_line_nothing_is_left_out() -> None:
    assert f"note{PATH}" in narrow(terminal.labelled([("note", PATH)]))
