"""What a workload may be, how its samples are built, and where its relative paths start."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import itertools
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import ConfigError, DataError, DataWarning, WorkloadError
from autopipe.pipeline.assembly import batch_order, batches_digest
from autopipe.workload import order as randomness
from autopipe.workload.data import paths
from autopipe.workload.data.source import Subset
from autopipe.workload.digests import digest, op_settings, ops_digest, value_text
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.order import BatchOrder, Blocks, block_order
from autopipe.workload.sample import Structure, label
from tests.fakes.commands import python, succeeded
from tests.fakes.facts import known
from tests.fakes.sources import Made

DATA = ap.Arrays(np.zeros((10, 4, 4, 3), np.uint8), np.arange(10))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "photos/"}, "`data` must have"),
        ({"ops": [abs]}, "ap.Map"),
        ({"ops": [ap.RandomFlip]}, r"Write ap\.RandomFlip\(\.\.\.\)"),
        ({"ops": [ap.RandomFlip(on="masks")]}, "`on` of RandomFlip must be .* but got 'masks'"),  # type: ignore[arg-type]
        ({"ops": ap.RandomFlip()}, r"`ops` must be a list of ops, but got RandomFlip\("),
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
        ap.Workload(**{"data": DATA, "ops": [], "batch_size": 2, **changes})


def test_blocks_are_the_datas_own_or_as_many_neighbours_as_are_named() -> None:
    with pytest.raises(WorkloadError, match=r"has no blocks of its own.*shuffle=ap\.Blocks\(size=256\)"):
        ap.Workload(data=DATA, ops=[], batch_size=2, shuffle=ap.Blocks())
    named = ap.Workload(data=DATA, ops=[], batch_size=2, shuffle=ap.Blocks(size=4, mixed=1))
    order = (batch_order(named).epoch(1) // 4).tolist()
    assert sorted(order) == [0] * 4 + [1] * 4 + [2] * 2
    assert sum(one != other for one, other in itertools.pairwise(order)) == 2
    own = Made(10, int)
    own.block_starts = [0, 7]  # type: ignore[attr-defined]  # of a source of somebody's own
    assert ap.Workload(data=own, ops=[], batch_size=2, shuffle=ap.Blocks()).blocks == ([0, 7], 8)
    assert ap.Workload(data=Subset(own, 5), ops=[], batch_size=2, shuffle=ap.Blocks()).blocks == ([0, 4], 8)
    digests = {batches_digest(each) for each in (named, dataclasses.replace(named, shuffle=True))}
    assert len(digests) == 2
    assert dataclasses.replace(named, shuffle=False).blocks is None


def test_a_seed_of_numpy_is_the_same_as_one_of_python() -> None:
    seeds: list[Any] = [7, np.int64(7), np.uint8(7)]
    workloads = [ap.Workload(data=DATA, ops=[], batch_size=2, seed=seed) for seed in seeds]
    assert [(each.seed, type(each.seed)) for each in workloads] == [(7, int)] * 3
    orders = [batch_order(each).epoch(3).tolist() for each in workloads]
    assert orders[0] == orders[1] == orders[2] != sorted(orders[0])


IMAGE = "image"


def structure(value: Any) -> Structure | None:
    return Structure.of(value, lambda path, part: part is IMAGE)


def test_parts_are_named_by_key_or_in_full_one_each_needs_no_structure_and_weights_need_targets() -> None:
    assert [structure(value) for value in (1, [1, 2], (1, 2), (1, None))] == [None] * 4
    for x in (1, (1, 2), {"a": 1}):
        with pytest.raises(DataError, match=r"needs `y`, but got \(x, None, 0\.5\)"):
            structure((x, None, 0.5))
    found = known(structure(({"a": 1, "b": 2}, {"b": 3, "d": 4})))
    assert [found.named(name) for name in ("a", "d", "x.b", "y.b", "b", "z")] == [0, 3, 2, 1, None, None]


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


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder [of a project], whose name is a pattern, too, with data beside a script that is run from elsewhere."""
    monkeypatch.chdir("/")
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


