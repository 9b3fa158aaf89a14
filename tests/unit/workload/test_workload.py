"""What a workload may be, how its samples are built, and where its relative paths start."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import re
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from autopipe.errors import DataError, DataWarning, WorkloadError
from autopipe.frameworks.hooks import standing_in
from autopipe.pipeline.assembly import batch_order, batches_digest
from autopipe.workload.data import paths
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.data.source import Subset
from autopipe.workload.digests import digest, op_settings, ops_digest, value_text
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.on_parts import On
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.ops.sizes import RandomCrop
from autopipe.workload.order import Blocks
from autopipe.workload.sample import Structure, label
from autopipe.workload.workload import Workload
from tests.fakes.commands import python, succeeded
from tests.fakes.facts import known
from tests.fakes.sources import Made

DATA = Arrays(np.zeros((10, 4, 4, 3), np.uint8), np.arange(10))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "photos/"}, "`data` must have"),
        ({"ops": [abs]}, "ap.Map"),
        ({"ops": [RandomFlip]}, r"Write ap\.RandomFlip\(\.\.\.\)"),
        ({"ops": [RandomFlip(on="masks")]}, "`on` of RandomFlip must be .* but got 'masks'"),  # type: ignore[arg-type]
        ({"ops": RandomFlip()}, r"`ops` must be a list of ops, but got RandomFlip\("),
        ({"converted": None}, "A path or a URL must be text or a pathlib.Path, but got None"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 2.0}, r"batch_size=2\.0"),
        ({"batch_size": True}, "batch_size=True"),
        ({"batch_size": 11}, "there are 10 samples"),
        ({"on_bad_sample": "ignore"}, "ignore"),
        ({"seed": None}, "`seed` must be a whole number, but got seed=None"),
        ({"seed": 0.5}, r"seed=0\.5"),
        ({"data": Made(0, int), "batch_size": 1}, "`data` must hold at least one sample"),
        ({"validation": "val/"}, "`validation` must have `__len__` and `read"),
        ({"validation": Made(0, int)}, "`validation` must hold at least one sample"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        Workload(**{"data": DATA, "ops": [], "batch_size": 2, **changes})


def test_blocks_are_the_datas_own_or_as_many_neighbours_as_are_named() -> None:
    with pytest.raises(WorkloadError, match=r"has no blocks of its own.*shuffle=ap\.Blocks\(size=256\)"):
        Workload(data=DATA, ops=[], batch_size=2, shuffle=Blocks())
    named = Workload(data=DATA, ops=[], batch_size=2, shuffle=Blocks(size=4, mixed=1))
    order = (batch_order(named).epoch(1) // 4).tolist()
    assert sorted(order) == [0] * 4 + [1] * 4 + [2] * 2
    assert sum(one != other for one, other in itertools.pairwise(order)) == 2
    own = Made(10, int)
    own.block_starts = [0, 7]  # type: ignore[attr-defined]  # of a source of somebody's own
    assert Workload(data=own, ops=[], batch_size=2, shuffle=Blocks()).blocks == ([0, 7], 8)
    assert Workload(data=Subset(own, 5), ops=[], batch_size=2, shuffle=Blocks()).blocks == ([0, 4], 8)
    digests = {batches_digest(each) for each in (named, dataclasses.replace(named, shuffle=True))}
    assert len(digests) == 2
    assert dataclasses.replace(named, shuffle=False).blocks is None


def test_a_seed_of_numpy_is_the_same_as_one_of_python() -> None:
    seeds: list[Any] = [7, np.int64(7), np.uint8(7)]
    workloads = [Workload(data=DATA, ops=[], batch_size=2, seed=seed) for seed in seeds]
    assert [(each.seed, type(each.seed)) for each in workloads] == [(7, int)] * 3
    orders = [batch_order(each).epoch(3).tolist() for each in workloads]
    assert orders[0] == orders[1] == orders[2] != sorted(orders[0])


IMAGE = "image"


def structure(value: Any) -> Structure | None:
    return Structure.of(value, lambda path, part: part is IMAGE)


@pytest.mark.parametrize(
    ("value", "flat", "labels"),
    [
        (((1, 2), 3), (1, 3, 2), ("x.0", "y", "x.1")),
        ((("numbers", IMAGE), 3), (IMAGE, 3, "numbers"), ("x.1", "y", "x.0")),  # an image comes first
        (({"a": 1, "b": 2}, {"c": 3, "d": 4}), (1, 3, 2, 4), ("x.a", "y.c", "x.b", "y.d")),
        ((1, 2, 3), (1, 2, 3), ("x", "y", "sample_weight")),
        ((1, (2, 3), (4, 5)), (1, 2, 3, 4, 5), ("x", "y.0", "y.1", "sample_weight.0", "sample_weight.1")),
        ({"a": 1, "b": 2}, (1, None, 2), ("x.a", "y", "x.b")),
    ],
)
def test_samples_are_taken_apart_and_put_together_again(value: Any, flat: Any, labels: Any) -> None:
    found = known(structure(value))
    assert (found.flat(value), tuple(map(label, found.paths))) == (flat, labels)
    assert found.packed(flat) == (value if isinstance(value, tuple) else (value,))


@pytest.mark.parametrize("other", [(1, 2), ({"a": 1}, 2), ({"a": 1, "c": 2}, 2), ((1, 2), 2), ({}, 1, 2)])
def test_a_sample_that_is_built_otherwise_is_refused(other: Any) -> None:
    found = known(structure(({"a": 1, "b": 2}, 3)))
    with pytest.raises(DataError, match=r"All samples must be built alike, but `(x|y|sample_weight)` is"):
        found.flat(other)


def test_a_part_is_named_by_its_key_or_in_full() -> None:
    found = known(structure(({"a": 1, "b": 2}, {"b": 3, "d": 4})))
    assert [found.named(name) for name in ("a", "d", "x.b", "y.b", "b", "z")] == [0, 3, 2, 1, None, None]


SOURCES = {
    "folder": 'ap.ImageFolder("photos/")',
    "pairs": 'ap.ImagePairs("photos/cat", "photos/dog")',
    "table": 'ap.Table("labels.csv", path="file", label="label", root="photos")',
    "arrays": 'ap.Arrays("x.npy")',
    "subclass": 'type("Mine", (ap.ImageFolder,), {})("photos")',
    "library": "__import__('helper').folder('photos')",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder [of a project], whose name is a pattern, too, with data beside a script."""
    folder = tmp_path / "home[1]"
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(2):
            cv2.imwrite(str(folder / "photos" / name / f"{number}.png"), np.zeros((4, 4, 3), np.uint8))
    (folder / "labels.csv").write_text("file,label\ncat/0.png,1\ndog/1.png,2\n")
    np.save(folder / "x.npy", np.zeros((3, 2)))
    return folder


