import importlib
import os
import pickle
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import pytest

from autopipe.errors import DataError, DataWarning, WorkloadError
from autopipe.hardware import machine
from autopipe.measure.trial.workload_import import WorkloadName, load_function, load_workload

FIT = keras.Model.fit
GOOD = """
from autopipe.workload.workload import Workload

class Numbers:
    __len__ = lambda self: 8
    read = lambda self, index: (index, index)

workload = Workload(data=Numbers(), ops=[], batch_size=2)
"""
SIZED = GOOD.replace("=2", "=size")
TRAINS = "import keras\nkeras.Sequential().fit([1])\n"
OURS = "train_me.py:workload"

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a file into the working directory; what it brings into this process goes with the test."""
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

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


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"there/neighbour.py": "size = 2\n", "there/train_there.py": f"from neighbour import size\n{SIZED}"},
         "there/train_there.py:workload"),
        ({"package_of_mine/train.py": GOOD}, "package_of_mine.train:workload"),
        ({"train_me.py": f"{GOOD}def make():\n    return workload\n"}, "train_me.py:make"),
        ({"json.py": GOOD}, "json.py:workload"),  # a name of a standard module
    ],
    ids=["with a neighbour", "in a module", "by a function", "named like another"],
)  # fmt: skip
def test_a_workload_is_loaded_from_a_file_a_module_or_a_function(
    write: Write, files: dict[str, str], named: str
) -> None:
    for name, text in files.items():
        write(name, text)
    assert load_workload(named).batch_size == 2
    assert "Numbers" not in vars(sys.modules["json"])


@pytest.mark.parametrize("package", [True, False])
def test_a_file_may_import_relative_to_the_package_that_its_folder_is(write: Write, *, package: bool) -> None:
    name = f"package_of_mine_{package}"
    sys.path.pop(0)
    if package:
        write(f"{name}/__init__.py", "")
    write(f"{name}/sizes.py", "size = 4\n")
    write(f"{name}/train_there.py", f"from .sizes import size\n{SIZED}")
    workload = load_workload(f"{name}/train_there.py:workload")
    assert (workload.batch_size, type(workload.data).__module__) == (4, f"{name}.train_there")
    assert load_workload(f"{name}/train_there.py:workload") is workload
    assert str(Path(name).resolve()) not in sys.path  # its modules hide none of Python's own


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
        (TRAINS, "workload", "imported: it calls `fit`(?s:.*)train_me.py, line 2", "__main__"),
        ("def read():\n    return int('many')\n\nread()\n", "workload",
         r"^`train_me.py` could not be imported: ValueError: invalid literal .*\n"
         r"  train_me.py, line 4, in <module>: read\(\)\n  train_me.py, line 2, in read: return int\('many'\) T", ""),
        ("x = 1\nworkload = (\n", "workload",
         r"^`train_me.py` could not be imported: SyntaxError: '\(' was never closed.*\n"
         r"  train_me.py, line 2: workload = \( The last", ""),
        ("def make():\n    raise KeyError('palette')\n", "make",
         r"`make\(\)`.* raised: KeyError(?s:.*)line 2, in make", ""),
        (GOOD + "def make(path):\n    return workload\n", "make", "takes arguments: missing a .*: 'path'", ""),
        *((f"{GOOD}other = {value}\n", "other", "must be a Workload", "") for value in ("5", "lambda: 5")),
        (GOOD, "Workload", "must be a Workload", "That is a class. Name an object of it"),
        (GOOD, "worklod", r"has no `worklod`. Did you mean `workload`\?", "It has `workload`."),
        ("def main(path):\n    loader = 3\n", "loader", "has no `loader`",
         "`main` has a `loader` inside. Name a function"),
        ("class Photos:\n    def __len__(self):\n        return 2\n    def __getitem__(self, index):\n"
         "        return (index,)\nloaders = {'train': Photos()}\n",
         "loaders", "must be a Workload", "as by data = loaders['train']: train_me.py:data"),
        ("batches = (each for each in 'ab')\n", "batches", "must be a Workload, a dataset", "into a function"),
    ],
)  # fmt: skip
def test_a_script_that_gives_no_workload_is_told_why_and_what_to_do(
    write: Write, code: str, name: str, message: str, hint: str
) -> None:
    write("train_me.py", code)
    with pytest.raises(WorkloadError, match=message) as caught:
        load_workload(f"train_me.py:{name}")
    assert "`train_me.py`" in caught.value.message
    assert hint.format(here=Path.cwd()) in str(caught.value.hint)
    assert keras.Model.fit is FIT
    write("train_me.py", GOOD)  # which can be mended
    assert "could not be" not in caught.value.message or load_workload(OURS).batch_size == 2


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        *((name, "by a file or module and an attribute") for name in ("train_me.py", "train_me.py:", ":workload", "")),
        ("train_me.py:not a name", "by a file or module and an attribute"),
        ("trian_me.py:workload", r"`trian_me.py` is not a file. Did you mean `train_me.py`\?"),
        ("nowhere_at_all.train:workload", "no module `nowhere_at_all`"),
        ("nb.ipynb:workload", r"In the notebook itself: ap.tune"),
        ("needs_more:workload", r"not_installed(?s:.*)needs_more.py, line 2"),
        ("broken/train_there.py:workload", r"ValueError(?s:.*)sizes\.py, line 1"),
        ("imports_broken.py:workload", r"'\(' was never closed.*\n  broken_part.py, line 2: y = \( The last"),
    ],
)
def test_what_is_missing_or_wrong_elsewhere_is_named(write: Write, reference: str, said: str) -> None:
    write("train_me.py", GOOD)
    write("needs_more.py", "\nimport not_installed\n")
    write("broken/sizes.py", "size = int('many')\n")
    write("broken/train_there.py", f"from .sizes import size\n{SIZED}")
    write("broken_part.py", "x = 1\ny = (\n")
    write("imports_broken.py", "import broken_part\n")
    with pytest.raises(WorkloadError, match=said):
        load_workload(reference)


DATASETS = """
import numpy as np

