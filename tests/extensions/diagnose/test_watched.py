"""What follows from what was seen of a training, what is said of it, and the code that is given with it."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

import autopipe
from autopipe.extensions.diagnose.loop import kind_of_data
from autopipe.extensions.diagnose.steps import Epochs
from autopipe.extensions.diagnose.watched import Pages, Verdict, Watched, rows, sentence, to_paste, to_run
from autopipe.measure.lines import Line, Lines
from autopipe.measure.outcome import Resources
from autopipe.workload.ops.progressive import Progressive


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
    ("figures", "verdict", "said"),
    [
        ({}, Verdict.MODEL, ["the model is the limit"]),
        ({"alone_images_per_second": 270.0, "waiting_seconds": 6.3}, Verdict.DATA, ["63%", "2.7x", "`ap.wrap`"]),
        ({"alone_images_per_second": 300.0}, Verdict.CORES, ["65%"]),
        ({"alone_images_per_second": 300.0, "between_seconds": 6.0}, Verdict.CALLBACKS, ["60%", "steps_per_execution"]),
        ({"alone_images_per_second": None, "waiting_seconds": 5.0}, Verdict.UNKNOWN, ["50%", "not known"]),
    ],
)
def test_the_largest_part_of_what_is_lost_is_the_verdict(
    figures: dict[str, Any], verdict: Verdict, said: list[str]
) -> None:
    assert watched(**figures).verdict is verdict
    assert [text for text in said if text not in sentence(watched(**figures))] == []


@pytest.mark.parametrize("waiting", [0.0, 3.0, 9.9])
@pytest.mark.parametrize("between", [0.0, 2.0, 9.9])
@pytest.mark.parametrize("alone", [50.0, 100.0, 180.0, 1e6])
def test_the_shares_add_up_to_what_is_lost(waiting: float, between: float, alone: float) -> None:
    seen = watched(waiting_seconds=waiting, between_seconds=between, alone_images_per_second=alone)
    assert sum(seen.shares.values()) == pytest.approx(1)
    assert min(seen.shares.values()) >= 0
    assert seen.shares[Verdict.MODEL] >= min(1.0, seen.images_per_second / alone) - 1e-9


PARTS: dict[str, Any] = {"count": 2, "steps_seconds": 10.0}


@pytest.mark.parametrize(
    ("parts", "verdict", "said"),
    [
        ({"validation_seconds": 30.0, "validation_waiting_seconds": 27.0}, Verdict.VALIDATION, ["75%", "for 90%"]),
        ({"validation_seconds": 30.0}, Verdict.VALIDATION, ["75%", "which computes", "validation_freq"]),
        ({"first_batch_seconds": 7.0, "between_seconds": 3.0}, Verdict.PAUSES, ["50% of an epoch passes", "opened"]),
        ({"callbacks_seconds": 10.0}, Verdict.CALLBACKS, ["50%"]),
        ({"validation_seconds": 0.5}, Verdict.MODEL, ["the model is the limit"]),
    ],
)
def test_the_largest_part_of_an_epoch_is_the_verdict(parts: dict[str, Any], verdict: Verdict, said: list[str]) -> None:
    seen = watched(epochs=Epochs(**PARTS, **parts))
    assert seen.verdict is verdict
    assert [text for text in said if text not in sentence(seen)] == []
    assert sum(seen.parts.values()) == pytest.approx(1.0)
    assert to_paste(seen) is None
    assert "an epoch" in dict(rows(seen))
    assert Watched.model_validate_json(seen.model_dump_json()) == seen


def test_a_model_that_is_compiled_for_each_shape_does_not_wait_for_data() -> None:
    seen = watched(alone_images_per_second=700.0, compiling_seconds=8.0, shapes=40)
    assert seen.verdict is Verdict.COMPILING
    assert "for batches of 40 shapes" in sentence(seen)
    assert seen.possible_gain == pytest.approx(1.05, abs=0.05)


@pytest.mark.parametrize(
    ("own", "others", "verdict"),
    [
        (20.0, 170.0, Verdict.OTHERS),
        (180.0, 10.0, Verdict.DATA),
        (5.0, 60.0, Verdict.DATA),
        (10.0, 190.0, Verdict.DATA),
    ],
)
def test_other_programs_that_take_the_cores_are_the_verdict(own: float, others: float, verdict: Verdict) -> None:
    resources = Resources(cpu_percent=own, others_cpu_percent=others)
    seen = watched(alone_images_per_second=270.0, waiting_seconds=6.3, resources=resources, warnings=resources.warnings)
    assert seen.verdict is verdict
    is_others = verdict is Verdict.OTHERS
    assert ("again on a quiet machine" in sentence(seen), to_paste(seen) is None) == (is_others, is_others)
    assert ("As it was, 63% of the time waits for data." in sentence(seen)) is is_others
    assert ("note" in dict(rows(seen))) is (others > 20 and not is_others)


def test_a_process_that_was_bound_to_fewer_cores_is_told_how_to_undo_it() -> None:
    bound = {"cores": 1.0, "bound": "`import blas` bound this process to 1 of its 2 cores."}
    waits = watched(alone_images_per_second=270.0, waiting_seconds=6.3, **bound)
    assert sentence(waits).startswith("`import blas` bound this process to 1 of its 2 cores. 63% of the time waits")
    assert "bound" not in sentence(watched(**bound))  # which the model alone limits


def test_a_host_that_waits_while_the_device_computes_is_not_called_waiting() -> None:
    assert watched(alone_images_per_second=100.0, waiting_seconds=9.0).shares[Verdict.DATA] == 0.0
    assert watched(alone_images_per_second=250.0, waiting_seconds=6.0).possible_gain == pytest.approx(2.5, rel=0.03)


def test_a_model_that_is_the_limit_is_told_what_its_augmentation_takes() -> None:
    assert "takes" not in sentence(watched())
    seen = watched(augmentation=("RandomFlip",), without_augmentation_images_per_second=150.0)
    assert seen.verdict is Verdict.AUGMENTATION
    assert "takes 29% of the time" in sentence(seen)
    assert ("augmentation", "RandomFlip in the model: 28.6 ms of its 95.2 ms a step (30%)") in rows(seen)
    assert to_paste(seen) is None
    assert Watched.model_validate_json(seen.model_dump_json()) == seen


def test_progressive_files_are_told_of_with_the_command_that_rewrites_them() -> None:
    found = Progressive(files=9, looked_at=9, progressive=3)
    seen = watched(image_files=found, folder="/data/my photos")
    assert dict(rows(seen))["progressive"].startswith("3 of 9 images. ")
    line = to_run(seen)
    assert line is not None
    assert line.startswith("cp -rLT '/data/my photos' '/data/my photos-baseline' && ")
    assert Watched.model_validate_json(seen.model_dump_json()) == seen
    none = watched(image_files=Progressive(files=9, looked_at=9, progressive=0), folder="/data")
    assert "progressive" not in dict(rows(none))
    assert [to_run(each) for each in (none, watched(), watched(image_files=found, folder="/"))] == [None] * 3


def test_what_autopipe_feeds_has_a_workload_already() -> None:
    feed = type("Feed", (), {"__module__": "autopipe.frameworks"})()  # as a trainer's, without Keras
    data = kind_of_data(feed)
    assert ("data", "autopipe (jax)") in rows(watched(data=data))
    waits = watched(alone_images_per_second=270.0, waiting_seconds=6.3, data=data)
    assert to_paste(waits) is None
    assert "wrap" not in sentence(waits)


@pytest.mark.parametrize(
    "data", ["tf.data.Dataset", "keras.utils.PyDataset", "torch DataLoader", "arrays", "a generator", None]
)
def test_the_code_to_paste_is_python_on_public_names(data: str | None) -> None:
    code = to_paste(watched(alone_images_per_second=270.0, waiting_seconds=6.3, data=data))
    assert code is not None
    nodes, told = list(ast.walk(ast.parse(code))), set(re.findall(r"\w+", " ".join(re.findall(r"#.*", code))))
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert names
    assert {node.id for node in nodes if isinstance(node, ast.Name)} - told == {"ap"}  # what it needs is told
    assert names <= set(autopipe.__all__)
    assert ("wrap" in names) == (data != "arrays")
    assert ("steps=STEPS" in code) == (data == "a generator")  # which may have no end
    forks = 'multiprocessing_context="forkserver", persistent_workers=True' in code
    assert forks == (data == "torch DataLoader")


@pytest.mark.parametrize(
    ("computes", "cpu_percent", "others_cpu_percent", "said"),
    [(0.01, 20.0, 10.0, True), (0.3, 20.0, 10.0, False), (0.01, 95.0, 10.0, False), (0.01, 20.0, 150.0, False)],
)
def test_lines_that_only_wait_while_cores_are_idle_are_told_of(
    computes: float, cpu_percent: float, others_cpu_percent: float, said: bool
) -> None:
    line = Line(file="train.py", line=3, code="read(path)", seconds=10.0, processor_seconds=10 * computes)
    found = watched(
        alone_images_per_second=1000.0,
        waiting_seconds=9.0,
        lines=Lines(lines=(line,), seconds=10.0),
        resources=Resources(cpu_percent=cpu_percent, others_cpu_percent=others_cpu_percent),
    )
    assert found.verdict is Verdict.DATA
    assert ("more readers" in sentence(found)) is said


def test_no_advice_is_given_that_the_backend_refuses() -> None:
    found = {
        backend: watched(backend=backend, alone_images_per_second=300.0, between_seconds=6.0)
        for backend in ("jax", "torch")
    }
    assert ["steps_per_execution" in sentence(each) for each in found.values()] == [True, False]


def test_what_keras_waits_for_between_epochs_is_waiting_for_data() -> None:
    seen = watched(epochs=Epochs(count=2, steps_seconds=10.0, queue_seconds=10.0))
    assert seen.verdict is Verdict.DATA
    assert "50% of the time waits for data" in sentence(seen)
    assert to_paste(seen) is not None


def test_a_long_wait_for_a_first_batch_is_told_of_beside_a_larger_one() -> None:
    epochs = Epochs(count=2, steps_seconds=10.0, first_batch_seconds=4.0)
    found = watched(alone_images_per_second=300.0, epochs=epochs, begins_anew="a new iterator fills its buffer")
    assert found.verdict is Verdict.CORES
    assert ("first batch", "a new iterator fills its buffer") in rows(found)


def test_what_was_left_out_and_warned_of_is_shown() -> None:
    lines = rows(watched(left_out=("CSVLogger",), warnings=("Only 3 steps were timed.",)))
    assert (
        "left out",
        "CSVLogger: may write files; their time is not in these figures. `--callbacks` runs them",
    ) in lines
    assert ("note", "Only 3 steps were timed.") in lines


@pytest.mark.parametrize(("faults", "share", "said"), [(100.0, 0.5, False), (90000.0, 0.05, False), (9e4, 0.5, True)])
def test_page_faults_are_told_of_if_they_take_time(faults: float, share: float, said: bool) -> None:
    lines = dict(rows(watched(pages=Pages(faults_per_step=faults, kernel_share=share))))
    assert ("page faults" in lines) is said
