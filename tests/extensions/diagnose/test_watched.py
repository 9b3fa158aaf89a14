"""What follows from what was seen of a training, what is said of it, and the code to paste that is given with it.

The code has the names of the script's own file, or says what is missing. It runs as it is pasted.
"""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import autopipe
from autopipe.extensions.diagnose.loop import kind_of_data
from autopipe.extensions.diagnose.paste import read, written
from autopipe.extensions.diagnose.steps import Epochs
from autopipe.extensions.diagnose.watched import Pages, Verdict, Watched, rows, to_paste, to_run
from autopipe.measure.lines import Line, Lines
from autopipe.measure.outcome import Resources
from autopipe.workload.ops.headers import Progressive
from tests.fakes.reports import Approved


def watched(**other: Any) -> Watched:
    seconds = {"seconds": 10.0, "waiting_seconds": 0.1, "between_seconds": 0.1, "first_step_seconds": 3.0}
    figures = {"backend": "jax", "batch_size": 10, "steps": 100, "images": 1000, "cores": 2.0, **seconds}
    return Watched(**{**figures, "alone_images_per_second": 105.0, **other})


WAITS = {"alone_images_per_second": 270.0, "waiting_seconds": 6.3}
SLOWER = {"alone_images_per_second": 300.0}
LATE = {"data": "tf.data.Dataset", "epochs": Epochs(count=2, steps_seconds=3.0, first_batch_seconds=7.0)}
FEED = type("Feed", (), {"__module__": "autopipe.frameworks"})()  # as a trainer's, without Keras
BOUND = {"cores": 1.0, "bound": "`import blas` bound this process to 1 of its 2 cores."}
PROGRESSIVE = Progressive(files=9, looked_at=9, progressive=3)
NONE_PROGRESSIVE = Progressive(files=9, looked_at=9, progressive=0)
LOOP = {**WAITS, "loop": "train.py:7"}


def beside(own: float, others: float) -> Watched:
    resources = Resources(cpu_percent=own, others_cpu_percent=others)
    return watched(**WAITS, resources=resources, warnings=resources.warnings)


def epochs(steps: float = 10.0, seen: dict[str, Any] | None = None, **parts: Any) -> Watched:
    return watched(**seen or {}, epochs=Epochs(count=2, steps_seconds=steps, **parts))


def by_lines(computes: float, own: float, others: float, **other: Any) -> Watched:
    """Return a training that waits for data whose line computes for a share of its time."""
    line = Line(file="train.py", line=3, code="read(path)", seconds=10.0, processor_seconds=10 * computes)
    seen = {"alone_images_per_second": 1000.0, "waiting_seconds": 9.0, "lines": Lines(lines=(line,), seconds=10.0)}
    return watched(**seen, resources=Resources(cpu_percent=own, others_cpu_percent=others), **other)


def faults(each_step: float, share: float) -> Watched:
    return watched(pages=Pages(faults_per_step=each_step, kernel_share=share))


