"""The code to paste has the names of the script's own file, or says what is missing. It runs as it is pasted."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from autopipe.extensions.diagnose.paste import read, written
from autopipe.extensions.diagnose.watched import Watched
from tests.fakes.commands import autopipe, succeeded

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


@pytest.mark.parametrize(
    ("script", "has_index", "data", "model"),
    [
        (f"photos = Photos()\n{GUARD}build_model().fit(photos)", True, "photos", "build_model"),
        (f"{GUARD}model = build_model()\n    model.fit(make_dataset())", False, "make_dataset", "build_model"),
        (
            f"{GUARD}model = build_model(4)\n    model.fit(\n    x=make_dataset('val'))",
            False,
            "lambda: make_dataset('val')",
            "lambda: build_model(4)",
        ),
        (
            f"def main():\n    data = Photos()\n    net = build_model()\n    net.fit(data)\n{GUARD}main()",
            True,
            "Photos()",
            "build_model",
        ),
        ("data = make_dataset()\nmodel = build_model()\nmodel.fit(data)", False, "lambda: data", "lambda: model"),
        (f"{GUARD}model = bare()\n    model.compile()\n    model.fit(Photos())", True, "Photos()", None),
        (f"def main(data):\n    build_model().fit(data)\n{GUARD}main(1)", True, None, "build_model"),
        (f"{GUARD}part = 'val'\n    build_model().fit(make_dataset(part))", False, None, "build_model"),
        (f"photos, other = Photos(), 1\n{GUARD}build_model().fit(photos)", True, "photos", "build_model"),
        (f"photos, other = make_dataset()\n{GUARD}build_model().fit(photos)", False, "lambda: photos", "build_model"),
        (
            f"def main():\n    data, x = bare()\n    build_model().fit(data)\n{GUARD}main()",
            False,
            None,
            "build_model",
        ),
        ("def main():\n    build_model().fit(Photos())\nmain()", True, "Photos()", "build_model"),
        (
            f"from nets import net\nfrom data import Pets as Data\n{GUARD}net().fit(Data(8))",
            True,
            "Data(8)",
            "lambda: net()",
        ),
        ("if True:\n    data = Photos()\n    build_model().fit(data)", True, "Photos()", "build_model"),
    ],
)
def test_data_and_model_have_the_names_of_the_file(
    script: str, has_index: bool, data: str | None, model: str | None, tmp_path: Path
) -> None:
    (file := tmp_path / "train.py").write_text(TOP + script)
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if ".fit(" in text)
    code = read(str(file), line, kind=None, has_index=has_index, steps=12)
    assert (code.data, code.model) == (data, model)
    assert code.trains_when_imported == ("__name__" not in script)
    assert ("prefetch" in code.parameters) == (data == "make_dataset")
    text = written(code, None, 8)
    assert "steps=12" in text
    assert ("make_dataset() returns what you give to fit" in text) == (data is None)
    assert ("build_model() returns your compiled model" in text) == (model is None)
    assert (code.above == line) == script.splitlines()[-1].startswith("model.fit(")
    assert (f"above line {line}," in text) == (code.above is not None)
    assert ("First put what trains" in text) == (code.trains_when_imported and code.above is None)
    assert "mixed_bfloat16" in written(code.model_copy(update={"policy": "mixed_bfloat16"}), None, 8)
    compile(text, "pasted", "exec")


@pytest.mark.parametrize("text", ["", "def broken(:", "fit(1)"])
def test_a_file_that_tells_nothing_gets_code_to_complete(text: str, tmp_path: Path) -> None:
    (file := tmp_path / "train.py").write_text(text)
    code = read(str(file), 1, kind=None, has_index=True, steps=None)
    assert (code.data, code.model) == (None, None)
    assert "ap.wrap(make_dataset, model=build_model)" in written(code, None, 8)
    gone = read(str(tmp_path / "<cell>"), 1, kind=None, has_index=True, steps=None)
    assert gone.data is None


@pytest.mark.parametrize(
    ("script", "goes_on"),
    [
        ("for _ in range(3):\n    model.fit(data)", True),
        ("while True:\n    if go_on():\n        self.model.fit(data)", True),
        ("for fold in folds:\n    model = build_model()\n    model.fit(fold)", False),
        ("for fold in folds:\n    build_model().fit(fold)", False),
        ("model.fit(data)", False),
    ],
)
def test_a_loop_that_makes_each_model_anew_trains_none_again_and_again(
    script: str, goes_on: bool, tmp_path: Path
) -> None:
    (file := tmp_path / "train.py").write_text(script)
    line = len(script.splitlines())
    assert read(str(file), line, kind=None, has_index=True, steps=None).in_loop == goes_on


def test_a_generator_is_made_anew(tmp_path: Path) -> None:
    (file := tmp_path / "train.py").write_text(f"{TOP}data = make_dataset()\nbuild_model().fit(data)")
    line = len(file.read_text().splitlines())
    code = read(str(file), line, kind="a generator", has_index=False, steps=3)
    assert code.data == "make_dataset"


SCRIPT = """
import time

import keras
import numpy as np

x = np.arange(32 * 192, dtype="float32").reshape(32, 8, 8, 3)

class Data(keras.utils.PyDataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(0.02)
        return x[4 * index :][:4], np.zeros((4,), "int32")

def build_model():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

if __name__ == "__main__":
    data = Data()
    build_model().fit(data, epochs=1000, verbose=0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False])
def test_what_a_diagnosis_gives_runs_as_pasted(guarded: bool, tmp_path: Path) -> None:
    before, guard, trains = SCRIPT.partition(GUARD)
    trains = f"{guard}{trains}" if guarded else textwrap.dedent(f"    {trains}")
    (file := tmp_path / "train.py").write_text(before + trains)
    done = succeeded(autopipe("diagnose", "--json", "--steps", "8", "train.py", cwd=tmp_path))
    seen = Watched.model_validate_json(done.stdout)
    assert seen.code is not None
    pasted = written(seen.code, seen.data, seen.batch_size)
    assert "Add to train.py" in pasted
    assert "Then: autopipe tune train.py:workload" in pasted
    lines = [*(before + trains).splitlines(), ""]
    at = len(lines) if seen.code.above is None else seen.code.above - 1
    assert guarded == (at == len(lines))
    file.write_text("\n".join([*lines[:at], pasted, *lines[at:]]))
    succeeded(autopipe("verify", "train.py:workload", cwd=tmp_path))


@pytest.mark.parametrize(
    ("fit", "made"),
    [("x, y=y, epochs=3", "ap.Arrays(x, y)"), ("x[:9], y", "ap.Arrays(x, y)"), ("images, y", "ap.Arrays(images, y)")],
)
def test_arrays_have_the_names_of_the_script(fit: str, made: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"(x, y), (images, _) = load()\nmodel = build()\nmodel.compile()\nmodel.fit({fit})\n")
    text = written(read(str(file), 4, kind="arrays", has_index=True, steps=None), "arrays", 8)
    assert made in text
    assert ("what you give to fit" in text) == ("[" in fit)
