"""What a workload may be, how its samples are built and its ops planned, and where its relative paths start."""

import dataclasses
import errno
import functools
import importlib.util
import itertools
import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import autopipe as ap
from autopipe.pipeline.assembly import batch_order, batches_digest
from autopipe.workload import order as randomness
from autopipe.workload.data import paths
from autopipe.workload.data.source import Subset
from autopipe.workload.digests import digest, ops_digest, value_text
from autopipe.workload.op import Op, Plan
from autopipe.workload.ops.planner import make_plan, normalise, op_failure, read_failure
from autopipe.workload.order import BatchOrder, Blocks, block_order
from autopipe.workload.sample import FieldKind, Structure, label
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
    with pytest.raises(ap.WorkloadError, match=message):
        ap.Workload(**{"data": DATA, "ops": [], "batch_size": 2, **changes})


def test_blocks_are_the_datas_own_or_as_many_neighbours_as_are_named() -> None:
    with pytest.raises(ap.WorkloadError, match=r"has no blocks of its own.*shuffle=ap\.Blocks\(size=256\)"):
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


PICTURE = "image"


def structure(value: Any) -> Structure | None:
    return Structure.of(value, lambda path, part: part is PICTURE)


def test_parts_are_named_by_key_or_in_full_one_each_needs_no_structure_and_weights_need_targets() -> None:
    assert [structure(value) for value in (1, [1, 2], (1, 2), (1, None))] == [None] * 4
    for x in (1, (1, 2), {"a": 1}):
        with pytest.raises(ap.DataError, match=r"needs `y`, but got \(x, None, 0\.5\)"):
            structure((x, None, 0.5))
    found = known(structure(({"a": 1, "b": 2}, {"b": 3, "d": 4})))
    assert [found.named(name) for name in ("a", "d", "x.b", "y.b", "b", "z")] == [0, 3, 2, 1, None, None]