HOOK = {
    "epochs": Epochs(count=2, steps_seconds=1.0, between_seconds=30.0),
    "begins_anew": "`Data.on_epoch_end` runs while nothing trains",
}
SEEN: dict[str, Watched] = {
    "the model is the limit": watched(),
    "it waits for data": watched(**WAITS),
    "of autopipe, which has a workload": watched(**WAITS, data=kind_of_data(FEED)),
    "the cores are taken": watched(**SLOWER),
    "callbacks": watched(**SLOWER, between_seconds=6.0),
    "callbacks on torch, which refuses steps_per_execution": watched(**SLOWER, between_seconds=6.0, backend="torch"),
    "the model alone is not known": watched(alone_images_per_second=None, waiting_seconds=5.0),
    "a slow validation that waits": epochs(validation_seconds=30.0, validation_waiting_seconds=27.0),
    "a slow validation that computes": epochs(validation_seconds=30.0),
    "a short validation": epochs(validation_seconds=0.5),
    "pauses": epochs(first_batch_seconds=7.0, between_seconds=3.0),
    "a PyDataset's first batches, which nothing begins anew for": epochs(
        1.0, {"data": "keras.utils.PyDataset"}, first_batch_seconds=7.0
    ),
    "the first batches of tf.data, whose steps wait for them as well": watched(**WAITS, **LATE),
    "the first batches of tf.data, whose steps do not wait": watched(**SLOWER, **LATE),
    "what a dataset does between epochs, with its line": by_lines(0.3, 20.0, 10.0, **HOOK),
    "callbacks at the end of an epoch": epochs(callbacks_seconds=10.0),
    "Keras waits between epochs": epochs(queue_seconds=10.0),
    "Keras waits between epochs, whose workers begin anew": epochs(
        5.0, {"begins_anew": "workers begin anew"}, queue_seconds=5.0
    ),
    "a long wait for a first batch beside a larger one": epochs(
        10.0, {**SLOWER, "begins_anew": "a new iterator fills its buffer"}, first_batch_seconds=4.0
    ),
    "compiled for each shape": watched(alone_images_per_second=700.0, compiling_seconds=8.0, shapes=40),
    "nothing but waits": watched(waiting_seconds=9.99, alone_images_per_second=1e6),
    "others take the cores": beside(20.0, 170.0),
    "others take few": beside(180.0, 10.0),
    "others leave enough": beside(5.0, 60.0),
    "others take cores that it does not use": beside(10.0, 190.0),
    "bound to fewer cores, and waits": watched(**WAITS, **BOUND),
    "bound to fewer cores, and does not": watched(**BOUND),
    "augmentation": watched(augmentation=("RandomFlip",), without_augmentation_images_per_second=150.0),
    "progressive files": watched(image_files=PROGRESSIVE, folder="/data/my photos"),
    "progressive files at the root": watched(image_files=PROGRESSIVE, folder="/"),
    "no progressive files": watched(image_files=NONE_PROGRESSIVE, folder="/data"),
    "lines that wait while cores are idle": by_lines(0.01, 20.0, 10.0),
    "lines that wait inside tf.data": by_lines(0.01, 20.0, 10.0, data="tf.data.Dataset"),
    "lines that compute": by_lines(0.3, 20.0, 10.0),
    "lines that wait while a core is busy": by_lines(0.01, 95.0, 10.0),
    "lines that wait beside other programs": by_lines(0.01, 20.0, 150.0),
    "callbacks left out, and a warning": watched(left_out=("CSVLogger",), warnings=("Only 3 steps were timed.",)),
    "few page faults": faults(100.0, 0.5),
    "page faults that take no time": faults(90_000.0, 0.05),
    "page faults that take time": faults(90_000.0, 0.5),
    "a loop of torch without workers": watched(**LOOP, data="torch DataLoader", workers=0),
    "a loop of torch with more workers than cores": watched(**LOOP, data="torch DataLoader", workers=16),
    "a loop over tensors": watched(**LOOP, data="torch DataLoader of a TensorDataset", workers=16),
    "a loop over a stream": watched(**LOOP, data="torch DataLoader of an IterableDataset", workers=0),
    "a loop over a PyDataset": watched(**LOOP, data="keras.utils.PyDataset"),
    "a loop that a trainer's workers feed": watched(**LOOP, data="autopipe"),
}


def test_what_is_said(approved: Approved) -> None:
    """The largest part of what is lost is the verdict."""
    usual = rows(watched())

    def told(seen: Watched) -> str:
        """Return the lines that are not as usual, the command, and whether there is code to paste."""
        lines = [f"{name:13}{text}" for name, text in rows(seen) if (name, text) not in usual or seen == watched()]
        command = to_run(seen)
        code = f"code: {to_paste(seen) is not None}"
        return "\n".join([*lines, *[f"next: {command}"] * (command is not None), code, f"it is: {seen.verdict.name}"])

    approved({name: told(seen) for name, seen in SEEN.items()})
    for name, seen in SEEN.items():
        assert sum(seen.parts.values()) == pytest.approx(1.0), name
        assert Watched.model_validate_json(seen.model_dump_json()) == seen


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