@pytest.mark.parametrize(
    "source",
    [
        'ap.ImageFolder("photos/")',
        'ap.ImagePairs("photos/cat", "photos/dog")',
        'ap.Table("labels.csv", path="file", label="label", root="photos")',
        'ap.Arrays("x.npy")',
        'type("Mine", (ap.ImageFolder,), {})("photos")',
    ],
)
def test_every_source_starts_at_the_script(home: Path, source: str) -> None:
    data = _imported(home, f"data = {source}").data
    assert all(Path(file).is_relative_to(home) and Path(file).exists() for file in data.files())
    data.read(1)


def test_a_pattern_starts_at_the_script_whatever_that_is_called_and_so_does_what_is_nowhere(home: Path) -> None:
    code = "from autopipe.workload.data.paths import located_pattern\nfound = located_pattern('photos/*/0.png')"
    assert _imported(home, code).found == f"{home.parent}/home[[]1]/photos/*/0.png"
    assert (paths.located(home), paths.located_pattern(f"{home}/*")) == (str(home), f"{home}/*")
    with pytest.raises(DataError, match="No file matches"):
        _imported(home, "data = ap.TFRecords('nothing-*')")
    with pytest.raises(DataError) as error:
        _imported(home, 'data = ap.ImageFolder("phots")')
    assert f"`{home}/phots` does not exist" in error.value.message
    assert error.value.hint == paths.RULE