@pytest.mark.parametrize(
    ("value", "flat", "labels"),
    [
        (((1, 2), 3), (1, 3, 2), ("x.0", "y", "x.1")),
        ((("numbers", PICTURE), 3), (PICTURE, 3, "numbers"), ("x.1", "y", "x.0")),  # an image comes first
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
    with pytest.raises(ap.DataError, match=r"All samples must be built alike, but `(x|y|sample_weight)` is"):
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
    with pytest.raises(ap.DataError, match="No file matches"):
        _imported(home, "data = ap.TFRecords('nothing-*')")
    with pytest.raises(ap.DataError) as error:
        _imported(home, 'data = ap.ImageFolder("phots")')
    assert f"`{home}/phots` does not exist" in error.value.message
    assert error.value.hint == paths.RULE


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
    with pytest.warns(ap.DataWarning, match=r"`photos` is not beside `.*/train\.py`") as caught:
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


def test_an_op_that_gives_other_pixels_than_before_is_another_and_a_function_that_is_imported_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest(1, None) == digest(1, None)
    lists = [ap.RandomFlip()], [ap.On("left", ap.RandomFlip())]
    before = [ops_digest(ops) for ops in lists]
    monkeypatch.setattr(ap.RandomFlip, "revision", 2)
    assert not {ops_digest(ops) for ops in lists} & {*before}

    def digest_in(name: str) -> str:
        module = types.ModuleType(name)
        module.__file__ = "/project/train.py"
        exec("def half(x):\n  return x // 2\nclass Half:\n  def __call__(self, x):\n    return x // 2", vars(module))
        monkeypatch.setitem(sys.modules, name, module)
        return ops_digest([ap.Map(module.half), ap.Map(module.Half())])

    assert digest_in("__main__") == digest_in("train") != digest_in("other")


ANIMALS = """
from autopipe.workload.digests import value_text
animals = {"ant", "bee", "cat", "dog", "eel", "fox"}
held = animals, frozenset(animals), [animals], {"of": animals}
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
    with pytest.raises(ap.ConfigError, match=said):
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


@pytest.mark.parametrize("given", [{"size": 0}, {"size": 2.5}, {"size": True}, {"mixed": 0}, {"mixed": "all"}])
def test_blocks_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(ap.WorkloadError, match=f"`{name}` of Blocks must be a whole number >= 1"):
        Blocks(**given)


# -------------------- how ops are planned, and samples that cannot be batched


def planned(data: Any, *ops: Op) -> Plan:
    return make_plan(ap.Workload(data=data, ops=ops, batch_size=2))


def parts(data: Any, *ops: Op) -> tuple[list[str], ...]:
    plan = planned(data, *ops)
    return tuple([step.op.name for step in steps] for steps in (plan.prefix, plan.body, plan.suffix))


LONG = [ap.Decode(), ap.Resize(8, 8), ap.RandomFlip(), ap.Resize(6, 6), ap.Rescale(1 / 255), ap.Normalize(0, 1)]


@pytest.mark.parametrize(
    ("ops", "wanted"),
    [
        (LONG, ["Decode Resize", "RandomFlip Resize", "Rescale Normalize"]),
        # a cheap op between ops on pixels stays where it is, a one-hot label goes last from wherever it stands
        ([ap.Decode(), ap.Rescale(1.0), ap.Resize(8, 8), ap.RandomFlip()], ["Decode Rescale Resize", "RandomFlip", ""]),
        ([ap.OneHot(23), ap.Decode(), ap.Resize(8, 8), ap.RandomFlip()], ["Decode Resize", "RandomFlip", "OneHot"]),
    ],
)
def test_a_list_is_split_at_the_first_random_op_and_before_the_cheap_end(
    photos: Path, ops: list[Op], wanted: list[str]
) -> None:
    data = ap.Table(photos / "labels.csv")
    assert [" ".join(part) for part in parts(data, *ops)] == wanted
    steps = planned(data, *ops).steps
    assert all(type(step.op) is type(ops[step.stream]) for step in steps)  # which names its random numbers


def test_a_label_stays_before_a_function_that_gets_it_and_a_mask_before_ops_that_move_its_pixels(
    pairs: Path, palette: Any
) -> None:
    for labels in (np.arange(8), {"kind": np.arange(8)}):
        data: Any = ap.Arrays(np.ones((8, 4, 4, 3), np.uint8), labels)
        assert parts(data, ap.OneHot(8), ap.Map(lambda x, y: (x // 2, y / 2), on="both")) == (["OneHot", "Map"], [], [])
        assert parts(data) == ([], [], [])  # no ops are a plan, too
    data = ap.ImagePairs(pairs / "images", pairs / "masks")
    ops = (ap.Decode(), ap.MaskToClass(palette), ap.OneHot(4), ap.Resize(8, 8))
    assert parts(data, *ops)[2] == []
    assert parts(data, *ops[:2], ops[3], ops[2])[2] == ["OneHot"]


X = np.zeros((4, 4, 3), np.uint8)
BOXES = [np.zeros((number % 3, 4), np.float32) for number in range(6)]
TEXT, NOTHING = ap.Map(lambda x: np.array(["a"])), ap.Map(lambda x: None)
PALETTE = [(0, 0, 0), (128, 0, 0), (0, 128, 0)]


@pytest.mark.parametrize(
    ("ops", "error", "message"),
    [
        ([ap.Decode()], ap.WorkloadError, r"one size to be batched.*0\.jpg"),
        ([], ap.WorkloadError, "still encoded"),
        ([ap.Resize(8, 8)], ap.OpError, r"Resize on sample 0 .*0\.jpg.*Decode"),
        ([ap.Decode(), ap.RandomCrop(41, 60)], ap.BadSampleError, "41x60 out of 40x60"),
        ([ap.Decode(), ap.Map(lambda x: 1 / 0)], ap.OpError, "ZeroDivisionError"),
        ([ap.Decode(), ap.Resize(8, 8), TEXT], ap.OpError, "Map.* must return an array of numbers"),
        ([ap.Decode(), ap.Resize(8, 8), NOTHING], ap.OpError, "array of numbers, but its function returned None"),
    ],
)
def test_what_cannot_be_batched_is_said_before_anything_starts(
    photos: Path, ops: list[Op], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        planned(ap.Table(photos / "labels.csv"), *ops)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([(X, boxes) for boxes in BOXES], r'targets must have one size .*Pad .*: ap\.Map\(function, on="mask"\)'),
        ([(X, boxes.astype(int).tolist()) for boxes in BOXES], "targets must have one size to be batched"),
        ([(X, {"boxes": boxes}) for boxes in BOXES], r'`y\.boxes` must .*Pad .*: ap\.On\("y\.boxes", ap\.Map\('),
        ([(X[: number + 2], 0) for number in range(6)], r"images must have one size .* Put ap\.Resize"),
        ([("photos/0.JPG", 0)] * 6, r"but one is 'photos/0\.JPG'\. .*Path\(path\)\.read_bytes"),
        ([([b"one", b"other"], 0)] * 6, r"\[b'one', b'other'\]\. .*several files as a tuple"),
        ([(X, "cat")] * 6, r"but one is 'cat'\. Number the classes"),
    ],
)
def test_parts_that_cannot_be_batched_are_named_with_the_remedy_for_their_kind(samples: Any, message: str) -> None:
    with pytest.raises(ap.AutopipeError, match=message):
        planned(Made(len(samples), samples.__getitem__))


class Picture:
    """It may be made an array, and is none, as images of PIL and TensorFlow."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return X


DEEP = "`y` must be one part, or a tuple or a dictionary of parts"
LARGE = r"^sample 0: `y(\.id)?` is a label, .* 2\*\*63 - 1, but got {}\. Number"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        *(((X, target), DEEP) for target in (((1, 2), 3), {"label": {"first": 1}}, (None, 1), {}, {1: 2})),
        *(((X, large), LARGE.format(large)) for large in (2**63, -(2**63) - 1, 2**64)),
        ((X, {"kind": 1, "id": 2**63}), LARGE.format(2**63)),
        ([X, 1], "as a tuple"),
        ((X, "cat"), "Number the classes"),
        (None, r"numpy\.asarray"),
        ((Picture(), 1), r"numpy\.asarray\(image\)"),
    ],
    ids=range(13),
)
def test_what_read_may_not_return_is_told_with_what_it_should(value: Any, said: str) -> None:
    with pytest.raises((ap.DataError, ap.OpError), match=said):
        parts(Made(4, lambda index: value), ap.RandomFlip())


