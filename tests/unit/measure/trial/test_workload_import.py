from __future__ import annotations

import importlib
import os
import pickle
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autopipe.errors import DataError, DataWarning, WorkloadError
from autopipe.hardware import machine
from autopipe.measure.trial.workload_import import WorkloadName, load_function, load_workload
from autopipe.workload.workload import Workload

HEAD = """
from autopipe.workload.workload import Workload

class Numbers:
    def __len__(self):
        return 8

    def read(self, index):
        return index, index

"""
GOOD = HEAD + "workload = Workload(data=Numbers(), ops=[], batch_size=2)\n"

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a file into the working directory; what it brings into this process goes with the test."""
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    yield write
    for name in set(sys.modules) - modules:  # not a framework, which cannot be imported twice
        module = sys.modules[name]
        places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
        if any(place.startswith(str(tmp_path)) for place in places):
            del sys.modules[name]


def test_a_file_in_another_folder_may_import_its_neighbours(write: Write) -> None:
    write("there/neighbour_of_train.py", "size = 4\n")
    path = write("there/train_there.py", "from neighbour_of_train import size\n" + GOOD.replace("=2", "=size"))
    assert load_workload(f"{path}:workload").batch_size == 4


@pytest.mark.parametrize("package", [True, False])
def test_a_file_may_import_relative_to_the_package_that_its_folder_is(write: Write, *, package: bool) -> None:
    name = f"package_of_mine_{package}"
    if package:
        write(f"{name}/__init__.py", "")
    write(f"{name}/sizes.py", "size = 4\n")
    write(f"{name}/train_there.py", "from .sizes import size\n" + GOOD.replace("=2", "=size"))
    workload = load_workload(f"{name}/train_there.py:workload")
    assert workload.batch_size == 4
    assert type(workload.data).__module__ == f"{name}.train_there"
    assert load_workload(f"{name}/train_there.py:workload") is workload
    assert str(Path(name).resolve()) not in sys.path  # its modules hide none of Python's own


def test_what_else_is_wrong_in_such_a_file_is_what_is_told(write: Write) -> None:
    write("broken_package/sizes.py", "size = int('many')\n")
    write("broken_package/train_there.py", "from .sizes import size\n" + GOOD)
    with pytest.raises(WorkloadError, match=r"ValueError(?s:.*)sizes\.py, line 1"):
        load_workload("broken_package/train_there.py:workload")


def test_a_file_that_is_imported_already_is_taken_whatever_its_name(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("imported_package/train_here.py", GOOD)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    module = importlib.import_module("imported_package.train_here")
    assert load_workload("imported_package/train_here.py:workload") is module.workload


def test_a_workload_in_a_module_and_a_function_that_returns_one(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("package_of_mine/train.py", GOOD)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    assert isinstance(load_workload("package_of_mine.train:workload"), Workload)
    write("train_me.py", GOOD + "def make():\n    return workload\n")
    assert isinstance(load_workload("train_me.py:make"), Workload)


WANTS_ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.parse_args([])
"""


@pytest.mark.parametrize(
    ("code", "name", "message", "hint"),
    [
        ("open('labels.csv')\n", "workload", "FileNotFoundError", "{here}"),  # where relative paths start
        ("import sys\nsys.exit(0)\n", "workload", "SystemExit", "__main__"),
        (WANTS_ARGUMENTS, "workload", "SystemExit", "give each a default"),
        (
            "def make():\n    raise KeyError('palette')\n",
            "make",
            r"`make\(\)`.* raised: KeyError(?s:.*)line 2, in make",
            "",
        ),
        (GOOD + "def make(path):\n    return workload\n", "make", "takes arguments: missing a .*: 'path'", ""),
        *((f"{GOOD}other = {value}\n", "other", "must be a Workload", "") for value in ("5", "lambda: 5")),
        (GOOD, "Workload", "must be a Workload", "That is a class. Name an object of it"),
        (
            "def main(path):\n    loader = 3\n",
            "loader",
            "has no `loader`",
            "`main` has a `loader` inside. Name a function",
        ),
        (
            "class Photos:\n    def __len__(self):\n        return 2\n    def __getitem__(self, index):\n"
            "        return (index,)\nloaders = {'train': Photos()}\n",
            *("loaders", "must be a Workload", "as by data = loaders['train']: train_me.py:data"),
        ),
        ("batches = (each for each in 'ab')\n", "batches", "must be a Workload, a dataset", "into a function"),
    ],
)
def test_a_script_that_gives_no_workload_is_told_why_and_what_to_do(
    write: Write, code: str, name: str, message: str, hint: str
) -> None:
    write("train_me.py", code)
    with pytest.raises(WorkloadError, match=message) as caught:
        load_workload(f"train_me.py:{name}")
    assert "`train_me.py`" in caught.value.message
    assert hint.format(here=Path.cwd()) in str(caught.value.hint)


