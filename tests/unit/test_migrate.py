"""docs/migrate.md: every op and source that it names can be made, and does what the Keras beside it does."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