class Missing(ap.BadSampleError):
    """An error of a user's own, which is told as the kind that it is one of."""

    def __init__(self, path: str) -> None:
        super().__init__(f"`{path}` is missing.", hint="Fetch it.")


@pytest.mark.parametrize(
    ("name", "said"),
    [(None, "sample 3"), ("sample 3 of set", "sample 3 of set"), ("sample 30", "sample 3 (sample 30)")],
)
def test_a_sample_without_a_name_of_its_own_is_named_once(name: str | None, said: str) -> None:
    source: Any = SimpleNamespace() if name is None else SimpleNamespace(name=lambda index: name)
    assert str(read_failure(OSError("torn"), source, 3)) == f"{said} cannot be read: OSError: torn"
    assert type(read_failure(OSError("torn"), source, 3)) is ap.BadSampleError
    assert type(read_failure(OSError(errno.EMFILE, "too many"), source, 3)) is ap.DataError  # no fault of the sample's
    of_read, of_op = read_failure(Missing("a"), source, 3), op_failure(Missing("a"), ap.Decode(), source, 3)
    assert (of_read.message, of_op.message) == (f"{said}: `a` is missing.", f"Decode on {said}: `a` is missing.")
    assert {(type(each), each.hint) for each in (of_read, of_op)} == {(ap.BadSampleError, "Fetch it.")}


@pytest.mark.parametrize("dtype", [np.bool_, np.float32])
@pytest.mark.parametrize("shape", [(8, 20, 30), (8, 20, 30, 1)])
def test_what_looks_like_a_mask_and_is_taken_for_none_warns(shape: tuple[int, ...], dtype: Any) -> None:
    data = ap.Arrays(np.zeros((8, 20, 30, 3), np.uint8), np.zeros(shape, dtype))
    with pytest.warns(ap.DataWarning, match=rf"`RandomFlip` .* it is {dtype.__name__.rstrip('_')}\..*astype"):
        planned(data, ap.RandomFlip())
    planned(data, ap.RandomFlip(on="image"), ap.RandomBrightness())
    own: Any = Made(4, lambda index: (np.zeros((20, 30, 3), np.uint8), np.zeros((20, 30), np.uint8)))
    with pytest.warns(ap.DataWarning, match=r"it is uint8\. A source of your own .* y_kind = .*FieldKind\.MASK"):
        planned(own, ap.RandomFlip())
    own.y_kind = FieldKind.MASK
    planned(own, ap.RandomFlip())


