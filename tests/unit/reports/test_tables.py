"""What commands beside `tune` print, and the texts of figures in it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from rich.console import RenderableType

from autopipe.artifact.drift import Result, Verdict
from autopipe.measure.facts import Ceiling, OpCost
from autopipe.measure.formats import Form, Formats
from autopipe.measure.outcome import (
    Agreement,
    FailureKind,
    Measurement,
    Phase,
    Resources,
    TrialFailure,
    Verification,
)
from autopipe.measure.rows import Row
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.threads import Threads
from autopipe.reports import tables, terminal, wording
from autopipe.values import Estimate
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.measurements import measurement
from tests.fakes.reports import printed

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


def lines(shown: RenderableType, width: int = 200) -> list[str]:
    return [line.rstrip() for line in printed(shown, width).splitlines()]


def row(
    both: Measurement | TrialFailure, config: PipelineConfig = CONFIG, alone: Ceiling = CEILING, name: str = "a.py:w"
) -> Row:
    return Row(name=name, config=config, alone=alone, both=both)


def measured(config: PipelineConfig = CONFIG, simulated: SimulatedAccelerator | None = None) -> list[str]:
    found = tables.measurement(row(measurement(config, [90.0] * 8, batch_size=32), config), simulated)
    return [" ".join(line.split()) for line in lines(found)]


def test_what_each_op_costs_waits_and_locks_is_told() -> None:
    shown = measured()
    assert {"an image costs wall core of it locked share", "Map 5 ms 5 ms 5 ms 20%", "the model 0 ms"} <= set(shown)
    assert any(line.startswith("read 20 ms 0.04 ms 0 ms") for line in shown)


def test_ops_of_python_are_named_and_native_ones_hold_no_lock() -> None:
    def shown(ceiling: Ceiling) -> list[str]:
        return lines(tables.measurement(row(measurement(CONFIG, [90.0] * 8, batch_size=32), alone=ceiling)))

    read, function = CEILING.op_costs
    native = CEILING.model_copy(update={"op_costs": (read.model_copy(update={"native": True}), function)})
    assert any(line.startswith("Python") and "Map is Python" in line for line in shown(native))
    assert any(line.split()[-2:] == ["native", "80%"] for line in shown(native) if line.startswith("read"))
    off = CEILING.model_copy(update={"not_native": "AUTOPIPE_NATIVE=0 is set"})
    assert any(line.startswith("Python") and "AUTOPIPE_NATIVE=0 is set" in line for line in shown(off))
    every = tuple(op.model_copy(update={"native": True}) for op in CEILING.op_costs)
    assert not any(line.startswith("Python") for line in shown(CEILING.model_copy(update={"op_costs": every})))


def test_workloads_are_rows_of_figures_and_what_limits_each_stands_below() -> None:
    failure = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.MEASURE, message="It died.")
    ran = measurement(CONFIG, [90.0] * 8, batch_size=32)
    found = lines(tables.rows([row(ran, name="a.py:w"), row(failure, name="b.py:w")]), 80)
    assert found[0].split() == ["images/s", "model", "alone", "loader", "alone", "together"]
    assert found[1].split()[-1] == "90"
    assert found[4].startswith("a.py:w: ")
    assert "b.py:w: crashed in measure: It died." in found


def test_a_row_that_is_no_image_is_told_of_beside_the_rate() -> None:
    clip, image = (Field(FieldKind.ARRAY, shape, np.dtype("uint8")) for shape in ((16, 8, 8, 3), (8, 8, 3)))
    assert SampleSpec(image, None).counted is None
    counted = SampleSpec(clip, None).counted
    assert counted == "x (16, 8, 8, 3)"
    assert wording.counted(counted) == "images/s counts rows of the batch's first axis. A row is x (16, 8, 8, 3)."


def test_the_utilisation_is_shown_for_a_simulated_accelerator_alone() -> None:
    assert not any(line.startswith("AU") for line in measured())
    assert "AU 90.0% of the time" in "\n".join(measured(simulated=SimulatedAccelerator(0.32, 32)))


def test_pixels_that_differ_are_told_of() -> None:
    dali = pytest.importorskip("autopipe.extensions.dali.loader").Dali(num_threads=2)
    assert "pixels differ" not in "".join(measured())
    assert "pixels differ from those of the other loaders" in "".join(measured(PipelineConfig(loader=dali)))


def test_each_batch_size_is_told_with_its_rate_and_its_memory_or_its_failure() -> None:
    def alone(rate: float, **used: int) -> Ceiling:
        estimate = Estimate(value=rate, low=rate, high=rate)
        return Ceiling(model_images_per_second=estimate, model_core_seconds_per_image=0, resources=Resources(**used))

    failure = TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.WARM_UP, message="there is no room")
    parts: dict[int, Ceiling | TrialFailure] = {
        16: alone(800.0, peak_rss_bytes=1 << 30),
        32: alone(1000.0),
        64: alone(1500.0),
        128: failure,
    }
    found = [Row(name=f"batch {size}", batch_size=size, alone=part) for size, part in parts.items()]
    shown = [" ".join(line.split()) for line in lines(tables.rows(found, own=32))]
    assert shown[:4] == [
        "images/s model alone loader alone together memory",
        "batch 16 800 1 GiB",
        "batch 32 1,000",
        "batch 64 1,500",
    ]
    assert "batch 16: 0.80x the workload's own rate" in shown
    assert "batch 128: out of memory in warm up: there is no room" in shown
    on_gpu = Row(name="batch 16", batch_size=16, alone=alone(800.0, gpu_memory_bytes=2 << 30))
    shown = [" ".join(line.split()) for line in lines(tables.rows([on_gpu], own=32))]
    assert shown == ["images/s model alone loader alone together GPU memory", "batch 16 800 2 GiB"]


def test_each_format_is_told_with_its_rate_its_size_and_its_error() -> None:
    png = Form(part="x", name="as they are", seconds_per_image=0.002, bytes_per_image=2048.0, mean_error=0.0)
    jpeg = Form(part="x", name="JPEG 95", seconds_per_image=0.0005, bytes_per_image=1024.0, mean_error=1.234)
    shown = [" ".join(line.split()) for line in lines(tables.formats(Formats(samples=40, forms=(png, jpeg))))]
    assert shown == [
        "part kept as images/s an image size error",
        "x as they are 500 2 ms 2 KiB none",
        "x JPEG 95 2,000 0.5 ms 1 KiB 1.2",
    ]


def test_of_a_path_that_is_longer_than_a_line_nothing_is_left_out() -> None:
    path = "/home/somebody/projects/segmentation-of-streets/train_with_a_long_name.py:workload"
    assert "".join("".join(lines(terminal.labelled([("note", path)]), 40)).split()) == f"note{path}"


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


def test_a_check_shows_the_verdict_its_reasons_and_both_shares() -> None:
    shown = [line.split(maxsplit=1) for line in lines(tables.fitness(DRIFTED))]
    assert [row[0] for row in shown] == ["verdict", "because", "age", "images/s", "share"]
    text = " ".join(row[1] for row in shown)
    assert "60% now, 90% when it was tuned" in text
    assert "900 (880 to 920) now" in text
    quick = DRIFTED.model_copy(update={"reasons": (), "age_days": 1, "images_per_second": None, "share": None})
    assert [line.split() for line in lines(tables.fitness(quick))] == [["verdict", "drifted"], ["age", "1", "day"]]


def test_the_document_of_a_check_is_json_and_complete() -> None:
    assert json.loads(DRIFTED.model_dump_json()) == {
        "verdict": "drifted",
        "reasons": ["it is slower"],
        "age_days": 3,
        "share": 0.6,
        "recorded_share": 0.9,
        "images_per_second": {"value": 900.0, "low": 880.0, "high": 920.0},
    }


# ---------------------------------------------------------------- verify

OTHER = PipelineConfig(loader=TfData(num_parallel_calls=4, prefetch=16, read_ahead=128), keep="memory", finish="host")


def verified(*, compared: bool = True, **other: Any) -> tuple[bool, list[str]]:
    """Return whether two configurations agree, and what is shown, of which the second one is `other` than the first."""
    second = Agreement(config=OTHER, **{"digest": "ab", "samples": 256, "largest_value": 255.0, "epochs": 2, **other})
    found = Verification(agreements=(Agreement(config=CONFIG, digest="ab", samples=256), second), compared=compared)
    return tables.agrees(found), lines(tables.verification(found), 80)


@pytest.mark.parametrize(
    ("other", "said", "verdict"),
    [
        ({}, "same ", "all 2 configurations give the same batches, over 256 samples."),
        ({"largest_difference": 1.0, "digest": "cd"}, "within one level", "all 2 configurations give the same"),
        ({"missing": 3, "repeated": 1}, "other samples: 3 missing, 1 repeated", "1 of 2 configurations do not give"),
        ({"largest_difference": 51.0}, "other pixels, by up to 20.0%", "1 of 2 configurations do not give the same"),
        ({"message": "the targets differ"}, "the targets differ", "1 of 2 configurations do not give the same"),
    ],
    ids=str,
)
def test_configurations_are_compared_and_the_verdict_is_last(other: dict[str, Any], said: str, verdict: str) -> None:
    agrees, shown = verified(**other)
    assert max(map(len, shown)) <= 80
    assert shown[1].split() == ["is", "the", "first", "threads(workers=2)"]
    assert shown[2].startswith(said)
    assert f"verdict   {verdict}" in " ".join(shown)
    assert agrees is verdict.startswith("all")
    assert any(line.startswith("next") for line in shown) is said.startswith("other")


@pytest.mark.parametrize(
    ("other", "agrees", "said"),
    [
        ({}, True, ["no sample came twice in the first 256 of an epoch"]),
        ({"repeated": 2}, True, ["2 of 256 came before", "at most 2 samples came twice in the first 256 of an epoch"]),
        ({"repeated": 1200}, False, ["1,200 of 256 came before", "1 of 2 configurations gave samples twice in an"]),
        ({"repeated": 200, "is_pass": False}, True, ["56 of 256 differ", "samples may come twice, as an epoch"]),
        ({"message": "all alike"}, False, ["alike", "1 of 2 configurations changed what is"]),
        (
            {"random": "2 of 9: seed"},
            False,
            ["seed", "verdict   random numbers repeat"],
        ),
        (
            {"unseen": "no pickle"},
            True,
            ["pickle", "random numbers repeat was not seen with 1 of 2"],
        ),
    ],
)
def test_of_wrapped_datasets_repeats_and_changes_are_told(other: dict[str, Any], agrees: bool, said: list[str]) -> None:
    found, shown = verified(compared=False, **other)
    assert found is agrees
    assert [words for words in said if words not in " ".join(shown)] == []
    assert ("gave samples twice" in " ".join(shown)) is (other.get("repeated") == 1200)
    assert ("no random numbers repeat" in " ".join(shown)) is (agrees and "unseen" not in other)


def test_faults_and_notes_of_a_dataset_stand_before_the_verdict_and_only_faults_fail() -> None:
    same = Agreement(config=CONFIG, digest="ab", samples=256, epochs=2)
    for faults in ((), ("it leaks",)):
        found = Verification(agreements=(same,), compared=False, faults=faults, notes=("as float64",), hidden=True)
        shown = " ".join(" ".join(lines(tables.verification(found))).split())
        assert tables.agrees(found) is not bool(faults)
        assert ("fault it leaks note as float64 verdict the dataset has 1 fault" in shown) is bool(faults)
        assert "note as float64" in shown
        assert "whether samples come twice was not seen" in shown


@pytest.mark.parametrize("compared", [True, False])
def test_what_could_not_run_is_no_difference(compared: bool) -> None:
    agrees, shown = verified(compared=compared, message="no more than one worker", digest="", samples=0)
    assert agrees
    assert "1 of 2 configurations could not run" in " ".join(shown)
    assert "do not give the same" not in " ".join(shown)
    assert "gave samples twice" not in " ".join(shown)
    none = Verification(agreements=(Agreement(config=CONFIG, digest="", samples=0, message="no"),), compared=compared)
    assert "1 of 1 configurations could not run" in " ".join(lines(tables.verification(none)))


def test_why_a_configuration_cannot_be_used_is_told_whole_and_leaves_room_for_which_it_is() -> None:
    why = "Workers must be importable, but `train` is not. Put what starts them under a main guard, " * 2
    _, shown = verified(message=why, digest="")
    assert max(map(len, shown)) <= 80
    assert len(shown) < 16
    assert [word for word in why.split() if word not in " ".join(shown)] == []
    assert sum("tfdata(" in line for line in shown) == 1


# ---------------------------------------------------------------- figures


def test_a_failure_is_one_line_and_not_a_long_one() -> None:
    failure = TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.FIRST_BATCH, message="Too\n  much. " + 300 * "x")
    said = wording.failed(failure)
    assert said.startswith("out of memory in first batch: Too much. xxx")
    assert len(said) < 200
    assert said.endswith("…")


def test_a_rate_of_one_window_is_said_without_an_interval() -> None:
    assert "to" not in wording.rates(Estimate.of_one(8.3)).split()
    assert wording.rates(Estimate(value=8.3, low=8.0, high=8.5)) == "8.3 (8 to 8.5)"


def test_what_was_used_is_said_as_far_as_it_is_known() -> None:
    used = Resources(cpu_percent=150.0, gpu_percent=40.0, gpu_idlest_percent=30.0, gpu_busiest_percent=50.0)
    gpu = "GPU 40 % (idlest 30 %, busiest 50 %)"
    assert wording.resources(used) == f"CPU 150 % (one core is 100), {gpu}"
    assert wording.resources(used, cores=2.0) == f"1.5 of 2 cores, {gpu}"
    assert wording.resources(Resources()) == ""
