"""Plain code as text, and its functions. Whole files of it are run in tests/integration/test_tuned_eject.py."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe.pipeline.eject import NAMES
from autopipe.pipeline.eject.module import CACHED, DIRECTORY, cached_bytes, eject, module
from autopipe.pipeline.loaders import tfdata, workers, wrapped
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import FieldKind
from tests.fakes.sources import Made

LOADERS = [tfdata.TfData(num_parallel_calls=2), wrapped.Foreign(code="keras-workers")]
ROWS = ap.Arrays(np.zeros((4, 6, 6, 3), np.uint8), np.zeros(4, np.int64))
SCALED = f"x = x * {1 / 255}"
ALIKE = "`RandomCrop` acts alike on images that differ in size; put ap.Resize before it"


def work(data: Any, *ops: ap.Op, **more: Any) -> ap.Workload:
    return ap.Workload(data=data, ops=ops, batch_size=2, **more)


def write_images(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / name), np.zeros((8, 8, 3), np.uint8))
    return folder


def masks(folder: Path) -> ap.ImagePairs:
    return ap.ImagePairs(*(write_images(folder / name, "1.png", "2.png") for name in ("images", "masks")))


@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: str(loader.kind))
def test_channels_come_first_in_every_part_that_has_some(tmp_path: Path, loader: ap.LoaderConfig) -> None:
    config = ap.PipelineConfig(loader=loader, channels="first")
    photos = ap.ImageFolder(write_images(tmp_path / "photos", "cat/1.png", "cat/2.png"))
    masked = eject(work(masks(tmp_path), ap.Decode(), ap.MaskToClass(((0, 0, 0),)), ap.OneHot(2)), config)
    labelled = eject(work(photos, ap.Decode(), ap.Resize(4, 4), ap.OneHot(2)), config)
    axes = "(2, 0, 1)" if isinstance(loader, tfdata.TfData) else "(0, 3, 1, 2)"  # of a sample, and of a batch
    assert [part for part in "xy" if f"transpose({part}, {axes})" in masked] == ["x", "y"]
    assert [part for part in "xy" if f"transpose({part}, {axes})" in labelled] == ["x"]


def loaded(data: ap.ImageFolder, *ops: Any, **config: Any) -> list[str]:
    """Return the lines on a sample of tf.data code, from the first op on."""
    code = eject(
        work(data, ap.Decode(), *ops, ap.Rescale(1 / 255)), ap.PipelineConfig(loader=tfdata.TfData(), **config)
    )
    assert code.count("map(") == (2 if config else 1)
    lines = code.partition("read_file(x)\n")[2].partition("\ndef make_dataset")[0].splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


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
        lines = "\n".join(loaded(jpegs, crop))
        assert "x = tf.io.decode_and_crop_jpeg(x, " in lines
        assert "tf.io.extract_jpeg_shape(x)" in lines
        assert not any(each in lines for each in ("decode_jpeg", "[top"))
    assert any("[top : top + " in line for line in loaded(jpegs, ap.RandomCrop(4, 5), keep="memory"))
    others = write_images(tmp_path / "others", "cat/1.jpg", "cat/2.png")
    named = write_images(tmp_path / "named", "cat/1.jpg")
    (named / "cat" / "2.jpg").write_bytes((others / "cat" / "2.png").read_bytes())
    for folder in (others, named):
        lines = "\n".join(loaded(ap.ImageFolder(folder), ap.RandomCrop(4, 5)))
        assert "decode_and_crop" not in lines
        assert "x.set_shape((4, 5, 3))" in lines


def test_classes_are_looked_up_behind_a_crop_unless_they_are_kept(tmp_path: Path) -> None:
    workload = work(masks(tmp_path), ap.Decode(), ap.MaskToClass(((0, 0, 0),)), ap.RandomCrop(4, 4))
    code, kept = eject(workload, "tf.data"), eject(workload, CACHED)
    assert code.index("y = y[top : ") < code.index("y.set_shape((4, 4, 3))") < code.index("tf.gather(CLASSES_")
    assert kept.index("tf.gather(CLASSES_") < kept.index("y = y[top : ")


QUOTED = [f'a class  of \' or "so"/{number}.png' for number in range(20)]
SEEN = ("cat/1.png", "cat/2.PNG", "cat/more/3.jpg", "dog/4.png", "dog/5.png", *QUOTED)
HIDDEN = ("cat/.6.png", "cat/.thumbnails/7.png", "dog/more/.trash/8/9.png")


def test_the_files_of_a_folder_are_those_of_autopipe_and_so_is_their_order(tmp_path: Path) -> None:
    elsewhere = write_images(tmp_path / "elsewhere", "a/1.jpg", "a/b/2.jpg", "3.jpg")
    folder = write_images(tmp_path / ".data", *SEEN, *HIDDEN, "cat/a/8.png", "cat/x.jpg/7.png")
    (folder / "cat" / "0 linked").symlink_to(elsewhere)
    (folder / "cat" / "loop").symlink_to(folder / "cat")
    (folder / "cat" / "twice").symlink_to(elsewhere / "a")  # whose files are there already
    (folder / "cat" / "one.jpg").symlink_to(elsewhere / "3.jpg")
    (folder / "emu").symlink_to(elsewhere)
    data = ap.ImageFolder(folder)
    assert listed(data) == data.files()
    assert len(data) == len(SEEN) + 2 + 3 + 1 + 3


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
    hints = []
    for form in ("tf.data", "tf.data-cache"):
        with pytest.raises(ap.ConfigError, match=r"samples are \.bmp and \.tif and \.webp files, which Ten") as told:
            eject(work(data, ap.Decode()), form)
        hints.append(str(told.value.hint))
    assert hints[0].startswith("`autopipe eject` can write it with `--to keras`")
    assert "--to tf.data" not in hints[1]  # which has the same limit
    assert "cv2.imdecode" in eject(work(data, ap.Decode()), "keras")
    common = ap.ImageFolder(write_images(tmp_path / "common", *names[:2]), label_mode=label_mode)
    assert "decode_jpeg" in eject(work(common, ap.Decode()), "tf.data")


def test_every_reason_against_it_is_said() -> None:
    workload = work(ROWS, ap.Map(lambda x: x), on_bad_sample="skip")
    with pytest.raises(ap.ConfigError) as error:
        eject(workload, ap.PipelineConfig(loader=workers.Threads(workers=2), keep="array"))
    for reason in ("the `threads` loader is autopipe's own", "a converted set (array)", "bad samples"):
        assert reason in error.value.message
    assert "`autopipe verify --files` lists" in str(error.value.hint)


def test_what_a_form_cannot_hold_is_refused(tmp_path: Path) -> None:
    photos = ap.ImageFolder(write_images(tmp_path, "cat/1.jpg", "cat/2.jpg"))
    nameless, follow = (
        r"`<lambda>` cannot be imported: .*Define it there, by `def`\.",
        "only flips and scales may follow",
    )
    cases: list[tuple[Any, list[ap.Op], str, str]] = [
        (ROWS, [ap.Map(lambda x: x)], "keras", nameless),
        (ROWS, [ap.RandomFlip()], "fit", "random ones differ from epoch to epoch"),
        (photos, [ap.Decode()], "fit", "takes data that are arrays"),
        (ROWS, [ap.RandomFlip()], CACHED, "are in memory already"),
        (ROWS, [ap.RandomFlip()], DIRECTORY, "reads a folder of classes"),
        (photos, [ap.Decode(), ap.RandomCrop(4, 4)], DIRECTORY, follow),
        (photos, [ap.Decode(), ap.Resize(4, 4), ap.RandomBrightness()], DIRECTORY, follow),
        (photos, [ap.Decode(), ap.Resize(4, 4, "area")], DIRECTORY, follow),
    ]
    for data, ops, form, said in cases:
        with pytest.raises(ap.ConfigError, match=said):
            eject(work(data, *ops), form)


def test_a_cache_of_samples_is_for_what_is_decoded_and_fits(tmp_path: Path, this_machine: Callable[..., None]) -> None:
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
    with pytest.raises(ap.ConfigError, match="a cache of decoded samples takes"):
        eject(workload, CACHED)


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
    with pytest.raises(ap.ConfigError, match="`Twice` has no plain code"):
        eject(work(ROWS, Twice()), "keras")


IMAGES = np.random.default_rng(0).integers(0, 256, (4, 6, 8, 3), np.uint8)
SMALL = IMAGES[:, :4, :6]
NUMBERS = np.arange(12, dtype=np.float32).reshape(4, 3)
KIND, WEIGHT = np.arange(4) % 2, np.linspace(0, 1, 4, dtype=np.float32)


def functions(data: Any, *ops: ap.Op) -> dict[str, Any]:
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
        (ap.Arrays({"photo": IMAGES}), "x_photo", '({"photo": x_photo},)'),
        (ap.Arrays({"a b": IMAGES, "a_b": NUMBERS, "A_b": NUMBERS}, KIND), "x_0, x_2, x_3, y", None),
    ],
    ids=["dictionary", "tuple", "inputs alone", "names that are alike"],
)
@pytest.mark.parametrize("form", sorted(set(NAMES) - {CACHED, DIRECTORY}))
def test_parts_go_where_the_model_takes_them(data: ap.Arrays, arguments: str, returned: str | None, form: str) -> None:
    code = eject(work(data), form)
    assert f"def finish({', '.join(f'{name}: Any' for name in arguments.split(', '))}) -> Any:" in code
    assert returned is None or f"    return {returned}\n" in code
    compile(code, form, "exec")


def test_what_is_not_random_acts_on_each_image_by_its_own_size_and_what_is_random_alike() -> None:
    load = functions(ap.Arrays({"left": IMAGES, "right": SMALL}, KIND), ap.CenterCrop(2, 2))["load"]
    left, right, _ = load(IMAGES[0], SMALL[0], 0)
    np.testing.assert_array_equal(left, IMAGES[0, 2:4, 3:5])
    np.testing.assert_array_equal(right, SMALL[0, 1:3, 2:4])
    augment = functions(ap.Arrays((IMAGES, IMAGES), KIND), ap.Map(shaken, random=True))["augment"]
    left, right, _ = augment(IMAGES[0], IMAGES[0], 1, np.random.default_rng(3))
    np.testing.assert_array_equal(left, right)
    assert not np.array_equal(left, IMAGES[0])


def halved(x: Any, y: Any) -> Any:
    return x // 2, y / 2


def shaken(x: Any, rng: Any) -> Any:
    return x + rng.integers(0, 200, x.shape, np.uint8)


def test_a_function_of_both_gets_x_before_y() -> None:
    data = ap.Arrays({"photo": IMAGES, "numbers": NUMBERS}, {"kind": KIND, "depth": WEIGHT})
    load = functions(data, ap.On(("depth", "numbers"), ap.Map(halved, on="both")))["load"]
    _, numbers, kind, depth = load(IMAGES[0], NUMBERS[1], 1, WEIGHT[3])
    assert (numbers.tolist(), kind, depth) == ([1, 2, 2], 1, 0.5)


def test_what_cannot_be_written_of_parts_is_said() -> None:
    cases: list[tuple[Any, ap.Op, str]] = [
        (SMALL, ap.On(("left", "right"), ap.RandomCrop(2, 2)), ALIKE),  # not on the masks
        (IMAGES, ap.On(("left", "y.0", "y.1"), ap.Map(halved, on="both")), "several parts at once .x_left, y_0, y_1"),
    ]
    for right, op, reason in cases:
        data = ap.Arrays({"left": IMAGES, "right": right}, (IMAGES[..., 0], IMAGES[..., 1]))
        with pytest.raises(ap.PlainCodeError, match=reason):
            eject(work(data, op), "keras")


@pytest.mark.parametrize(
    "sample", [({"a": 1, "b": 2},), ((1, 2),), ((1, 2), 3), ((1, 2), (3, 4), 5), ({"a": 1, "b": 2}, {"c": 3})], ids=str
)
def test_a_source_of_ones_own_is_read_however_its_samples_are_built(sample: Any) -> None:
    first = sample[0]
    for made in (sample, first, (first, None)) if len(sample) == 1 and isinstance(first, dict) else (sample,):
        source = Made(4, lambda index, made=made: made)  # type: ignore[misc]
        plain = functions(source)
        assert plain["finish"](*plain["load"](source, 0)) == sample