# -------------------- code of the names of the file

TOP = """
def build_model(size=8):
    model = make(size)
    model.compile("adam")
    return model

def make_dataset(part="train", prefetch=1):
    return part, prefetch

class Photos:
    pass

def bare():
    return make(8)
"""
GUARD = 'if __name__ == "__main__":\n    '
LOADED = "(x, y), (images, _) = load()\nmodel = build()\n"
PASTED: dict[str, tuple[str | None, bool]] = {  # scripts, with the kind of their data, and whether these have an index
    f"photos = Photos()\n{GUARD}build_model().fit(photos)": (None, True),
    f"{GUARD}model = build_model()\n    model.fit(make_dataset())": (None, False),
    f"{GUARD}model = build_model(4)\n    model.fit(\n    x=make_dataset('val'))": (None, False),
    f"def main():\n    data = Photos()\n    net = build_model()\n    net.fit(data)\n{GUARD}main()": (None, True),
    "data = make_dataset()\nmodel = build_model()\nmodel.fit(data)": (None, False),
    "data = make_dataset()\nbuild_model().fit(data)": ("a generator", False),
    f"{GUARD}model = bare()\n    model.compile()\n    model.fit(Photos())": (None, True),
    f"def main(data):\n    build_model().fit(data)\n{GUARD}main(1)": (None, True),
    f"{GUARD}part = 'val'\n    build_model().fit(make_dataset(part))": (None, False),
    f"photos, other = Photos(), 1\n{GUARD}build_model().fit(photos)": (None, True),
    f"photos, other = make_dataset()\n{GUARD}build_model().fit(photos)": (None, False),
    f"def main():\n    data, x = bare()\n    build_model().fit(data)\n{GUARD}main()": (None, False),
    "def main():\n    build_model().fit(Photos())\nmain()": (None, True),
    f"from nets import net\nfrom data import Pets as Data\n{GUARD}net().fit(Data(8))": (None, True),
    "if True:\n    data = Photos()\n    build_model().fit(data)": (None, True),
    "def broken(:": (None, True),
    "fit(1)": (None, True),
    f"{LOADED}model.fit(x, y=y, epochs=3)": ("arrays", True),
    f"{LOADED}model.fit(x[:9], y)": ("arrays", True),
    f"{LOADED}model.fit(images, y)": ("arrays", True),
    # Loops that make each model anew train none again and again.
    "for _ in range(3):\n    model.fit(data)": (None, True),
    "while True:\n    if go_on():\n        self.model.fit(data)": (None, True),
    "for fold in folds:\n    model = build_model()\n    model.fit(fold)": (None, True),
    "for fold in folds:\n    build_model().fit(fold)": (None, True),
}


def test_data_and_model_to_paste_have_the_names_of_the_file(approved: Approved, tmp_path: Path) -> None:
    texts = dict[str, str]()
    for script, (kind, has_index) in PASTED.items():
        (file := tmp_path / "train.py").write_text(TOP + script)
        lines = file.read_text().splitlines()
        line = next((number for number, text in enumerate(lines, 1) if ".fit(" in text), len(lines))
        code = read(str(file), line, kind=kind, has_index=has_index, steps=12).model_copy(update={"file": file.name})
        texts[script] = f"{code.model_dump(exclude_defaults=True)}\n{(text := written(code, kind, 8))}"
        compile(text, "pasted", "exec")
        assert "mixed_bfloat16" in written(code.model_copy(update={"policy": "mixed_bfloat16"}), kind, 8)
    approved(texts)
    gone = read(str(tmp_path / "<cell>"), 1, kind=None, has_index=True, steps=None)
    assert (gone.data, gone.model) == (None, None)
