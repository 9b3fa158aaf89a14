"""docs/migrate.md: every op and source that it names can be made, and does what the Keras beside it does."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe.workload.op import Op

PAGE = Path(__file__).parents[2] / "docs" / "migrate.md"
SECTIONS = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
ROWS = [
    tuple(cell.strip() for cell in line.strip("| ").split(" | ", 1))
    for section in SECTIONS
    for line in section.splitlines()
    if line.startswith("| ") and "`ap." in line.rpartition(" | ")[2]
]
CODE = re.compile(r"`(ap\.[A-Za-z]+\(.*?\))`")


def function(image: Any, rng: Any = None) -> Any:
    return image


NAMES = {"ap": ap, "function": function, "height": 8, "width": 8}


def named(cell: str) -> list[ast.Call]:
    trees = [ast.parse(code, mode="eval").body for code in CODE.findall(cell)]
    return [tree for tree in trees if isinstance(tree, ast.Call)]


def made(cell: str) -> list[Any]:
    return [eval(code, NAMES) for code in CODE.findall(cell)]


def is_data(call: ast.Call) -> bool:
    return ast.unparse(call.func).removeprefix("ap.") in ("ImageFolder", "Table", "TFRecords")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
def test_every_row_names_ops_and_sources_with_arguments_that_they_take(row: tuple[str, str]) -> None:
    calls = named(row[1])
    assert calls, row
    for call in calls:
        of = getattr(ap, ast.unparse(call.func).removeprefix("ap."))
        if is_data(call):
            keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
            inspect.signature(of).bind(*map(ast.literal_eval, call.args), **keywords)
        else:
            assert isinstance(eval(ast.unparse(call), NAMES), Op)


GENERATOR = [row for row in ROWS if row[0].startswith("`ImageDataGenerator(")]


@pytest.mark.parametrize("row", GENERATOR, ids=lambda row: str(row[0]))
def test_an_argument_of_the_generator_becomes_the_op_beside_it(row: tuple[str, str]) -> None:
    arguments = eval(row[0].strip("`").replace("ImageDataGenerator", "dict"), {"function": function})
    wanted, found = made(row[1]), ap.from_image_data_generator(**arguments)
    assert wanted == found[: len(wanted)]
    assert {type(op) for op in found[len(wanted) :]} <= {ap.Cast}


def square_root(variance: Any) -> float:
    return float(np.sqrt(np.asarray(variance)).ravel()[0])


def upper(factor: Any) -> float:
    """Return the upper end of a factor that a layer's configuration gives as a number or a pair."""
    return float(factor[1]) if isinstance(factor, list | tuple) else float(factor)


RANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], Callable[[Any], Any]]] = {
    "Rescaling": (lambda c: (c["scale"], c["offset"]), lambda op: (op.scale, op.offset)),
    "Resizing": (lambda c: (c["height"], c["width"]), lambda op: (op.height, op.width)),
    "CenterCrop": (lambda c: (c["height"], c["width"]), lambda op: (op.height, op.width)),
    "Normalization": (lambda c: (c["mean"], square_root(c["variance"])), lambda op: (op.mean, op.std)),
    "CategoryEncoding": (lambda c: c["num_tokens"], lambda op: op.classes),
    "RandomCrop": (lambda c: (c["height"], c["width"]), lambda op: (op.height, op.width)),
    "RandomFlip": (
        lambda c: ("horizontal" in c["mode"], "vertical" in c["mode"]),
        lambda op: (op.horizontal, op.vertical),
    ),
    "RandomRotation": (lambda c: upper(c["factor"]) * 360, lambda op: op.rotation),
    "RandomTranslation": (lambda c: (upper(c["height_factor"]), upper(c["width_factor"])), lambda op: op.shift),
    "RandomZoom": (lambda c: (1 - upper(c["height_factor"]), 1 + upper(c["height_factor"])), lambda op: op.zoom),
    "RandomBrightness": (lambda c: upper(c["factor"]), lambda op: op.delta),
    "RandomContrast": (lambda c: (1 - upper(c["factor"]), 1 + upper(c["factor"])), lambda op: (op.lower, op.upper)),
    "RandomHue": (lambda c: upper(c["factor"]) / 2, lambda op: op.delta),
    "RandomSaturation": (
        lambda c: tuple(factor / (1 - factor) for factor in c["factor"]),
        lambda op: (op.lower, op.upper),
    ),
    "RandomGrayscale": (lambda c: c["factor"], lambda op: op.probability),
    "RandomGaussianBlur": (
        lambda c: (upper(c["factor"]), upper(c["kernel_size"]), *c["sigma"]),
        lambda op: (op.probability, op.size, *op.sigma),
    ),
    "RandomErasing": (lambda c: (upper(c["factor"]), *c["scale"]), lambda op: (op.probability, *op.area)),
    "MixUp": (lambda c: c["alpha"], lambda op: op.alpha),
    "CutMix": (lambda c: upper(c["factor"]), lambda op: op.alpha),
}
LAYERS = [row for row in ROWS if row[0].startswith("`keras.layers.")]