DATASETS = """
import numpy as np

class Photos:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return np.full((2, 4, 4, 3), index, np.uint8), np.arange(2)

photos = Photos()

def make():
    return photos

def batches():
    return (photos[index] for index in range(3))

class Readable:  # like a torch DataLoader
    def __iter__(self):
        return batches()

class Specified(Readable):  # like a tf.data.Dataset
    element_spec = None

loader, ds = Readable(), Specified()
"""


@pytest.mark.parametrize("name", ["photos", "make", "batches", "loader", "ds"])
def test_a_dataset_of_the_users_own_is_a_workload_without_a_model(write: Write, name: str) -> None:
    write("train_me.py", DATASETS)
    workload = load_workload(f"train_me.py:{name}")
    assert workload.model is None
    assert workload.batch_size == 2
    assert len(workload.data) == 6


def test_a_function_that_nobody_but_an_artifact_names_is_not_called(write: Write) -> None:
    write("called.py", GOOD + "\ndef make():\n    raise SystemExit('called')\n")
    with pytest.raises(WorkloadError, match="is not called") as caught:
        load_workload(WorkloadName(text="called.py:make", may_call=False))
    assert str(caught.value.hint).endswith("workload='called.py:make', or --workload called.py:make")
    assert load_workload(WorkloadName(text="called.py:workload", may_call=False)).batch_size == 2


