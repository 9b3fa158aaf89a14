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

PAGE = Path(__file__).parents[2] / "docs" / "migrate.md"
LINES = [
    line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "`ap." in line.rpartition(" | ")[2]
]
ROWS = {key.strip(): cell for key, cell in (line.strip("| ").split(" | ", 1) for line in LINES)}
GENERATOR = [key for key in ROWS if key.startswith("`ImageDataGenerator(")]
LAYERS = {key.removeprefix("`keras.layers.").partition("(")[0]: key for key in ROWS if key.startswith("`keras.layers.")}
CODE = re.compile(r"`(ap\.[A-Za-z]+\(.*?\))`")


def function(image: Any, rng: Any = None) -> Any:
    return image


def made(code: str) -> Any:
    return eval(code, {"ap": ap, "function": function, "height": 8, "width": 8})


@pytest.mark.parametrize("row", ROWS)
def test_every_row_names_ops_and_sources_with_arguments_that_they_take(row: str) -> None:
    assert CODE.findall(ROWS[row])
    for code in CODE.findall(ROWS[row]):
        call: Any = ast.parse(code, mode="eval").body
        name = ast.unparse(call.func).removeprefix("ap.")
        if name in ("ImageFolder", "Table", "TFRecords"):
            keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
            inspect.signature(getattr(ap, name)).bind(*map(ast.literal_eval, call.args), **keywords)
        else:
            assert isinstance(made(code), ap.Op)


@pytest.mark.parametrize("row", GENERATOR)
def test_an_argument_of_the_generator_becomes_the_op_beside_it(row: str) -> None:
    arguments = eval(row.strip("`").replace("ImageDataGenerator", "dict"), {"function": function})
    wanted, found = [made(code) for code in CODE.findall(ROWS[row])], ap.from_image_data_generator(**arguments)
    assert wanted == found[: len(wanted)]
    assert {type(op) for op in found[len(wanted) :]} <= {ap.Cast}


def upper(factor: Any) -> float:
    """Return the upper end of a factor that a layer's configuration gives as a number or a pair."""
    return float(factor[1]) if isinstance(factor, list | tuple) else float(factor)


def deviation(c: dict[str, Any]) -> Any:
    return np.sqrt(np.asarray(c["variance"])).ravel()[0]


def size(c: dict[str, Any]) -> tuple[int, int]:
    return c["height"], c["width"]


AXES = "horizontal", "vertical"
RANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], Callable[[Any], Any]]] = {
    "Rescaling": (lambda c: (c["scale"], c["offset"]), lambda op: (op.scale, op.offset)),
    "Resizing": (size, lambda op: (op.height, op.width)),
    "CenterCrop": (size, lambda op: (op.height, op.width)),
    "Normalization": (lambda c: (c["mean"], deviation(c)), lambda op: (op.mean, op.std)),
    "CategoryEncoding": (lambda c: c["num_tokens"], lambda op: op.classes),
    "RandomCrop": (size, lambda op: (op.height, op.width)),
    "RandomFlip": (lambda c: [axis in c["mode"] for axis in AXES], lambda op: (op.horizontal, op.vertical)),
    "RandomRotation": (lambda c: upper(c["factor"]) * 360, lambda op: op.rotation),
    "RandomTranslation": (lambda c: (upper(c["height_factor"]), upper(c["width_factor"])), lambda op: op.shift),
    "RandomZoom": (lambda c: (1 - upper(c["height_factor"]), 1 + upper(c["height_factor"])), lambda op: op.zoom),
    "RandomBrightness": (lambda c: upper(c["factor"]), lambda op: op.delta),
    "RandomContrast": (lambda c: (1 - upper(c["factor"]), 1 + upper(c["factor"])), lambda op: (op.lower, op.upper)),
    "RandomHue": (lambda c: upper(c["factor"]) / 2, lambda op: op.delta),
    "RandomSaturation": (lambda c: [each / (1 - each) for each in c["factor"]], lambda op: (op.lower, op.upper)),
    "RandomGrayscale": (lambda c: c["factor"], lambda op: op.probability),
    "RandomGaussianBlur": (
        lambda c: (upper(c["factor"]), upper(c["kernel_size"]), *c["sigma"]),
        lambda op: (op.probability, op.size, *op.sigma),
    ),
    "RandomErasing": (lambda c: (upper(c["factor"]), *c["scale"]), lambda op: (op.probability, *op.area)),
    "MixUp": (lambda c: c["alpha"], lambda op: op.alpha),
    "CutMix": (lambda c: upper(c["factor"]), lambda op: op.alpha),
}


@pytest.mark.parametrize("kind", RANGES)
def test_a_layer_of_keras_has_the_ranges_of_the_op_beside_it(kind: str) -> None:
    if not hasattr(keras.layers, kind):
        pytest.skip(f"this Keras has no {kind}")
    layer = eval(LAYERS[kind].strip("`"), {"keras": keras})
    of_layer, of_op = RANGES[kind]
    wanted, found = of_layer(layer.get_config()), of_op(made(CODE.findall(ROWS[LAYERS[kind]])[-1]))
    assert np.allclose(np.asarray(wanted, float), np.asarray(found, float)), (wanted, found)


def test_all_that_are_asked_for_are_there() -> None:
    assert (len(ROWS), len(GENERATOR), [*LAYERS]) == (len(LINES), 10, [*RANGES])
