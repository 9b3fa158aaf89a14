"""What follows from what was seen of a training, what is said of it, and the code that is given with it."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

import autopipe
from autopipe.extensions.diagnose.loop import kind_of_data
from autopipe.extensions.diagnose.steps import Epochs
from autopipe.extensions.diagnose.watched import Pages, Verdict, Watched, rows, to_paste, to_run
from autopipe.measure.lines import Line, Lines
from autopipe.measure.outcome import Resources
from autopipe.workload.ops.headers import Progressive
from tests.fakes.reports import Approved


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


WAITS = {"alone_images_per_second": 270.0, "waiting_seconds": 6.3}
SLOWER = {"alone_images_per_second": 300.0}
FEED = type("Feed", (), {"__module__": "autopipe.frameworks"})()  # as a trainer's, without Keras
BOUND = {"cores": 1.0, "bound": "`import blas` bound this process to 1 of its 2 cores."}
PROGRESSIVE = Progressive(files=9, looked_at=9, progressive=3)
NONE_PROGRESSIVE = Progressive(files=9, looked_at=9, progressive=0)


def beside(own: float, others: float) -> Watched:
    resources = Resources(cpu_percent=own, others_cpu_percent=others)
    return watched(**WAITS, resources=resources, warnings=resources.warnings)


def epochs(steps: float = 10.0, **parts: Any) -> Watched:
    return watched(epochs=Epochs(count=2, steps_seconds=steps, **parts))


def by_lines(computes: float, own: float, others: float) -> Watched:
    """Return a training that waits for data whose line computes for a share of its time."""
    line = Line(file="train.py", line=3, code="read(path)", seconds=10.0, processor_seconds=10 * computes)
    return watched(
        alone_images_per_second=1000.0,
        waiting_seconds=9.0,
        lines=Lines(lines=(line,), seconds=10.0),
        resources=Resources(cpu_percent=own, others_cpu_percent=others),
    )


def faults(each_step: float, share: float) -> Watched:
    return watched(pages=Pages(faults_per_step=each_step, kernel_share=share))


SEEN: dict[str, tuple[Watched, Verdict]] = {
    "the model is the limit": (watched(), Verdict.MODEL),
    "it waits for data": (watched(**WAITS), Verdict.DATA),
    "of autopipe, which has a workload": (watched(**WAITS, data=kind_of_data(FEED)), Verdict.DATA),
    "the cores are taken": (watched(**SLOWER), Verdict.CORES),
    "callbacks": (watched(**SLOWER, between_seconds=6.0), Verdict.CALLBACKS),
    "callbacks on torch, which refuses steps_per_execution": (
        watched(**SLOWER, between_seconds=6.0, backend="torch"),
        Verdict.CALLBACKS,
    ),
    "the model alone is not known": (watched(alone_images_per_second=None, waiting_seconds=5.0), Verdict.UNKNOWN),
    "a slow validation that waits": (
        epochs(validation_seconds=30.0, validation_waiting_seconds=27.0),
        Verdict.VALIDATION,
    ),
    "a slow validation that computes": (epochs(validation_seconds=30.0), Verdict.VALIDATION),
    "a short validation": (epochs(validation_seconds=0.5), Verdict.MODEL),
    "pauses": (epochs(first_batch_seconds=7.0, between_seconds=3.0), Verdict.PAUSES),
    "a PyDataset's first batches, which nothing begins anew for": (
        watched(data="keras.utils.PyDataset", epochs=Epochs(count=2, steps_seconds=1.0, first_batch_seconds=7.0)),
        Verdict.DATA,
    ),
    "the first batches of tf.data, whose steps wait for them as well": (
        watched(**WAITS, data="tf.data.Dataset", epochs=Epochs(count=2, steps_seconds=3.0, first_batch_seconds=7.0)),
        Verdict.DATA,
    ),
    "the first batches of tf.data, whose steps do not wait": (
        watched(**SLOWER, data="tf.data.Dataset", epochs=Epochs(count=2, steps_seconds=3.0, first_batch_seconds=7.0)),
        Verdict.PAUSES,
    ),
    "what a dataset does between epochs, with its line": (
        by_lines(0.3, 20.0, 10.0).model_copy(
            update={
                "epochs": Epochs(count=2, steps_seconds=1.0, between_seconds=30.0),
                "begins_anew": "`Data.on_epoch_end` runs while nothing trains",
            }
        ),
        Verdict.PAUSES,
    ),
    "callbacks at the end of an epoch": (epochs(callbacks_seconds=10.0), Verdict.CALLBACKS),
    "Keras waits between epochs": (epochs(queue_seconds=10.0), Verdict.DATA),
    "Keras waits between epochs, whose workers begin anew": (
        watched(epochs=Epochs(count=2, steps_seconds=5.0, queue_seconds=5.0), begins_anew="workers begin anew"),
        Verdict.DATA,
    ),
    "a long wait for a first batch beside a larger one": (
        watched(
            **SLOWER,
            epochs=Epochs(count=2, steps_seconds=10.0, first_batch_seconds=4.0),
            begins_anew="a new iterator fills its buffer",
        ),
        Verdict.CORES,
    ),
    "compiled for each shape": (
        watched(alone_images_per_second=700.0, compiling_seconds=8.0, shapes=40),
        Verdict.COMPILING,
    ),
    "nothing but waits": (watched(waiting_seconds=9.99, alone_images_per_second=1e6), Verdict.DATA),
    "others take the cores": (beside(20.0, 170.0), Verdict.OTHERS),
    "others take few": (beside(180.0, 10.0), Verdict.DATA),
    "others leave enough": (beside(5.0, 60.0), Verdict.DATA),
    "others take cores that it does not use": (beside(10.0, 190.0), Verdict.DATA),
    "bound to fewer cores, and waits": (watched(**WAITS, **BOUND), Verdict.DATA),
    "bound to fewer cores, and does not": (watched(**BOUND), Verdict.MODEL),
    "augmentation": (
        watched(augmentation=("RandomFlip",), without_augmentation_images_per_second=150.0),
        Verdict.AUGMENTATION,
    ),
    "progressive files": (watched(image_files=PROGRESSIVE, folder="/data/my photos"), Verdict.MODEL),
    "progressive files at the root": (watched(image_files=PROGRESSIVE, folder="/"), Verdict.MODEL),
    "no progressive files": (watched(image_files=NONE_PROGRESSIVE, folder="/data"), Verdict.MODEL),
    "lines that wait while cores are idle": (by_lines(0.01, 20.0, 10.0), Verdict.DATA),
    "lines that wait inside tf.data": (
        by_lines(0.01, 20.0, 10.0).model_copy(update={"data": "tf.data.Dataset"}),
        Verdict.DATA,
    ),
    "lines that compute": (by_lines(0.3, 20.0, 10.0), Verdict.DATA),
    "lines that wait while a core is busy": (by_lines(0.01, 95.0, 10.0), Verdict.DATA),
    "lines that wait beside other programs": (by_lines(0.01, 20.0, 150.0), Verdict.DATA),
    "callbacks left out, and a warning": (
        watched(left_out=("CSVLogger",), warnings=("Only 3 steps were timed.",)),
        Verdict.MODEL,
    ),
    "few page faults": (faults(100.0, 0.5), Verdict.MODEL),
    "page faults that take no time": (faults(90_000.0, 0.05), Verdict.MODEL),
    "page faults that take time": (faults(90_000.0, 0.5), Verdict.MODEL),
}


@pytest.mark.parametrize("name", SEEN)
def test_the_largest_part_of_what_is_lost_is_the_verdict(name: str) -> None:
    seen, verdict = SEEN[name]
    assert seen.verdict is verdict
    assert sum(seen.parts.values()) == pytest.approx(1.0)
    assert Watched.model_validate_json(seen.model_dump_json()) == seen


def test_what_is_said(approved: Approved) -> None:
    usual = rows(watched())

    def told(seen: Watched) -> str:
        """Return the lines that are not as usual, the command, and whether there is code to paste."""
        lines = [f"{name:13}{text}" for name, text in rows(seen) if (name, text) not in usual or seen == watched()]
        command = to_run(seen)
        return "\n".join([*lines, *[f"next: {command}"] * (command is not None), f"code: {to_paste(seen) is not None}"])

    approved({name: told(seen) for name, (seen, _) in SEEN.items()})


def test_a_host_that_waits_while_the_device_computes_is_not_called_waiting() -> None:
    assert watched(alone_images_per_second=100.0, waiting_seconds=9.0).shares[Verdict.DATA] == 0.0
    assert watched(alone_images_per_second=250.0, waiting_seconds=6.0).possible_gain == pytest.approx(2.5, rel=0.03)


@pytest.mark.parametrize("waiting", [0.0, 3.0, 9.9])
@pytest.mark.parametrize("between", [0.0, 2.0, 9.9])
@pytest.mark.parametrize("alone", [50.0, 100.0, 180.0, 1e6])
def test_the_shares_add_up_to_what_is_lost(waiting: float, between: float, alone: float) -> None:
    seen = watched(waiting_seconds=waiting, between_seconds=between, alone_images_per_second=alone)
    assert sum(seen.shares.values()) == pytest.approx(1)
    assert min(seen.shares.values()) >= 0
    assert seen.shares[Verdict.MODEL] >= min(1.0, seen.images_per_second / alone) - 1e-9


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