def test_the_script_that_runs_is_not_run_again(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("other.py", GOOD)
    script = types.ModuleType("__main__")
    script.__file__ = str(write("train_me.py", "raise RuntimeError('it would tune and train once more')\n"))
    vars(script)["workload"] = load_workload("other.py:workload")
    monkeypatch.setitem(sys.modules, "__main__", script)
    assert load_workload("train_me.py:workload") is vars(script)["workload"]


def test_a_file_is_loaded_once_and_what_it_defines_can_be_pickled_by_name(write: Write) -> None:
    write("train_me.py", GOOD)
    workload = load_workload("train_me.py:workload")
    assert load_workload("train_me.py:workload") is workload
    assert type(workload.data).__module__ == "train_me"
    assert isinstance(pickle.loads(pickle.dumps(workload.data)), type(workload.data))


def test_two_files_of_one_name_are_two_modules(write: Write) -> None:
    first, second = write("a/train_me.py", GOOD), write("b/train_me.py", GOOD.replace("=2", "=3"))
    sizes = [load_workload(f"{path}:workload").batch_size for path in (first, second, first)]
    assert sizes == [2, 3, 2]


def test_a_file_may_be_named_like_a_standard_module(write: Write) -> None:
    write("json.py", GOOD)
    assert load_workload("json.py:workload").batch_size == 2
    assert "Numbers" not in vars(sys.modules["json"])


@pytest.mark.parametrize("reference", ["train.py", "train.py:", ":workload", "", "train.py:not a name"])
def test_a_reference_has_two_parts(reference: str) -> None:
    with pytest.raises(WorkloadError, match="named by a file or module and an attribute"):
        load_workload(reference)


def test_what_is_missing_is_named_with_the_near_one(write: Write) -> None:
    write("train.py", GOOD)
    for reference, said in (
        ("trian.py:workload", r"`trian.py` is not a file. Did you mean `train.py`\?"),
        ("nowhere_at_all.train:workload", "no module `nowhere_at_all`"),
        ("nb.ipynb:workload", r"In the notebook itself: ap.tune"),
        ("train.py:worklod", r"has no `worklod`. Did you mean `workload`\?"),
    ):
        with pytest.raises(WorkloadError, match=said) as caught:
            load_workload(reference)
    assert caught.value.hint == "It has `workload`."


def test_a_module_that_misses_another_shows_its_line(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("needs_more.py", "\nimport not_installed\n")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    with pytest.raises(WorkloadError, match=r"not_installed(?s:.*)needs_more.py, line 2"):
        load_workload("needs_more:workload")


def test_an_import_that_raises_shows_the_users_lines(write: Write) -> None:
    write("train_me.py", "def read():\n    return int('many')\n\nread()\n")
    with pytest.raises(WorkloadError) as caught:
        load_workload("train_me.py:workload")
    lines = caught.value.message.splitlines()
    assert lines[0].startswith("`train_me.py` could not be imported: ValueError: invalid literal")
    assert lines[1:] == [
        "  train_me.py, line 4, in <module>: read()",
        "  train_me.py, line 2, in read: return int('many')",
    ]


def test_a_file_that_trains_when_it_is_imported_is_refused(write: Write) -> None:
    import keras

    fit = keras.Model.fit
    write("train_me.py", "import keras\nkeras.Sequential().fit([1])\n")
    with pytest.raises(WorkloadError, match=r"imported: it calls `fit`(?s:.*)train_me.py, line 2") as caught:
        load_workload("train_me.py:workload")
    assert "__main__" in (caught.value.hint or "")
    assert keras.Model.fit is fit


@pytest.mark.parametrize("call", ["fit([1])", "train_on_batch([1])"])
def test_of_a_file_that_trains_at_its_top_all_before_that_is_there(call: str, write: Write) -> None:
    trains = f"import keras\ntry:\n    keras.Sequential().{call}\nexcept Exception:\n    pass\nworkload = 1\n"
    write("train_me.py", GOOD + trains)
    with pytest.warns(DataWarning, match=rf"line \d+, `keras.Sequential\(\).{re.escape(call)}`"):
        assert load_workload("train_me.py:workload").batch_size == 2
    assert load_workload("train_me.py:workload").batch_size == 2


def test_a_gradient_of_jax_is_a_training_at_the_top_of_a_file_and_none_later(write: Write) -> None:
    pytest.importorskip("jax")
    derived = "from jax import grad\ndef gradient():\n    return grad(lambda x: x**2)(3.0)\nslope = grad(abs)\n"
    write("train_me.py", GOOD + derived + "gradient()\nworkload = 1\n")
    with pytest.warns(DataWarning, match=r"line \d+, `gradient\(\)`"):
        workload = load_workload("train_me.py:workload")
    module = sys.modules[type(workload.data).__module__]
    assert (float(module.gradient()), float(module.slope(-1.0))) == (6.0, -1.0)


def test_what_fit_gets_at_the_top_of_a_file_is_named(write: Write) -> None:
    write("train_me.py", f"{DATASETS}import keras\nkeras.Sequential().fit(x=photos)\nworkload = 1\n")
    with pytest.raises(WorkloadError, match="calls `fit`") as caught:
        load_workload("train_me.py:workload")
    assert "train_me.py:photos" in (caught.value.hint or "")
    with pytest.warns(DataWarning, match="line 28"):
        assert len(load_workload("train_me.py:photos").data) == 6


def test_a_syntax_error_names_its_line(write: Write) -> None:
    write("broken_part.py", "x = 1\nworkload = (\n")
    write("train_me.py", "import broken_part\n")
    for name in ("train_me.py", "broken_part.py"):
        with pytest.raises(WorkloadError) as caught:
            load_workload(f"{name}:workload")
        first, *lines = caught.value.message.splitlines()
        assert first.startswith(f"`{name}` could not be imported: SyntaxError: '(' was never closed")
        assert lines == ["  broken_part.py, line 2: workload = ("]


def test_an_error_of_ours_comes_through_as_it_is(write: Write) -> None:
    write("train_me.py", "from autopipe.errors import DataError\nraise DataError('`photos/` is empty.')\n")
    with pytest.raises(DataError, match=r"^`photos/` is empty\.$"):
        load_workload("train_me.py:workload")


def test_a_failed_import_can_be_mended(write: Write) -> None:
    write("train_me.py", "raise ValueError\n")
    with pytest.raises(WorkloadError):
        load_workload("train_me.py:workload")
    write("train_me.py", GOOD)
    assert load_workload("train_me.py:workload").batch_size == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("makes", r"`bench2.py` has no `makes`, which a baseline has to be. Did you mean `made`\?"),
        ("number", "`number` of `bench2.py` is no function"),
        ("sized", "must be callable without arguments"),
    ],
)
def test_what_is_no_such_function_is_refused_with_what_there_is(write: Write, name: str, message: str) -> None:
    write("bench2.py", "number = 1\ndef made():\n    return 7\ndef sized(batch_size):\n    return 7\n")
    with pytest.raises(WorkloadError, match=message):
        load_function(f"bench2.py:{name}")
    assert load_function("bench2.py:made")() == 7


@pytest.mark.skipif(len(machine.allowed()) < 2, reason="there is one core only")
def test_a_file_that_takes_cores_away_is_told_of(write: Write) -> None:
    before = machine.allowed()
    write("binds.py", GOOD + "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n")
    try:
        with pytest.warns(DataWarning, match=r"binds.py:.*bound this process to 1 of its"):
            load_workload("binds.py:workload")
    finally:
        os.sched_setaffinity(0, before)