class Photos:
    __len__ = lambda self: 3
    __getitem__ = lambda self, index: (np.full((2, 4, 4, 3), index, np.uint8), np.arange(2))

photos = Photos()

def make():
    return photos

def batches():
    return (photos[index] for index in range(3))

class Readable:  # like a torch DataLoader
    __iter__ = lambda self: batches()

class Specified(Readable):  # like a tf.data.Dataset
    element_spec = None

loader, ds = Readable(), Specified()
"""


def test_a_dataset_of_the_users_own_is_a_workload_without_a_model(write: Write) -> None:
    write("train_me.py", DATASETS)
    for name in ("photos", "make", "batches", "loader", "ds"):
        workload = load_workload(f"train_me.py:{name}")
        assert (workload.model, workload.batch_size, len(workload.data)) == (None, 2, 6)


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
    assert load_workload(OURS) is vars(script)["workload"]


def test_a_file_is_loaded_once_and_what_it_defines_can_be_pickled_by_name(write: Write) -> None:
    write("train_me.py", GOOD)
    workload = load_workload(OURS)
    assert (load_workload(OURS) is workload, type(workload.data).__module__) == (True, "train_me")
    assert isinstance(pickle.loads(pickle.dumps(workload.data)), type(workload.data))
    write("imported_package/train_here.py", GOOD)
    module = importlib.import_module("imported_package.train_here")  # whatever its name
    assert load_workload("imported_package/train_here.py:workload") is module.workload
    first, second = write("a/train_me.py", GOOD), write("b/train_me.py", GOOD.replace("=2", "=3"))
    assert [load_workload(f"{path}:workload").batch_size for path in (first, second, first)] == [2, 3, 2]


@pytest.mark.parametrize("call", ["fit([1])", "train_on_batch([1])"])
def test_of_a_file_that_trains_at_its_top_all_before_that_is_there(call: str, write: Write) -> None:
    trains = f"import keras\ntry:\n    keras.Sequential().{call}\nexcept Exception:\n    pass\nworkload = 1\n"
    write("train_me.py", GOOD + trains)
    with pytest.warns(DataWarning, match=rf"line \d+, `keras.Sequential\(\).{re.escape(call)}`"):
        assert load_workload(OURS).batch_size == 2
    assert load_workload(OURS).batch_size == 2


def test_a_gradient_of_jax_is_a_training_at_the_top_of_a_file_and_none_later(write: Write) -> None:
    pytest.importorskip("jax")
    derived = "from jax import grad\ndef gradient():\n    return grad(lambda x: x**2)(3.0)\nslope = grad(abs)\n"
    write("train_me.py", GOOD + derived + "gradient()\nworkload = 1\n")
    with pytest.warns(DataWarning, match=r"line \d+, `gradient\(\)`"):
        workload = load_workload(OURS)
    module = sys.modules[type(workload.data).__module__]
    assert (float(module.gradient()), float(module.slope(-1.0))) == (6.0, -1.0)


def test_what_fit_gets_at_the_top_of_a_file_is_named(write: Write) -> None:
    write("train_me.py", f"{DATASETS}import keras\nkeras.Sequential().fit(x=photos)\nworkload = 1\n")
    with pytest.raises(WorkloadError, match="calls `fit`") as caught:
        load_workload(OURS)
    assert "train_me.py:photos" in (caught.value.hint or "")
    with pytest.warns(DataWarning, match="line 24"):
        assert len(load_workload("train_me.py:photos").data) == 6


def test_an_error_of_ours_comes_through_as_it_is(write: Write) -> None:
    write("train_me.py", "from autopipe.errors import DataError\nraise DataError('`photos/` is empty.')\n")
    with pytest.raises(DataError, match=r"^`photos/` is empty\.$"):
        load_workload(OURS)


def test_what_is_no_such_function_is_refused_with_what_there_is(write: Write) -> None:
    write("bench2.py", "number = 1\ndef made():\n    return 7\ndef sized(batch_size):\n    return 7\n")
    for name, message in (
        ("makes", r"`bench2.py` has no `makes`, which a baseline has to be. Did you mean `made`\?"),
        ("number", "`number` of `bench2.py` is no function"),
        ("sized", "must be callable without arguments"),
    ):
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