def _imported(home: Path, text: str) -> types.ModuleType:
    (home / "train.py").write_text(f"import autopipe as ap\n{text}\n")
    spec = known(importlib.util.spec_from_file_location("train_of_a_test", home / "train.py"))
    module = importlib.util.module_from_spec(spec)
    known(spec.loader).exec_module(module)
    return module


@pytest.mark.parametrize("source", list(SOURCES)[:-1])
def test_every_source_starts_at_the_script(home: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    data = _imported(home, f"data = {SOURCES[source]}").data
    assert all(Path(file).is_relative_to(home) and Path(file).exists() for file in data.files())
    data.read(1)


def test_a_pattern_starts_at_the_script_whatever_that_is_called(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    code = "from autopipe.workload.data.paths import located_pattern\nfound = located_pattern('photos/*/0.png')"
    assert _imported(home, code).found == f"{home.parent}/home[[]1]/photos/*/0.png"
    with pytest.raises(DataError, match="No file matches"):
        _imported(home, "data = ap.TFRecords('nothing-*')")
    assert paths.located(home) == str(home)
    assert paths.located_pattern(f"{home}/*") == f"{home}/*"


def test_a_library_between_the_script_and_the_source_does_not_count(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site"
    installed.mkdir()
    (installed / "helper.py").write_text("import autopipe as ap\ndef folder(path):\n    return ap.ImageFolder(path)\n")
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setattr(paths, "_NOBODYS", (*paths._NOBODYS, f"{installed}/"))
    monkeypatch.chdir("/")
    assert len(_imported(home, f"data = {SOURCES['library']}").data) == 4


@pytest.mark.parametrize("file", ["/tmp/ipykernel_1/1.py", "<string>", "<stdin>"])
def test_a_notebooks_cell_and_an_interpreter_start_at_the_working_directory(
    home: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    cell: dict[str, object] = {"__name__": "__main__"}
    exec(compile("import autopipe as ap\ndata = ap.ImageFolder('photos')", file, "exec"), cell)
    assert len(cell["data"]) == 4  # type: ignore[arg-type]  # a source


def test_what_lies_only_in_the_working_directory_is_taken_with_a_warning(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before there was this rule; but `tuned_pipeline`, run from elsewhere, would not find it."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    monkeypatch.chdir(home)
    with pytest.warns(DataWarning, match=r"`photos` is not beside `.*scripts/train\.py`") as caught:
        data = _imported(scripts, 'data = ap.ImageFolder("photos")').data
    assert len(data) == 4
    assert Path(caught[0].filename).name == "train.py"


def test_what_is_nowhere_is_looked_for_beside_the_script(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    with pytest.raises(DataError, match=rf"`{re.escape(str(home))}/phots` does not exist") as error:
        _imported(home, 'data = ap.ImageFolder("phots")')
    assert error.value.hint == paths.RULE


def test_a_script_run_from_elsewhere_and_its_spawned_workers_agree(home: Path) -> None:
    (home / "train.py").write_text(
        textwrap.dedent("""
            import multiprocessing
            import autopipe as ap

            data = ap.ImageFolder("photos")

            def count(_):
                return len(data)

            if __name__ == "__main__":
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(pool.map(count, [0]), len(data))
        """)
    )
    command = [sys.executable, "-W", "error", "home[1]/train.py"]
    done = subprocess.run(command, cwd=home.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[4] 4\n"), done.stderr


def test_one_part_each_needs_no_structure_and_weights_need_targets() -> None:
    assert [structure(value) for value in (1, [1, 2], (1, 2), (1, None))] == [None] * 4
    for x in (1, (1, 2), {"a": 1}):
        with pytest.raises(DataError, match=r"needs `y`, but got \(x, None, 0\.5\)"):
            structure((x, None, 0.5))


class Thing:
    def word(self) -> str:
        return "its class's"


@pytest.mark.parametrize("own", [{}, {"word": lambda: "its owner's"}, {"word": None}])
def test_what_stood_in_leaves_no_trace_in_the_object(own: dict[str, Any]) -> None:
    thing = Thing()
    vars(thing).update(own)
    with contextlib.suppress(KeyError), standing_in(thing, "word", 1), standing_in(thing, "word", 2):
        assert vars(thing)["word"] == 2
        raise KeyError
    assert vars(thing) == own


def double(x: Any) -> Any:
    return x * 2


def test_parts_settings_and_order_of_ops_count() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest(1, None) == digest(1, None)
    base = ops_digest([Decode(), RandomCrop(4, 4)])
    assert base == ops_digest([Decode(), RandomCrop(4, 4)])
    others = [Decode(), RandomCrop(4, 5)], [RandomCrop(4, 4), Decode()], [Decode(strict=False), RandomCrop(4, 4)]
    assert len({base, *map(ops_digest, others)}) == 4


def test_an_op_that_gives_other_pixels_than_before_counts_as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [RandomFlip()], [On("left", RandomFlip())]
    before = [ops_digest(ops) for ops in lists]
    monkeypatch.setattr(RandomFlip, "revision", 2)
    assert not {ops_digest(ops) for ops in lists} & {*before}


def test_a_function_is_its_code() -> None:
    def made(number: int) -> Callable[[Any], Any]:
        return (lambda x: x + 1) if number == 1 else (lambda x: x + 2)

    def countdown(number: Any) -> Any:
        return countdown(number - 1) if number else 0

    for function in (made(1), double, countdown):  # the last has captured itself
        assert ops_digest([Map(function)]) == ops_digest([Map(function)])
    assert ops_digest([Map(made(1))]) == ops_digest([Map(made(1))]) != ops_digest([Map(made(2))])


def test_a_function_of_a_script_is_the_same_if_that_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest_in(name: str) -> str:
        module = types.ModuleType(name)
        module.__file__ = "/project/train.py"
        exec("def half(x):\n  return x // 2\nclass Half:\n  def __call__(self, x):\n    return x // 2", vars(module))
        monkeypatch.setitem(sys.modules, name, module)
        return ops_digest([Map(module.half), Map(module.Half())])

    assert digest_in("__main__") == digest_in("train")
    assert digest_in("train") != digest_in("other")


class Gain:
    def __init__(self, gain: float) -> None:
        self.gain = gain

    def __call__(self, image: object) -> object:
        return image

    def apply(self, image: object) -> object:
        return image


def captured(value: object) -> Callable[[Any], Any]:
    return lambda image: (image, value)


def by_default(value: object) -> Callable[[Any], Any]:
    def function(image: Any, gain: object = value) -> Any:
        return image, gain

    return function


@pytest.mark.parametrize(
    "made",
    [
        captured,
        by_default,
        Gain,
        lambda value: Gain(value).apply,
        lambda value: functools.partial(lambda gain, image: (image, gain), np.array([value])),
        lambda value: captured([np.full(9, value), captured(value)]),
        lambda value: captured({"gain": Gain(value)}),
    ],
    ids=["closure", "default", "object", "method", "array in a partial", "array in a list", "object in a dict"],
)
def test_what_a_function_has_captured_counts(made: Callable[[float], Callable[..., Any]]) -> None:
    assert ops_digest([Map(made(0.5))]) == ops_digest([Map(made(0.5))])
    assert ops_digest([Map(made(0.5))]) != ops_digest([Map(made(0.9))])


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    names: object


ANIMALS = """
import dataclasses
from autopipe.workload.digests import value_text

@dataclasses.dataclass(slots=True)
class Settings:
    names: object

animals = {"ant", "bee", "cat", "dog", "eel", "fox"}
held = animals, frozenset(animals), [animals], {"of": animals}, Settings(animals)
print(value_text(lambda x: x in {"ant", "bee", "cat", "dog", "eel", "fox"}), *map(value_text, held), sep="\\n")
"""


def test_a_set_that_a_function_holds_is_the_same_in_every_process() -> None:
    one, other = (succeeded(python("-c", ANIMALS, PYTHONHASHSEED=seed)).stdout for seed in ("1", "2"))
    assert one == other
    for held in (set, frozenset, Settings, lambda name: [{name}], lambda name: Settings({name})):
        assert ops_digest([Map(captured(held("a")))]) != ops_digest([Map(captured(held("b")))])
    assert value_text({1, 2}) == repr({1, 2})
    assert value_text(frozenset({1, 2})) == repr(frozenset({1, 2}))  # as in digests that are known


class OfAnotherLibrary:
    """An array whose text leaves out what is in its middle."""

    def __init__(self, values: NDArray[np.float32]) -> None:
        self.values = values

    def __repr__(self) -> str:
        return "tensor([0., 0., ..., 0., 0.])"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.float32]:
        return self.values


def test_all_of_an_array_counts_also_of_another_library() -> None:
    zeros, ones = (OfAnotherLibrary(np.full(2000, value, np.float32)) for value in (0, 1))
    assert value_text(zeros) == value_text(zeros.values) != value_text(ones)


def test_an_op_within_another_is_the_same_after_its_check_as_before() -> None:
    ops = [On("left", Map(double))]
    images = Arrays({name: np.zeros((2, 2, 2, 3), np.uint8) for name in ("left", "right")})
    before = ops_digest(ops), op_settings(ops[0])
    plan = make_plan(Workload(data=images, ops=ops, batch_size=2))
    assert (ops_digest(ops), op_settings(ops[0])) == before
    assert ops_digest(ops) != ops_digest([On("left", Map(np.negative))])
    assert ops_digest(ops) != ops_digest([On("left", Map(double, on="mask"))])
    again = make_plan(Workload(data=images, ops=[On("left", Map(double))], batch_size=2))
    assert ops_digest([step.op for step in plan.prefix]) == ops_digest([step.op for step in again.prefix])
