"""Plain code as text. Whole files of it are run in tests/integration/test_tuned_eject.py, lines in tests/contract."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from autopipe.errors import ConfigError
from autopipe.hardware import machine
from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.eject.forms import cached_bytes
from autopipe.pipeline.eject.module import CACHED, DIRECTORY, FORMS, eject
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.threads import Threads
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.data.images import ImageFolder, ImagePairs
from autopipe.workload.data.table import Table
from autopipe.workload.ops.colors import GaussianBlur, RandomBrightness, RandomHue
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.ops.sizes import CenterCrop, RandomCrop, RandomResizedCrop, Resize
from autopipe.workload.ops.values import MaskToClass, OneHot, Rescale
from autopipe.workload.sample import FieldKind
from autopipe.workload.workload import Workload

LOADERS = [TfData(num_parallel_calls=2), Foreign(code="keras-workers")]
ROWS = Arrays(np.zeros((4, 6, 6, 3), np.uint8), np.zeros(4, np.int64))


def write_images(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / name), np.zeros((8, 8, 3), np.uint8))
    return folder


@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: str(loader.kind))
def test_channels_come_first_in_every_part_that_has_some(tmp_path: Path, loader: LoaderConfig) -> None:
    config = PipelineConfig(loader=loader, channels="first")
    pairs = ImagePairs(*(write_images(tmp_path / name, "1.png", "2.png") for name in ("images", "masks")))
    masked = eject(Workload(data=pairs, ops=[Decode(), MaskToClass(((0, 0, 0),)), OneHot(2)], batch_size=2), config)
    photos = ImageFolder(write_images(tmp_path / "photos", "cat/1.png", "cat/2.png"))
    labelled = eject(Workload(data=photos, ops=[Decode(), Resize(4, 4), OneHot(2)], batch_size=2), config)
    axes = "(2, 0, 1)" if isinstance(loader, TfData) else "(0, 3, 1, 2)"  # of a sample, and of a batch
    assert [part for part in "xy" if f"transpose({part}, {axes})" in masked] == ["x", "y"]
    assert [part for part in "xy" if f"transpose({part}, {axes})" in labelled] == ["x"]


def loaded(data: ImageFolder, *ops: Any, **config: Any) -> list[str]:
    """Return the lines on a sample of tf.data code, from the first op on."""
    loader = PipelineConfig(loader=TfData(), **config)
    code = eject(Workload(data=data, ops=[Decode(), *ops, Rescale(1 / 255)], batch_size=2), loader)
    assert code.count("map(") == (2 if config else 1)
    lines = code.partition("read_file(x)\n")[2].partition("\ndef make_dataset")[0].splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


SCALED = f"x = x * {1 / 255}"


def test_photographs_are_one_map_of_tensorflows_own_ops_without_roundings_in_between(tmp_path: Path) -> None:
    photos = ImageFolder(write_images(tmp_path, "cat/1.jpg", "cat/2.jpg"))
    plain = ["x = tf.io.decode_jpeg(x, channels=3)  # PNG, too", "x = tf.image.resize(x, (4, 4))"]
    flipped = "x = tf.image.random_flip_left_right(x)"
    assert loaded(photos, Resize(4, 4), RandomFlip()) == [*plain, flipped, SCALED, "return x, y"]
    colours = loaded(photos, Resize(4, 4), RandomBrightness(0.2), RandomHue(0.1))
    kept = "x = tf.clip_by_value(x, 0.0, 255.0)"
    changed = ["x = tf.image.random_brightness(x, 51.0)", kept, "x = tf.image.random_hue(x, 0.1)"]
    assert colours == [*plain, *changed, SCALED, "return x, y"]
    cached = loaded(photos, Resize(4, 4), RandomFlip(), cache="memory")
    assert cached[2:4] == ["x = tf.cast(tf.round(x), tf.uint8)", "return x, y"]  # a quarter of the memory


def test_only_the_crop_of_a_jpeg_is_decoded_and_of_what_may_be_no_jpeg_the_whole(tmp_path: Path) -> None:
    jpegs = ImageFolder(write_images(tmp_path / "jpegs", "cat/1.jpg", "cat/2.JPEG"))
    for crop in (RandomCrop(4, 5), CenterCrop(4, 5), RandomResizedCrop(4, 5)):
        whole = loaded(jpegs, crop, cache="memory") if crop.is_random else []
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
        lines = "\n".join(loaded(ImageFolder(folder), RandomCrop(4, 5)))
        assert "decode_and_crop" not in lines
        assert "x.set_shape((4, 5, 3))" in lines


def test_classes_are_looked_up_behind_a_crop_unless_they_are_kept(tmp_path: Path) -> None:
    pairs = ImagePairs(*(write_images(tmp_path / name, "1.png", "2.png") for name in ("images", "masks")))
    workload = Workload(data=pairs, ops=[Decode(), MaskToClass(((0, 0, 0),)), RandomCrop(4, 4)], batch_size=2)
    code = eject(workload, "tf.data")
    assert code.index("y = y[top : ") < code.index("tf.gather(CLASSES_") < code.index("y.set_shape((4, 4))")
    kept = eject(workload, CACHED)
    assert kept.index("tf.gather(CLASSES_") < kept.index("y = y[top : ")


def test_flips_of_rows_are_done_to_whole_batches() -> None:
    code = eject(Workload(data=ROWS, ops=[RandomFlip(), Rescale(1 / 255)], batch_size=2), "tf.data")
    assert code.count("map(") == 1
    assert code.index("dataset.batch(") < code.index("dataset.map(finish")


def test_hidden_files_and_folders_are_left_out_as_autopipe_does(tmp_path: Path) -> None:
    seen = ("cat/1.png", "cat/2.PNG", "cat/more/3.jpg", "dog/4.png", "dog/5.png")
    hidden = ("cat/.6.png", "cat/.thumbnails/7.png", "dog/more/.trash/8/9.png")
    data = ImageFolder(write_images(tmp_path / ".data", *seen, *hidden))
    assert listed(data) == data.files()


def test_names_of_classes_may_hold_spaces_and_quotes(tmp_path: Path) -> None:
    names = [f"a class of '{number}  photos' or \"so\"" for number in range(20)]
    data = ImageFolder(write_images(tmp_path, *(f"{name}/{n}.png" for name in names for n in "12")))
    assert listed(data) == data.files()


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_several_sizes_keep_their_channels(tmp_path: Path, channels: Any) -> None:
    (tmp_path / "cat").mkdir()
    for height in (9, 12):
        cv2.imwrite(str(tmp_path / "cat" / f"{height}.png"), np.zeros((height, 8), np.uint8))
    ops = [Decode(channels), GaussianBlur(), Resize(4, 5), RandomFlip()]
    code = eject(Workload(data=ImageFolder(tmp_path), ops=ops, batch_size=2), "keras")
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
    found = ImageFolder(data)
    assert len(found) == 4 + 3 + 2 + 3
    assert listed(found) == found.files()


def test_a_table_is_read_as_autopipe_reads_it(tmp_path: Path) -> None:
    write_images(tmp_path, "1.jpg", "2.jpg", "3.jpg")
    for separator in (",", ";"):
        text = "file, kind ,more\n 1.jpg, dog,\n,,\n  , ,\n\n2.jpg, cat,\n3.jpg,dog\n".replace(",", separator)
        (tmp_path / "all.csv").write_text(text, encoding="utf-8")
        data = Table(tmp_path / "all.csv", path="file", label="kind")
        assert len(data) == 3
        assert listed(data) == data.files()


def listed(data: ImageFolder | Table) -> list[str]:
    """Return the images that plain code finds."""
    code = eject(Workload(data=data, ops=[Decode()], batch_size=2), "keras")
    scope: dict[str, Any] = {"keras": None, "__name__": "plain"}
    exec(code.partition("class Batches")[0], scope)
    paths, labels = scope["samples"]()
    samples: list[Any] = [data.read(index) for index in range(len(data))]
    assert labels == [label for _, label in samples]
    return list(paths)


@pytest.mark.parametrize("label_mode", ["int", "categorical"])  # listed in the code, and read by the source
def test_files_that_tensorflow_does_not_decode_are_not_written_for_it(tmp_path: Path, label_mode: Any) -> None:
    names = ("cat/1.jpg", "cat/2.PNG", "cat/3.TIF", "dog/4.webp", "dog/5.bmp")
    data = ImageFolder(write_images(tmp_path, *names), label_mode=label_mode)
    with pytest.raises(
        ConfigError, match=r"its samples are \.bmp and \.tif and \.webp files, which TensorFlow"
    ) as told:
        eject(Workload(data=data, ops=[Decode()], batch_size=2), "tf.data")
    assert str(told.value.hint).startswith("`--to keras` ")
    assert "cv2.imdecode" in eject(Workload(data=data, ops=[Decode()], batch_size=2), "keras")
    common = ImageFolder(write_images(tmp_path / "common", *names[:2]), label_mode=label_mode)
    assert "decode_jpeg" in eject(Workload(data=common, ops=[Decode()], batch_size=2), "tf.data")


def test_every_reason_against_it_is_said() -> None:
    workload = Workload(data=ROWS, ops=[Map(lambda x: x)], batch_size=2, on_bad_sample="skip")
    with pytest.raises(ConfigError) as error:
        eject(workload, PipelineConfig(loader=Threads(workers=2), storage="array"))
    for reason in ("the `threads` loader is autopipe's own", "storage='array'", "bad samples"):
        assert reason in error.value.message
    with pytest.raises(
        ConfigError, match="`function_0` cannot be imported: it must be defined at the top level of a file"
    ):
        eject(Workload(data=ROWS, ops=[Map(lambda x: x)], batch_size=2), "keras")


def test_arrays_for_fit_are_of_arrays_and_of_ops_that_give_the_same_in_every_epoch(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="random ones differ from epoch to epoch"):
        eject(Workload(data=ROWS, ops=[RandomFlip()], batch_size=2), "fit")
    photos = ImageFolder(write_images(tmp_path, "cat/1.png", "cat/2.png"))
    with pytest.raises(ConfigError, match="takes data that are arrays"):
        eject(Workload(data=photos, ops=[Decode()], batch_size=2), "fit")


def test_a_user_function_is_imported_from_where_it_stands() -> None:
    code = eject(Workload(data=ROWS, ops=[Map(np.flipud)], batch_size=2), "tf.data")
    assert "from numpy import flipud as flipud_0  # your own" in code
    assert "tf.numpy_function(flipud_0, [x], tf.uint8)" in code
    assert "files that hold flipud," in " ".join(code.split())


@pytest.mark.parametrize("form", FORMS)
def test_no_form_imports_autopipe(form: str, tmp_path: Path) -> None:
    workload = Workload(data=ROWS, ops=[OneHot(2)], batch_size=2)
    if form in (CACHED, DIRECTORY):
        photos = ImageFolder(write_images(tmp_path, "cat/1.png", "cat/2.png"))
        workload = Workload(data=photos, ops=[Decode(), Resize(4, 4), OneHot(2)], batch_size=2)
    assert "import autopipe" not in eject(workload, form)


def test_a_cache_of_samples_is_for_what_is_decoded_and_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="are in memory already"):
        eject(Workload(data=ROWS, ops=[RandomFlip()], batch_size=2), CACHED)
    photos = ImageFolder(write_images(tmp_path, "cat/1.jpg", "cat/2.jpg"))
    workload = Workload(data=photos, ops=[Decode(), RandomCrop(4, 4)], batch_size=2)
    assert cached_bytes(workload, make_plan(workload)) == 2 * (8 * 8 * 3 + 8)  # with labels
    for free, fits in ((1000, True), (500, False)):
        monkeypatch.setattr(
            machine, "detect_memory", lambda free=free: machine.Memory(usable_bytes=free, available_bytes=free)
        )
        if fits:
            code = eject(workload, CACHED)
            assert code.index("map(load") < code.index("cache()") < code.index("shuffle(") < code.index("map(augment")
        else:
            with pytest.raises(ConfigError, match="a cache of decoded samples takes"):
                eject(workload, CACHED)


@pytest.mark.parametrize(
    "ops",
    [[Decode(), RandomCrop(4, 4)], [Decode(), Resize(4, 4), RandomBrightness()], [Decode(), Resize(4, 4, "area")]],
)
def test_kerass_own_reader_of_a_folder_only_decodes_and_resizes(tmp_path: Path, ops: list[Any]) -> None:
    photos = ImageFolder(write_images(tmp_path, "cat/1.jpg", "cat/2.jpg"))
    with pytest.raises(ConfigError, match="only flips and scales may follow"):
        eject(Workload(data=photos, ops=ops, batch_size=2), DIRECTORY)
    with pytest.raises(ConfigError, match="reads a folder of classes"):
        eject(Workload(data=ROWS, ops=[RandomFlip()], batch_size=2), DIRECTORY)


class Odd(Arrays):
    def read(self, index: int) -> object:
        row: Any = super().read(index)
        return row[0] + 1, index


@dataclasses.dataclass(frozen=True)
class Twice(RandomFlip):
    def pixels(self, array: Any, kind: FieldKind, random: Any, out: Any) -> Any:
        return super().pixels(super().pixels(array, kind, random, None), kind, random, None)


def test_a_subclass_that_reads_or_does_something_else_is_not_written_as_its_base() -> None:
    odd = Odd(np.zeros((4, 6, 6, 3), np.uint8), np.zeros(4, np.int64))
    assert "source.read(index)" in eject(Workload(data=odd, ops=[], batch_size=2), "keras")
    with pytest.raises(ConfigError, match="`Twice` says nothing of itself"):
        eject(Workload(data=ROWS, ops=[Twice()], batch_size=2), "keras")