def in_folders(root: Path, images: Any, masks: Any) -> ap.ImagePairs:
    """Write three pairs of images."""
    for folder, image in (("images", images), ("masks", masks)):
        (root / folder).mkdir(parents=True)
        for number in range(3):
            image.save(root / folder / f"{number}.png")
    return ap.ImagePairs(root / "images", root / "masks")


def test_masks_on_their_side_and_masks_of_numbers_with_a_palette_warn(tmp_path: Path) -> None:
    image, upright, half, rounded = (Image.new("L", size) for size in ((60, 40), (40, 60), (30, 20), (20, 13)))
    with pytest.warns(ap.DataWarning, match=r"3 of 3 images .* 40x60 and 60x40 pixels.*orientation=\"exif\""):
        planned(in_folders(tmp_path / "side", image, upright), ap.Decode(), ap.Resize(16, 16))
    for name, smaller in (("half", half), ("rounded", rounded)):
        planned(in_folders(tmp_path / name, image, smaller), ap.Decode(), ap.Resize(16, 16))
    mask = Image.new("P", (60, 40), 1)
    mask.putpalette([level for colour in PALETTE for level in colour])
    data = in_folders(tmp_path, image, mask)
    with pytest.warns(ap.DataWarning, match=r"If the numbers are classes, put ap\.MaskToClass"):
        planned(data, ap.Decode(), ap.RandomFlip())
    plan = planned(data, ap.Decode(), ap.MaskToClass(PALETTE))  # unless their colours become classes
    assert plan.finished.fields[1].shape == (40, 60)
    with pytest.raises(ap.WorkloadError, match=r"encoded bytes.*Put ap\.Decode\(\) before ap\.MaskToClass"):
        planned(data, ap.MaskToClass(PALETTE), ap.Decode())


PLACES = np.arange(6 * 6, dtype=np.uint8).reshape(1, 6, 6).repeat(8, axis=0)
IMAGE = np.stack([PLACES, PLACES, PLACES], axis=-1)
TWO: dict[str, Any] = {"left": IMAGE, "numbers": np.ones((8, 4), np.float32), "right": IMAGE}


def made(data: Any, *ops: Op, index: int = 3) -> dict[str, Any]:
    """Return the parts of one sample after the ops, by their labels."""
    plan = planned(data, *ops)
    sample = normalise(data.read(index), plan.source.structure)
    for step in plan.prefix + plan.body + plan.suffix:
        random = randomness.uniforms(0, 0, np.array([index]), step.stream, step.op.draws)[0]
        sample = step.op.apply(sample, step.before, random)
    return dict(zip(plan.finished.labels, sample, strict=True))