@pytest.mark.parametrize("row", LAYERS, ids=lambda row: str(row[0]))
def test_a_layer_of_keras_has_the_ranges_of_the_op_beside_it(row: tuple[str, str]) -> None:
    kind = row[0].removeprefix("`keras.layers.").partition("(")[0]
    if not hasattr(keras.layers, kind):
        pytest.skip(f"this Keras has no {kind}")
    layer = eval(row[0].strip("`"), {"keras": keras})
    of_layer, of_op = RANGES[kind]
    wanted, found = of_layer(layer.get_config()), of_op(made(row[1])[-1])
    assert np.allclose(np.asarray(wanted, float), np.asarray(found, float)), (wanted, found)


def test_all_that_are_asked_for_are_there() -> None:
    assert len(GENERATOR) == 10
    assert {row[0].removeprefix("`keras.layers.").partition("(")[0] for row in LAYERS} == set(RANGES)


class XRays(keras.utils.PyDataset):
    """Images of 12 significant bits, whose classes differ below the upper 8."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        for number in range(24):
            path = folder / f"class{number % 2}" / f"{number:02}.{'png' if number % 4 < 2 else 'tif'}"
            path.parent.mkdir(exist_ok=True)
            tissue = np.random.default_rng(number).integers(900, 1000, (7, 9), np.uint16)
            cv2.imwrite(str(path), cv2.resize(tissue, (40 + number, 50)) + 60 * (number % 2))
        self.paths = sorted(folder.glob("*/*"))

    def __len__(self) -> int:
        return len(self.paths) // 8

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        paths = self.paths[8 * index : 8 * index + 8]
        files = (cv2.imread(str(path), cv2.IMREAD_UNCHANGED) for path in paths)
        images = [cv2.resize(image, (16, 12), interpolation=cv2.INTER_AREA) for image in files if image is not None]
        return np.array(images, np.float32)[..., None] / 4095, np.array(
            [path.parent.name == "class1" for path in paths]
        )


@pytest.mark.parametrize(
    "loader", [ap.Threads(workers=2), ap.Processes(workers=2), ap.TfData(), ap.Resident(workers=2)]
)
def test_images_of_sixteen_bits_are_those_of_the_dataset_that_the_ops_replace(tmp_path: Path, loader: Any) -> None:
    dataset = XRays(tmp_path)
    ops = [ap.Decode(1, dtype="uint16"), ap.Resize(12, 16, "area"), ap.Rescale(1 / 4095)]
    workload = ap.Workload(
        data=ap.ImageFolder(tmp_path, label_mode="binary"), ops=ops, batch_size=8, shuffle=False, seed=0
    )
    with ap.build_loader(workload, ap.PipelineConfig(loader=loader, finish="host")) as made:
        batches = [tuple(map(np.array, batch)) for batch in made.epoch(0)]
    assert len(batches) == len(dataset) == 3
    for number, (x, y) in enumerate(batches):
        wanted, labels = dataset[number]
        np.testing.assert_array_equal(np.rint(x * 4095), np.rint(wanted * 4095))
        np.testing.assert_allclose(x, wanted, rtol=2e-7)  # it divides, and the op multiplies
        np.testing.assert_array_equal(y.reshape(-1), labels)
