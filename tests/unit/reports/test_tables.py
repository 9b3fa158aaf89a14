"""What commands beside `tune` print, and the texts of figures in it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from autopipe.artifact.drift import Result, Verdict
from autopipe.measure.facts import Ceiling, OpCost
from autopipe.measure.outcome import Agreement, FailureKind, Measurement, Phase, Resources, TrialFailure, Verification
from autopipe.measure.rows import Formats, ImageForm, Row
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.workers import Threads
from autopipe.reports import tables, terminal, wording
from autopipe.values import Estimate
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes import profiles
from tests.fakes.measurements import measurement
from tests.fakes.reports import Approved, printed

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

NATIVE_READ = CEILING.op_costs[0].model_copy(update={"native": True})
RAN = measurement(CONFIG, [90.0] * 8, batch_size=32)


def row(
    both: Measurement | TrialFailure = RAN,
    alone: Ceiling = CEILING,
    name: str = "a.py:w",
    config: PipelineConfig = CONFIG,
) -> Row:
    return Row.of(name, alone, both, config)


def with_ops(*ops: OpCost, **changes: Any) -> Row:
    return row(alone=CEILING.model_copy(update={"op_costs": ops, **changes}))


def test_measured(approved: Approved) -> None:
    read, function = CEILING.op_costs
    every = [op.model_copy(update={"native": True}) for op in CEILING.op_costs]
    counted = SampleSpec(Field(FieldKind.ARRAY, (16, 8, 8, 3), np.dtype("uint8")), None).counted
    shown = {
        "ops of Python": tables.measurement(row()),
        "one of them native": tables.measurement(with_ops(NATIVE_READ, function)),
        "all of them native": tables.measurement(with_ops(*every)),
        "nothing native": tables.measurement(with_ops(read, function, not_native="AUTOPIPE_NATIVE=0 is set")),
        "a simulated accelerator": tables.measurement(row(), SimulatedAccelerator(0.32, 32)),
        "rows that are no images": tables.measurement(row(), counted=counted),
    }
    approved({name: printed(each, 120) for name, each in shown.items()})


def test_an_image_is_what_is_counted_as_usual() -> None:
    assert SampleSpec(Field(FieldKind.ARRAY, (8, 8, 3), np.dtype("uint8")), None).counted is None


def test_pixels_that_differ_are_told_of() -> None:
    dali = PipelineConfig(loader=pytest.importorskip("autopipe.extensions.dali.loader").Dali(num_threads=2))
    shown = printed(tables.measurement(row(measurement(dali, [90.0] * 8, batch_size=32), config=dali)), 200)
    assert "pixels differ" in shown
    assert "pixels differ" not in printed(tables.measurement(row()), 200)


def alone(rate: float, **used: int) -> Ceiling:
    estimate = Estimate(value=rate, low=rate, high=rate)
    return Ceiling(model_images_per_second=estimate, model_core_seconds_per_image=0, resources=Resources(**used))


def test_rows(approved: Approved) -> None:
    failure = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.MEASURE, message="It died.")
    no_room = TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.WARM_UP, message="there is no room")
    parts: dict[int, Ceiling | TrialFailure] = {
        16: alone(800.0, peak_rss_bytes=1 << 30),
        32: alone(1000.0),
        64: alone(1500.0),
        128: no_room,
    }
    sizes = [Row.of(f"batch {size}", part, batch_size=size) for size, part in parts.items()]
    on_gpu = Row.of("batch 16", alone(800.0, gpu_memory_bytes=2 << 30), batch_size=16)
    beside_others = Row.of("a.py:w", CEILING, RAN, CONFIG, Estimate(value=60.0, low=55.0, high=65.0))
    assert beside_others.too_low == ["loader"]
    assert Row.of("a.py:w", CEILING, RAN, CONFIG, Estimate(value=95.0, low=90.0, high=99.0)).doubt is None
    shown = {
        "workloads": tables.rows([row(), row(failure, name="b.py:w")]),
        "batch sizes": tables.rows(sizes, own=32),
        "on a GPU": tables.rows([on_gpu], own=32),
        "a part that reads less than the whole": tables.rows([beside_others]),
    }
    approved({name: printed(each, 80) for name, each in shown.items()})


def test_formats(approved: Approved) -> None:
    png = ImageForm(part="x", name="as they are", seconds_per_image=0.002, bytes_per_image=2048.0, mean_error=0.0)
    jpeg = ImageForm(part="x", name="JPEG 95", seconds_per_image=0.0005, bytes_per_image=1024.0, mean_error=1.234)
    approved({"formats": printed(tables.formats(Formats(samples=40, forms=(png, jpeg))))})


def test_of_a_path_that_is_longer_than_a_line_nothing_is_left_out() -> None:
    path = "/home/somebody/projects/segmentation-of-streets/train_with_a_long_name.py:workload"
    assert "".join(printed(terminal.labelled([("note", path)]), 40).split()) == f"note{path}"


def test_check(approved: Approved) -> None:
    drifted = Result(
        verdict=Verdict.DRIFTED,
        reasons=("it is slower",),
        age_days=3,
        profile=None,
        recorded_share=0.9,
        share=0.6,
        rows=(Row(name="threads", together=Estimate(value=900.0, low=880.0, high=920.0)),),
    )
    quick = drifted.model_copy(update={"reasons": (), "age_days": 1, "rows": (), "share": None})
    shown = {name: printed(tables.fitness(each)) for name, each in (("measured", drifted), ("quick", quick))}
    approved({**shown, "as JSON": drifted.model_dump_json(indent=1)})


# ---------------------------------------------------------------- verify

OTHER = PipelineConfig(loader=TfData(num_parallel_calls=4, prefetch=16, read_ahead=128), keep="memory", finish="host")
SAME = Agreement(config=CONFIG, digest="ab", samples=256, epochs=2)
WHY = "Workers must be importable, but `train` is not. Put what starts them under a main guard, " * 2


def verified(*, compared: bool, **other: Any) -> Verification:
    """Return how two configurations agree, the second of which is `other` than the first."""
    second = Agreement(config=OTHER, **{"digest": "ab", "samples": 256, "largest_value": 255.0, "epochs": 2, **other})
    return Verification(agreements=(Agreement(config=CONFIG, digest="ab", samples=256), second), compared=compared)


def seen(**other: Any) -> Verification:
    return Verification(agreements=(SAME,), compared=False, notes=("as float64",), hidden=True, **other)


COULD_NOT = {"message": "no more than one worker", "digest": "", "samples": 0}
NOTHING_RAN = Agreement(config=CONFIG, digest="", samples=0, message="no")
VERIFIED = {
    "compared": {
        "the same": (verified(compared=True), True),
        "within one level": (verified(compared=True, largest_difference=1.0, digest="cd"), True),
        "other samples": (verified(compared=True, missing=3, repeated=1), False),
        "other pixels": (verified(compared=True, largest_difference=51.0), False),
        "an error": (verified(compared=True, message="the targets differ"), False),
        "a long error": (verified(compared=True, message=WHY, digest=""), True),
        "one could not run": (verified(compared=True, **COULD_NOT), True),
        "none could run": (Verification(agreements=(NOTHING_RAN,)), True),
    },
    "wrapped": {
        "nothing twice": (verified(compared=False), True),
        "a few twice": (verified(compared=False, repeated=2), True),
        "too many twice": (verified(compared=False, repeated=1200), False),
        "epochs that `steps` counts": (verified(compared=False, repeated=200, is_pass=False), True),
        "changed": (verified(compared=False, message="all alike"), False),
        "random numbers that repeat": (verified(compared=False, random="2 of 9: seed"), False),
        "random numbers not seen": (verified(compared=False, unseen="no pickle"), True),
        "one could not run": (verified(compared=False, **COULD_NOT), True),
        "none could run": (Verification(agreements=(NOTHING_RAN,), compared=False), True),
        "notes": (seen(), True),
        "a fault": (seen(faults=("it leaks",)), False),
    },
}


@pytest.mark.parametrize("kind", VERIFIED)
def test_only_what_ran_and_gave_other_samples_does_not_agree(kind: str) -> None:
    assert {name: tables.agrees(found) for name, (found, _) in VERIFIED[kind].items()} == {
        name: agrees for name, (_, agrees) in VERIFIED[kind].items()
    }


def test_verified(approved: Approved) -> None:
    shown = {
        f"{kind}: {name}": printed(tables.verification(found), 80)
        for kind, cases in VERIFIED.items()
        for name, (found, _) in cases.items()
    }
    assert max(len(line.rstrip()) for each in shown.values() for line in each.splitlines()) <= 80
    approved(shown)


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
    assert wording.resources(used, cores=1.0) == gpu  # more than there are: the kernel's clock is too coarse for it
    assert wording.resources(Resources()) == ""


@pytest.mark.parametrize(
    ("low", "pairs", "doubt"),
    [(1.1, 6, ""), (1.1, 2, " (not proved)"), (0.9, 6, " (not proved)"), (None, 0, " (measured once)")],
)
def test_a_gain_that_no_rounds_decide_is_not_shown_as_proved(low: float | None, pairs: int, doubt: str) -> None:
    rival = profiles.baseline("keras", 400.0)
    contests = () if low is None else (profiles.contest(rival, 2.5, low, pairs, high=9.0),)
    kept = profiles.profile(baselines=(rival,), contests=contests)
    text = printed(tables.profiles(profiles.artifact(kept), kept, None, here=kept.hardware, now=profiles.NOON))
    assert f"2.5x keras{doubt}\n" in re.sub(" +\n", "\n", text)