def test_a_function_gets_the_parts_that_are_named_on_which_the_same_numbers_act() -> None:
    data = ap.Arrays(TWO, {"kind": np.arange(8), "first": PLACES, "second": PLACES, "third": PLACES})
    for index in range(8):
        found = made(data, ap.RandomCrop(3, 3), ap.RandomFlip(vertical=True), index=index)
        for other in ("x.right", "y.first", "y.second", "y.third"):
            np.testing.assert_array_equal(found["x.left"][..., 0], found[other].reshape(3, 3, -1)[..., 0])
        np.testing.assert_array_equal(found["x.numbers"], np.ones(4, np.float32))
        assert found["y.kind"] == index
    data = ap.Arrays(TWO, np.arange(8))
    found = made(data, ap.On("left", ap.RandomCrop(3, 3)), ap.On("x.right", ap.RandomCrop(3, 3)))
    assert not np.array_equal(found["x.left"], found["x.right"])
    found = made(data, ap.On(("left", "right"), ap.RandomCrop(3, 3)))
    np.testing.assert_array_equal(found["x.left"], found["x.right"])
    found = made(data, ap.On("left", ap.Resize(2, 2)))
    assert (found["x.left"].shape, found["x.right"].shape) == ((2, 2, 3), (6, 6, 3))
    data = ap.Arrays(TWO, {"kind": np.arange(8), "depth": np.ones(8, np.float32)})
    scale = ap.Map(lambda numbers, depth: (numbers * 2, depth * 3), on="both")
    found = made(data, ap.On(("numbers", "depth"), scale), ap.On("kind", ap.OneHot(9)))
    assert (found["x.numbers"].tolist(), found["y.depth"], found["y.kind"].argmax()) == ([2] * 4, 3, 3)
    data = ap.Arrays(np.ones((8, 4), np.float32), {"kind": np.arange(8)}, np.ones(8, np.float32))
    found = made(data, ap.Map(lambda numbers: numbers + 1), ap.OneHot(8))
    assert (found["x"].tolist(), found["y.kind"].shape) == ([2] * 4, (8,))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (ap.OneHot(9), "`OneHot` must act on one part of y, but it cannot be told on which; the parts are `x.left`"),
        (ap.On("lef", ap.RandomFlip()), "`On` must name parts of the samples, which are .* but got 'lef'"),
        (ap.On("kind", ap.RandomFlip()), "`RandomFlip` must act on an image of x"),
        (ap.On("left", ap.OneHot(9)), "`OneHot` must act on one part of y"),
        (ap.On("left", ap.Map(lambda x, y: (x, y), on="both")), "`Map` must act on one part of y"),
        (ap.Map(lambda x, y: (x, y), on="both"), "`Map` must act on one part of y"),
        (ap.MixUp(0.2), "`MixUp` mixes x and y of whole batches, and cannot mix samples of several parts"),
    ],
)
def test_what_an_op_cannot_act_on_is_said_before_anything_starts(op: Op, message: str) -> None:
    data = ap.Arrays(TWO, {"kind": np.arange(8), "depth": np.ones(8, np.float32)})
    with pytest.raises(ap.WorkloadError, match=message):
        planned(data, op)


def test_on_takes_names_and_an_op_where_there_are_several_parts_also_without_chance() -> None:
    flip = ap.RandomFlip()
    wrong: list[Any] = [("", flip), ((), flip), ("left", "flip"), ("a", ap.On("b", flip))]
    for arguments in wrong:
        with pytest.raises(ap.ConfigError, match="of On must be"):
            ap.On(*arguments)
    with pytest.raises(ap.WorkloadError, match=r"`On` needs samples of several parts, but here they are x and y"):
        planned(ap.Arrays(IMAGE, np.arange(8)), ap.On("x", ap.RandomFlip()))
    assert ap.On(BOTH, ap.RandomCrop(3, 3)).without_chance() == ap.On(BOTH, ap.CenterCrop(3, 3))
    assert ap.On("left", ap.Resize(2, 2)).without_chance() == ap.On("left", ap.Resize(2, 2))
    assert ap.On("left", ap.RandomFlip()).without_chance() is None


def reduced(name: Any, *rest: Op) -> Any:
    """Return the size to which a decoder of these parts may reduce."""
    ops = [ap.On(name, ap.Decode(reduce=True)), *rest]
    first: Any = ap.Workload(data=ap.Arrays(TWO, np.arange(8)), ops=ops, batch_size=2).ops[0]
    return first.op.reduce


BOTH = ("left", "right")


@pytest.mark.parametrize("name", ["left", "x.left", BOTH])
def test_a_decoder_takes_its_size_from_what_acts_next_on_its_part(name: Any) -> None:
    for crop in (ap.On(("x.right", "left"), ap.RandomCrop(4, 4)), ap.On("x.left", ap.RandomCrop(4, 4))):
        with pytest.raises(ap.ConfigError, match="a resize as the next op on the image, but there is RandomCrop"):
            reduced(name, crop, ap.On("left", ap.Resize(2, 2)))
    assert reduced(name, ap.On(BOTH, ap.Resize(3, 3)), ap.On("left", ap.RandomBrightness(0.1))) == (3, 3)
    small, large = ap.On("left", ap.Resize(2, 2)), ap.On("right", ap.Resize(3, 3))
    assert reduced("left", small, large) == reduced(BOTH, small, ap.On("right", ap.Resize(2, 2))) == (2, 2)
    with pytest.raises(ap.ConfigError, match=r"followed by the same.*reduce=\(2, 2\).* and .*reduce=\(3, 3\)"):
        reduced(BOTH, small, large)
