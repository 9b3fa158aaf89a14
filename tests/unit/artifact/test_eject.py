"""Plain code as text, and its functions. Whole files of it are run in tests/integration/test_tuned_eject.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import ConfigError, PlainCodeError
from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.eject import NAMES
from autopipe.pipeline.eject.module import CACHED, DIRECTORY, cached_bytes, eject, module
from autopipe.pipeline.loaders import tfdata, workers, wrapped
from autopipe.workload.op import Op, Step
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.plain_code import Library
from autopipe.workload.sample import FieldKind
from tests.fakes.sources import Made

LOADERS = [tfdata.TfData(num_parallel_calls=2), wrapped.Foreign(code="keras-workers")]
ROWS = ap.Arrays(np.zeros((4, 6, 6, 3), np.uint8), np.zeros(4, np.int64))


def work(data: Any, *ops: Op, **more: Any) -> ap.Workload:
    return ap.Workload(data=data, ops=ops, batch_size=2, **more)


def write_images(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / name), np.zeros((8, 8, 3), np.uint8))
    return folder


@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: str(loader.kind))
def test_channels_come_first_in_every_part_that_has_some(tmp_path: Path, loader: LoaderConfig) -> None:
    config = PipelineConfig(loader=loader, channels="first")
    pairs = ap.ImagePairs(*(write_images(tmp_path / name, "1.png", "2.png") for name in ("images", "masks")))
    masked = eject(work(pairs, ap.Decode(), ap.MaskToClass(((0, 0, 0),)), ap.OneHot(2)), config)
    photos = ap.ImageFolder(write_images(tmp_path / "photos", "cat/1.png", "cat/2.png"))
    labelled = eject(work(photos, ap.Decode(), ap.Resize(4, 4), ap.OneHot(2)), config)
    axes = "(2, 0, 1)" if isinstance(loader, tfdata.TfData) else "(0, 3, 1, 2)"  # of a sample, and of a batch
    assert [part for part in "xy" if f"transpose({part}, {axes})" in masked] == ["x", "y"]
    assert [part for part in "xy" if f"transpose({part}, {axes})" in labelled] == ["x"]


def loaded(data: ap.ImageFolder, *ops: Any, **config: Any) -> list[str]:
    """Return the lines on a sample of tf.data code, from the first op on."""
    code = eject(work(data, ap.Decode(), *ops, ap.Rescale(1 / 255)), PipelineConfig(loader=tfdata.TfData(), **config))
    assert code.count("map(") == (2 if config else 1)
    lines = code.partition("read_file(x)\n")[2].partition("\ndef make_dataset")[0].splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


SCALED = f"x = x * {1 / 255}"


def test_photographs_are_one_map_of_tensorflows_own_ops_without_roundings_in_between(tmp_path: Path) -> None:
    photos = ap.ImageFolder(write_images(tmp_path, "cat/1.jpg", "cat/2.jpg"))
    plain = ["x = tf.io.decode_jpeg(x, channels=3)  # PNG, too", "x = tf.image.resize(x, (4, 4))"]
    flipped = "x = tf.image.random_flip_left_right(x)"
    assert loaded(photos, ap.Resize(4, 4), ap.RandomFlip()) == [*plain, flipped, SCALED, "return x, y"]
    colours = loaded(photos, ap.Resize(4, 4), ap.RandomBrightness(0.2), ap.RandomHue(0.1))
    kept = "x = tf.clip_by_value(x, 0.0, 255.0)"
    changed = ["x = tf.image.random_brightness(x, 51.0)", kept, "x = tf.image.random_hue(x, 0.1)"]
    assert colours == [*plain, *changed, SCALED, "return x, y"]
    cached = loaded(photos, ap.Resize(4, 4), ap.RandomFlip(), keep="memory")
    assert cached[2:4] == ["x = tf.cast(tf.round(x), tf.uint8)", "return x, y"]  # a quarter of the memory


def test_only_the_crop_of_a_jpeg_is_decoded_and_of_what_may_be_no_jpeg_the_whole(tmp_path: Path) -> None:
    jpegs = ap.ImageFolder(write_images(tmp_path / "jpegs", "cat/1.jpg", "cat/2.JPEG"))
    for crop in (ap.RandomCrop(4, 5), ap.CenterCrop(4, 5), ap.RandomResizedCrop(4, 5)):
        whole = loaded(jpegs, crop, keep="memory") if crop.is_random else []
        assert any("[top : top + " in line for line in whole) or not crop.is_random
        lines = "\n".join(loaded(jpegs, crop))
        assert "x = tf.io.decode_and_crop_jpeg(x, " in lines
        assert "tf.io.extract_jpeg_shape(x)" in lines
        assert "decode_jpeg" not in lines
        assert "[top" not in lines
    others = write_images(tmp_path / "others", "cat/1.jpg", "cat/2.png")
    named = write_images(tmp_path / "named", "cat/1.jpg")
    (named / "cat" / "2.jpg").write_bytes((others / "cat" / "2.png").read_bytes())
    for folder in (others, named):
        lines = "\n".join(loaded(ap.ImageFolder(folder), ap.RandomCrop(4, 5)))
        assert "decode_and_crop" not in lines
        assert "x.set_shape((4, 5, 3))" in lines


def test_classes_are_looked_up_behind_a_crop_unless_they_are_kept(tmp_path: Path) -> None:
    pairs = ap.ImagePairs(*(write_images(tmp_path / name, "1.png", "2.png") for name in ("images", "masks")))
    workload = work(pairs, ap.Decode(), ap.MaskToClass(((0, 0, 0),)), ap.RandomCrop(4, 4))
    code = eject(workload, "tf.data")
    assert code.index("y = y[top : ") < code.index("y.set_shape((4, 4, 3))") < code.index("tf.gather(CLASSES_")
    kept = eject(workload, CACHED)
    assert kept.index("tf.gather(CLASSES_") < kept.index("y = y[top : ")


def test_flips_of_rows_are_done_to_whole_batches() -> None:
    code = eject(work(ROWS, ap.RandomFlip(), ap.Rescale(1 / 255)), "tf.data")
    assert code.count("map(") == 1
    assert code.index("dataset.batch(") < code.index("dataset.map(finish")


SEEN = ("cat/1.png", "cat/2.PNG", "cat/more/3.jpg", "dog/4.png", "dog/5.png")
HIDDEN = ("cat/.6.png", "cat/.thumbnails/7.png", "dog/more/.trash/8/9.png")
QUOTED = [f"a class of '{number}  photos' or \"so\"/{name}.png" for number in range(20) for name in "12"]


@pytest.mark.parametrize(("files", "count"), [([*SEEN, *HIDDEN], 5), (QUOTED, 40)], ids=["hidden files", "quotes"])
def test_the_files_of_a_folder_are_those_of_autopipe(tmp_path: Path, files: list[str], count: int) -> None:
    data = ap.ImageFolder(write_images(tmp_path / ".data", *files))
    assert listed(data) == data.files()
    assert len(data) == count


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_several_sizes_keep_their_channels(tmp_path: Path, channels: Any) -> None:
    (tmp_path / "cat").mkdir()
    for height in (9, 12):
        cv2.imwrite(str(tmp_path / "cat" / f"{height}.png"), np.zeros((height, 8), np.uint8))
    ops = [ap.Decode(channels), ap.GaussianBlur(), ap.Resize(4, 5), ap.RandomFlip()]
    code = eject(work(ap.ImageFolder(tmp_path), *ops), "keras")
    scope: dict[str, Any] = {"__name__": "plain"}
    exec(code, scope)
    assert scope["Batches"]()[0][0].shape == (2, 4, 5, channels)


def test_links_are_followed_in_the_order_of_autopipe(tmp_path: Path) -> None:
    elsewhere = write_images(tmp_path / "elsewhere", "a/1.jpg", "a/b/2.jpg", "3.jpg")
    data = write_images(tmp_path / "photos", "cat/9.png", "cat/a/8.png", "cat/x.jpg/7.png", "dog/1.png", "dog/2.png")
    (data / "cat" / "0 linked").symlink_to(elsewhere)
    (data / "cat" / "loop").symlink_to(data / "cat")
    (data / "cat" / "twice").symlink_to(elsewhere / "a")
    (data / "cat" / "one.jpg").symlink_to(elsewhere / "3.jpg")
    (data / "emu").symlink_to(elsewhere)
    found = ap.ImageFolder(data)
    assert len(found) == 4 + 3 + 2 + 3
    assert listed(found) == found.files()


def test_a_table_is_read_as_autopipe_reads_it(tmp_path: Path) -> None:
    write_images(tmp_path, "1.jpg", "2.jpg", "3.jpg")
    for separator in (",", ";"):
        text = "file, kind ,more\n 1.jpg, dog,\n,,\n  , ,\n\n2.jpg, cat,\n3.jpg,dog\n".replace(",", separator)
        (tmp_path / "all.csv").write_text(text, encoding="utf-8")
        data = ap.Table(tmp_path / "all.csv", path="file", label="kind")
        assert len(data) == 3
        assert listed(data) == data.files()


def listed(data: ap.ImageFolder | ap.Table) -> list[str]:
    """Return the images that plain code finds."""
    code = eject(work(data, ap.Decode()), "keras")
    scope: dict[str, Any] = {"keras": None, "__name__": "plain"}
    exec(code.partition("class Batches")[0], scope)
    paths, labels = scope["samples"]()
    samples: list[Any] = [data.read(index) for index in range(len(data))]
    assert labels == [label for _, label in samples]
    return list(paths)


@pytest.mark.parametrize("label_mode", ["int", "categorical"])  # listed in the code, and read by the source
def test_files_that_tensorflow_does_not_decode_are_not_written_for_it(tmp_path: Path, label_mode: Any) -> None:
    names = ("cat/1.jpg", "cat/2.PNG", "cat/3.TIF", "dog/4.webp", "dog/5.bmp")
    data = ap.ImageFolder(write_images(tmp_path, *names), label_mode=label_mode)
    with pytest.raises(
        ConfigError, match=r"its samples are \.bmp and \.tif and \.webp files, which TensorFlow"
    ) as told:
        eject(work(data, ap.Decode()), "tf.data")
    assert str(told.value.hint).startswith("`autopipe eject` can write it with `--to keras`")
    with pytest.raises(ConfigError) as told:
        eject(work(data, ap.Decode()), "tf.data-cache")
    assert "--to tf.data" not in str(told.value.hint)  # which has the same limit
    assert "cv2.imdecode" in eject(work(data, ap.Decode()), "keras")
    common = ap.ImageFolder(write_images(tmp_path / "common", *names[:2]), label_mode=label_mode)
    assert "decode_jpeg" in eject(work(common, ap.Decode()), "tf.data")


def test_every_reason_against_it_is_said() -> None:
    workload = work(ROWS, ap.Map(lambda x: x), on_bad_sample="skip")
    with pytest.raises(ConfigError) as error:
        eject(workload, PipelineConfig(loader=workers.Threads(workers=2), keep="array"))
    for reason in ("the `threads` loader is autopipe's own", "a converted set (array)", "bad samples"):
        assert reason in error.value.message
    assert "`autopipe verify --files` lists" in str(error.value.hint)
    with pytest.raises(
        ConfigError,
        match=r"`<lambda>` cannot be imported: it must be at the top level of a file. Define it there, by `def`\.",
    ):
        eject(work(ROWS, ap.Map(lambda x: x)), "keras")


def test_arrays_for_fit_are_of_arrays_and_of_ops_that_give_the_same_in_every_epoch(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="random ones differ from epoch to epoch"):
        eject(work(ROWS, ap.RandomFlip()), "fit")
    photos = ap.ImageFolder(write_images(tmp_path, "cat/1.png", "cat/2.png"))
    with pytest.raises(ConfigError, match="takes data that are arrays"):
        eject(work(photos, ap.Decode()), "fit")


def test_a_user_function_is_imported_from_where_it_stands() -> None:
    code = eject(work(ROWS, ap.Map(np.flipud)), "tf.data")
    assert "from numpy import flipud as flipud_0  # your own" in code
    assert "tf.numpy_function(flipud_0, [x], tf.uint8)" in code
    assert "files that hold flipud," in " ".join(code.split())


def test_a_cache_of_samples_is_for_what_is_decoded_and_fits(tmp_path: Path, this_machine: Callable[..., None]) -> None:
    with pytest.raises(ConfigError, match="are in memory already"):
        eject(work(ROWS, ap.RandomFlip()), CACHED)
    workload = work(ap.ImageFolder(write_images(tmp_path, "cat/1.jpg", "cat/2.jpg")), ap.Decode(), ap.RandomCrop(4, 4))
    assert cached_bytes(workload, make_plan(workload)) == 2 * (8 * 8 * 3 + 8)  # with labels
    this_machine(free_bytes=1000)
    code = eject(workload, CACHED)
    assert "import autopipe" not in code
    assert code.index("map(load") < code.index("cache()") < code.index("shuffle(") < code.index("map(augment")
    a_part = module(workload, CACHED, every=3).code
    assert a_part.index("from_tensor_slices(") < a_part.index("shard(3, 0)") < a_part.index("map(load")
    assert "shard(" not in code
    this_machine(free_bytes=500)
    with pytest.raises(ConfigError, match="a cache of decoded samples takes"):
        eject(workload, CACHED)


@pytest.mark.parametrize(
    "ops",
    [
        [ap.Decode(), ap.RandomCrop(4, 4)],
        [ap.Decode(), ap.Resize(4, 4), ap.RandomBrightness()],
        [ap.Decode(), ap.Resize(4, 4, "area")],
    ],
)
def test_kerass_own_reader_of_a_folder_only_decodes_and_resizes(tmp_path: Path, ops: list[Any]) -> None:
    photos = ap.ImageFolder(write_images(tmp_path, "cat/1.jpg", "cat/2.jpg"))
    with pytest.raises(ConfigError, match="only flips and scales may follow"):
        eject(work(photos, *ops), DIRECTORY)
    with pytest.raises(ConfigError, match="reads a folder of classes"):
        eject(work(ROWS, ap.RandomFlip()), DIRECTORY)


class Odd(ap.Arrays):
    def read(self, index: int) -> object:
        row: Any = super().read(index)
        return row[0] + 1, index


@dataclasses.dataclass(frozen=True)
class Twice(ap.RandomFlip):
    def pixels(self, array: Any, kind: FieldKind, random: Any) -> Any:
        return super().pixels(super().pixels(array, kind, random), kind, random)


def test_a_subclass_that_reads_or_does_something_else_is_not_written_as_its_base() -> None:
    odd = Odd(np.zeros((4, 6, 6, 3), np.uint8), np.zeros(4, np.int64))
    assert "source.read(index)" in eject(work(odd), "keras")
    with pytest.raises(ConfigError, match="`Twice` has no plain code"):
        eject(work(ROWS, Twice()), "keras")


# ---------------------------------------------------------------- samples of several parts

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 6, 8, 3), np.uint8)
SMALL = IMAGES[:, :4, :6]
NUMBERS = np.arange(12, dtype=np.float32).reshape(4, 3)
KIND, WEIGHT = np.arange(4) % 2, np.linspace(0, 1, 4, dtype=np.float32)


def functions(data: Any, *ops: Op) -> dict[str, Any]:
    """Return the functions of the file for Keras, which is not imported."""
    code = eject(work(data, *ops), "keras").partition("class Batches")[0].replace("import keras\n", "")
    scope: dict[str, Any] = {"__name__": "plain"}
    exec(code, scope)
    return scope


@pytest.mark.parametrize(
    ("data", "arguments", "returned"),
    [
        (
            ap.Arrays({"numbers": NUMBERS, "photo": IMAGES}, KIND, WEIGHT),
            "x_photo, x_numbers, y, sample_weight",
            '{"photo": x_photo, "numbers": x_numbers}, y, sample_weight',
        ),
        (ap.Arrays((NUMBERS, IMAGES), {"kind": KIND}), "x_1, x_0, y_kind", '(x_0, x_1), {"kind": y_kind}'),
        (ap.Arrays({"photo": IMAGES}, (KIND,)), "x_photo, y_0", '{"photo": x_photo}, (y_0,)'),
        (ap.Arrays({"photo": IMAGES}), "x_photo", '({"photo": x_photo},)'),
        (ap.Arrays({"a b": IMAGES, "a_b": NUMBERS, "A_b": NUMBERS}, KIND), "x_0, x_2, x_3, y", None),
    ],
    ids=["dictionary", "tuple", "of one", "inputs alone", "names that are alike"],
)
@pytest.mark.parametrize("form", sorted(set(NAMES) - {CACHED, DIRECTORY}))
def test_parts_go_where_the_model_takes_them(data: ap.Arrays, arguments: str, returned: str | None, form: str) -> None:
    code = eject(work(data), form)
    assert f"def finish({', '.join(f'{name}: Any' for name in arguments.split(', '))}) -> Any:" in code
    assert returned is None or f"    return {returned}\n" in code
    assert "import autopipe" not in code
    compile(code, form, "exec")


def test_weights_alone_are_the_third_and_need_no_function() -> None:
    code = eject(work(ap.Arrays(IMAGES, KIND, WEIGHT)), "tf.data")
    assert "from_tensor_slices((x, y, sample_weight))" in code
    assert "def " not in code.replace("def make_dataset(x: Any, y: Any, sample_weight: Any)", "")
    assert "model.fit(x, y, sample_weight=weight, batch_size" in eject(work(ap.Arrays(IMAGES, KIND, WEIGHT)), "fit")


def test_images_and_their_masks_get_the_same_random_numbers() -> None:
    data = ap.Arrays({"left": IMAGES, "right": IMAGES}, {"mask": IMAGES[..., 0], "kind": KIND})
    augment = functions(data, ap.RandomCrop(3, 5), ap.RandomFlip(vertical=True))["augment"]
    seen = set()
    for seed in range(8):
        left, right, mask, kind = augment(IMAGES[1], IMAGES[1], IMAGES[1][..., 0], 1, np.random.default_rng(seed))
        np.testing.assert_array_equal(left, right)
        np.testing.assert_array_equal(left[..., 0], mask)
        assert (left.shape, kind) == ((3, 5, 3), 1)
        seen.add(left.tobytes())
    assert len(seen) > 4


def test_what_is_not_random_acts_on_each_image_by_its_own_size() -> None:
    load = functions(ap.Arrays({"left": IMAGES, "right": SMALL}, KIND), ap.CenterCrop(2, 2))["load"]
    left, right, _ = load(IMAGES[0], SMALL[0], 0)
    np.testing.assert_array_equal(left, IMAGES[0, 2:4, 3:5])
    np.testing.assert_array_equal(right, SMALL[0, 1:3, 2:4])


def halved(x: Any, y: Any) -> Any:
    return x // 2, y / 2


def shaken(x: Any, rng: Any) -> Any:
    return x + rng.integers(0, 200, x.shape, np.uint8)


def test_a_random_function_draws_the_same_for_each_image() -> None:
    augment = functions(ap.Arrays((IMAGES, IMAGES), KIND), ap.Map(shaken, random=True))["augment"]
    left, right, _ = augment(IMAGES[0], IMAGES[0], 1, np.random.default_rng(3))
    np.testing.assert_array_equal(left, right)
    assert not np.array_equal(left, IMAGES[0])


def test_a_function_of_both_gets_x_before_y() -> None:
    data = ap.Arrays({"photo": IMAGES, "numbers": NUMBERS}, {"kind": KIND, "depth": WEIGHT})
    load = functions(data, ap.On(("depth", "numbers"), ap.Map(halved, on="both")))["load"]
    _, numbers, kind, depth = load(IMAGES[0], NUMBERS[1], 1, WEIGHT[3])
    assert (numbers.tolist(), kind, depth) == ([1, 2, 2], 1, 0.5)


def load(x: Any) -> Any:
    return x // 2


def augment(x: Any, rng: Any) -> Any:
    return x // 2 + rng.integers(1, 2, x.shape, np.uint8)


def scaled(by: int) -> Any:
    def times(x: Any) -> Any:
        return x * by

    return times


def test_functions_may_be_called_like_those_of_the_file_or_like_each_other() -> None:
    made = functions(ap.Arrays(IMAGES, KIND), ap.Map(load), ap.Map(augment, random=True))
    np.testing.assert_array_equal(made["load"](IMAGES[0], 1)[0], IMAGES[0] // 2)
    np.testing.assert_array_equal(made["augment"](IMAGES[0], 1, np.random.default_rng(0))[0], IMAGES[0] // 2 + 1)
    alike = module(work(ap.Arrays(NUMBERS, KIND), ap.Map(scaled(2)), ap.Map(scaled(3))), "keras", own=False).functions
    assert [function(1) for function in alike.values()] == [2, 3]


@dataclasses.dataclass(frozen=True)
class Inverted(ap.RandomFlip):
    def plain(self, step: Step, library: Library) -> Iterator[str]:
        yield "x = 255 - x"


@pytest.mark.parametrize(
    ("right", "op", "reason"),
    [
        (
            SMALL,
            ap.On(("left", "right"), ap.RandomCrop(2, 2)),  # not on the masks, of which one would have another size
            "`RandomCrop` acts alike on images that differ in size; put ap.Resize before it",
        ),
        (
            IMAGES,
            ap.On(("left", "y.0", "y.1"), ap.Map(halved, on="both")),
            r"`Map` would get x and y of several parts at once \(x_left, y_0, y_1\)",
        ),
        (IMAGES, Inverted(), "`Inverted` writes plain code of `x`, but the parts are x_left, x_right, y_0, y_1"),
    ],
)
def test_what_cannot_be_written_of_parts_is_said(right: Any, op: Op, reason: str) -> None:
    data = ap.Arrays({"left": IMAGES, "right": right}, (IMAGES[..., 0], IMAGES[..., 1]))
    with pytest.raises(PlainCodeError, match=reason):
        eject(work(data, op), "keras")


@pytest.mark.parametrize(
    ("sample", "given"),
    [
        ({"a": 1, "b": 2}, ({"a": 1, "b": 2},)),
        (({"a": 1, "b": 2}, None), ({"a": 1, "b": 2},)),
        (((1, 2),), ((1, 2),)),
        (((1, 2), 3), ((1, 2), 3)),
        (((1, 2), (3, 4), 5), ((1, 2), (3, 4), 5)),
        (({"a": 1, "b": 2}, {"c": 3}), ({"a": 1, "b": 2}, {"c": 3})),
    ],
    ids=str,
)
def test_a_source_of_ones_own_is_read_however_its_samples_are_built(sample: Any, given: Any) -> None:
    source = Made(4, lambda index: sample)
    made = functions(source)
    assert made["finish"](*made["load"](source, 0)) == given


def test_one_image_with_two_masks_is_decoded_once() -> None:
    encoded = [bytes(cv2.imencode(".png", image)[1]) for image in (IMAGES[0], IMAGES[0, ..., 0], IMAGES[1, ..., 0])]
    source = Made(4, lambda index: (encoded[0], {"one": encoded[1], "other": encoded[2]}))
    x, one, other = functions(source, ap.Decode(), ap.Rescale(1.0))["load"](source, 0)
    np.testing.assert_array_equal(x, IMAGES[0][..., ::-1])
    np.testing.assert_array_equal(one, IMAGES[0, ..., 0])
    np.testing.assert_array_equal(other, IMAGES[1, ..., 0])


def test_a_one_hot_target_is_the_one_that_is_named() -> None:
    finish = functions(
        ap.Arrays(IMAGES, {"kind": KIND, "depth": WEIGHT}), ap.On("kind", ap.OneHot(2)), ap.Rescale(2.0)
    )["finish"]
    _, y = finish(IMAGES[:2], KIND[:2], WEIGHT[:2])
    assert (y["kind"].tolist(), y["depth"].tolist()) == ([[1, 0], [0, 1]], WEIGHT[:2].tolist())