def test_a_library_between_the_script_and_the_source_does_not_count(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helper.py").write_text("import autopipe as ap\ndef folder(path):\n    return ap.ImageFolder(path)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(paths, "_NOBODYS", (*paths._NOBODYS, f"{tmp_path}/helper"))
    assert len(_imported(home, "data = __import__('helper').folder('photos')").data) == 4


@pytest.mark.parametrize("file", ["/tmp/ipykernel_1/1.py", "<string>", "<stdin>"])
def test_a_notebooks_cell_and_an_interpreter_start_at_the_working_directory(
    home: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    cell: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("import autopipe as ap\ndata = ap.ImageFolder('photos')", file, "exec"), cell)
    assert len(cell["data"]) == 4


def test_what_lies_only_in_the_working_directory_is_taken_with_a_warning(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before there was this rule; but `tuned_pipeline`, run from elsewhere, would not find it."""
    monkeypatch.chdir(home)
    with pytest.warns(DataWarning, match=r"`photos` is not beside `.*/train\.py`") as caught:
        assert len(_imported(tmp_path, 'data = ap.ImageFolder("photos")').data) == 4
    assert Path(caught[0].filename).name == "train.py"


class Gain:
    def __init__(self, gain: object) -> None:
        self.gain = gain

    def __call__(self, image: object) -> object:
        return image

    def apply(self, image: object) -> object:
        return image


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    names: object


def captured(value: object) -> Callable[[Any], Any]:
    return lambda image: (image, value)


def by_default(value: object) -> Callable[[Any], Any]:
    def function(image: Any, gain: object = value) -> Any:
        return image, gain

    return function


def countdown(first: int) -> Callable[[Any], Any]:
    def function(number: Any) -> Any:
        return function(number - 1) if number else first  # it has captured itself

    return function


@pytest.mark.parametrize(
    "made",
    [
        lambda n: [ap.Decode(), ap.RandomCrop(4, n)],
        lambda n: [ap.Decode(strict=n == 1), ap.RandomCrop(4, 4)],
        lambda n: [ap.Decode(), ap.RandomCrop(4, 4)][:: 1 if n == 1 else -1],
        lambda n: [ap.Map((lambda x: x + 1) if n == 1 else (lambda x: x + 2))],
        lambda n: [ap.On("left", ap.Map(np.negative if n == 1 else np.positive))],
        lambda n: [ap.On("left", ap.Map(np.negative, on="image" if n == 1 else "mask"))],
        lambda n: [ap.Map(captured(n))],
        lambda n: [ap.Map(by_default(n))],
        lambda n: [ap.Map(countdown(n))],
        lambda n: [ap.Map(Gain(n))],
        lambda n: [ap.Map(Gain(n).apply)],
        lambda n: [ap.Map(functools.partial(lambda gain, image: (image, gain), np.array([n / 2])))],
        lambda n: [ap.Map(captured([np.full(9, n), captured(n)]))],
        lambda n: [ap.Map(captured({"gain": Gain(n)}))],
        lambda n: [ap.Map(captured([{str(n)}]))],
        lambda n: [ap.Map(captured(frozenset({str(n)})))],
        lambda n: [ap.Map(captured(Settings({str(n)})))],
    ],
)
def test_settings_order_and_functions_with_all_that_they_hold_count(made: Callable[[int], list[Any]]) -> None:
    assert ops_digest(made(1)) == ops_digest(made(1)) != ops_digest(made(2))


def test_parts_count_and_an_op_that_gives_other_pixels_than_before_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest(1, None) == digest(1, None)
    lists = [ap.RandomFlip()], [ap.On("left", ap.RandomFlip())]
    before = [ops_digest(ops) for ops in lists]
    monkeypatch.setattr(ap.RandomFlip, "revision", 2)
    assert not {ops_digest(ops) for ops in lists} & {*before}


def test_a_function_of_a_script_is_the_same_if_that_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest_in(name: str) -> str:
        module = types.ModuleType(name)
        module.__file__ = "/project/train.py"
        exec("def half(x):\n  return x // 2\nclass Half:\n  def __call__(self, x):\n    return x // 2", vars(module))
        monkeypatch.setitem(sys.modules, name, module)
        return ops_digest([ap.Map(module.half), ap.Map(module.Half())])

    assert digest_in("__main__") == digest_in("train") != digest_in("other")


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


def test_all_of_a_set_or_an_array_counts_the_same_in_every_process() -> None:
    one, other = (succeeded(python("-c", ANIMALS, PYTHONHASHSEED=seed)).stdout for seed in ("1", "2"))
    assert one == other
    for known_before in ({1, 2}, frozenset({1, 2})):
        assert value_text(known_before) == repr(known_before)
    zeros, ones = (OfAnotherLibrary(np.full(2000, value, np.float32)) for value in (0, 1))
    assert value_text(zeros) == value_text(zeros.values) != value_text(ones)


class OfAnotherLibrary:
    """An array whose text leaves out what is in its middle."""

    def __init__(self, values: NDArray[np.float32]) -> None:
        self.values = values

    def __repr__(self) -> str:
        return "tensor([0., 0., ..., 0., 0.])"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.float32]:
        return self.values


def test_an_op_within_another_is_the_same_after_its_check_as_before() -> None:
    ops = [ap.On("left", ap.Map(np.negative))]
    images = ap.Arrays({name: np.zeros((2, 2, 2, 3), np.uint8) for name in ("left", "right")})
    before = ops_digest(ops), op_settings(ops[0])
    plan = make_plan(ap.Workload(data=images, ops=ops, batch_size=2))
    assert (ops_digest(ops), op_settings(ops[0])) == before
    again = make_plan(ap.Workload(data=images, ops=[ap.On("left", ap.Map(np.negative))], batch_size=2))
    assert ops_digest([step.op for step in plan.prefix]) == ops_digest([step.op for step in again.prefix])


# -------------------- the order of samples and the numbers drawn for them


def order(**changes: object) -> BatchOrder:
    return BatchOrder(**{"count": 10, "batch_size": 4, "seed": 0, "shuffle": True, "drop_remainder": False, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(({"shard": shard}, "`shard` must be") for shard in ((2, 2), (-1, 2), (0, 0))),
        ({"drop_remainder": True, "shard": (1, 4)}, "1 of 4 holds 3 of 10 .* fewer parts, smaller batches, or drop"),
        ({"drop_remainder": True, "count": 3}, "part 0 of 1 holds 3 of 3 samples, with batch_size=4"),
        ({"shard": (11, 12)}, r"part 11 of 12 holds 0 of 10 samples.* Use fewer parts\."),
        ({"count": 26, "batch_size": 2, "rank": (0, 4)}, "4 processes, but the last one of an epoch holds 2 samples"),
    ],
)
def test_a_part_without_a_batch_or_without_its_share_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        order(**changes)


STARTS = [0, 5, 6, 14, 20, 21]  # of blocks of 27 samples


@pytest.mark.parametrize("blocks", [None, (STARTS, 2)])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("count", "drop"), [(26, False), (24, False), (27, True), (8, True)])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_together_have_each_batch_that_one_loader_has(
    count: int, drop: bool, shuffle: bool, ranks: int, blocks: tuple[list[int], int] | None
) -> None:
    if not drop and count % 8 % ranks:
        return
    blocks = blocks and ([start for start in blocks[0] if start < count], blocks[1])
    same = {"count": count, "seed": 3, "shuffle": shuffle, "drop_remainder": drop, "blocks": blocks}
    whole = order(batch_size=8, **same)
    parts = [order(batch_size=8 // ranks, rank=(rank, ranks), **same) for rank in range(ranks)]
    assert {part.batches for part in parts} == {whole.batches}
    for batch in range(whole.batches):
        size = whole.batch_samples(batch)
        together = [part.epoch(1)[batch * part.batch_size :][: part.batch_samples(batch)].tolist() for part in parts]
        assert sum(together, []) == whole.epoch(1)[batch * 8 :][:size].tolist()  # noqa: RUF017  # of few lists
        assert {len(each) for each in together} == {size // ranks}


def test_the_numbers_of_a_release_are_those_of_the_next_and_each_epoch_has_an_order_of_its_own() -> None:
    """A changed generator would change every training silently: these are written down."""
    np.testing.assert_array_equal(randomness.epoch_order(0, 0, 8), [7, 3, 5, 6, 1, 2, 4, 0])
    np.testing.assert_array_equal(block_order(0, 0, 8, [0, 3, 6], 2), [3, 5, 7, 6, 4, 0, 1, 2])
    wanted = [0.5618980249980841, 0.962312026162305, 0.45051450458465236]
    np.testing.assert_allclose(randomness.uniforms(1, 2, np.array([3]), 4, 3)[0], wanted, rtol=1e-15)
    assert len({tuple(randomness.epoch_order(0, epoch, 50)) for epoch in range(20)}) == 20
    np.testing.assert_array_equal(order(shuffle=False).epoch(5), range(10))
    np.testing.assert_array_equal(order(shuffle=False, shard=(1, 3)).epoch(0), [1, 4, 7])


def test_samples_are_mixed_with_those_of_as_many_blocks_as_are_asked_for_and_blocks_come_in_any_order() -> None:
    block_of = np.repeat(range(6), np.diff([*STARTS, 27]))
    firsts, mixes = set(), set()
    for epoch in range(200):
        found = block_of[block_order(0, epoch, 27, STARTS, 2)].tolist()
        blocks = list(dict.fromkeys(found))
        groups = [frozenset(blocks[at : at + 2]) for at in (0, 2, 4)]
        ends = [sum(block in group for block in found) for group in groups]
        assert [{*found[: ends[0]]}, {*found[ends[0] : -ends[2]]}, {*found[-ends[2] :]}] == groups
        firsts.add(found[0])
        mixes |= {*groups}
    assert (firsts, len(mixes)) == (set(range(6)), 15)  # all pairs
    alone = block_of[block_order(0, 0, 27, STARTS, 1)]
    assert np.count_nonzero(np.diff(alone)) == 5
    assert all(block_order(0, epoch, 27, STARTS, 9).tolist() != list(range(27)) for epoch in range(9))


@pytest.mark.parametrize("given", [{"size": 0}, {"size": 2.5}, {"size": True}, {"mixed": 0}, {"mixed": "all"}])
def test_blocks_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(WorkloadError, match=f"`{name}` of Blocks must be a whole number >= 1"):
        Blocks(**given)
