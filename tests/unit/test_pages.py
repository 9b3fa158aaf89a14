"""Pages and examples: what docs say of commands and files holds, and moved scripts train as before."""

import ast
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import autopipe as ap

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = ROOT / "docs" / "vocabulary.md"
MOST_TERMS = 25


def test_what_the_pages_at_the_top_lead_to_is_in_the_source_distribution() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    links = {link for page in ROOT.glob("*.md") for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())}
    folders = {link.partition("/")[0] for link in links if "/" in link}
    assert "docs" in folders
    assert {f"/{folder}" for folder in folders} <= set(settings["include"])


def _anchors(page: Path) -> set[str]:
    """Return how a page's headings are linked to on GitHub."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_of_a_page_leads_somewhere() -> None:
    extensions = ROOT / "autopipe" / "extensions"
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    pages += extensions.rglob("*.md")
    pages += [ROOT / "benchmarks" / "RESULTS.md", ROOT / "search_spaces" / "README.md"]
    broken = []
    for page in pages:
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not extensions.exists() and extensions in target.parents:  # a copy without any
                continue
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append(f"{page.name}: {link}")
    assert broken == []


def test_each_approved_text_is_compared_by_a_test() -> None:
    for file in (ROOT / "tests").rglob("approved/*.txt"):
        module, _, test = file.stem.partition("-")
        assert f"def test_{test}(" in (file.parents[1] / f"test_{module}.py").read_text(), file


VARIABLE = re.compile(r"\bAUTOPIPE_[A-Z]+(?:_[A-Z]+)*\b")


def documented() -> list[str]:
    table = (ROOT / "docs" / "reference.md").read_text().partition("## Environment variables")[2].partition("\n## ")[0]
    return re.findall(rf"^\| `({VARIABLE.pattern})` \|", table, re.MULTILINE)


def used() -> Iterator[str]:
    for folder in ("autopipe", "examples"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in (".py", ".sh", ".yaml", ".service"):
                yield from VARIABLE.findall(file.read_text())


def test_each_variable_is_documented_once_and_used() -> None:
    assert sorted(documented()) == sorted(set(used()))


def rows() -> list[list[str]]:
    lines = [line for line in VOCABULARY.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def defined(path: str) -> bool:
    """Tell whether a dotted path below `autopipe` is a class, function or method of a module."""
    *names, last = path.split(".")
    owner = names.pop() if names[-1][0].isupper() else None
    body = ast.parse(ROOT.joinpath("autopipe", *names).with_suffix(".py").read_text()).body
    if owner is not None:
        (body,) = [node.body for node in body if isinstance(node, ast.ClassDef) and node.name == owner]
    return any(isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == last for node in body)


def words() -> str:
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").glob("*.md") if page != VOCABULARY)]
    return "\n".join(path.read_text() for path in [*pages, *(ROOT / "autopipe").rglob("*.py")]).casefold()


def test_each_term_is_there_once_and_there_are_few() -> None:
    terms = [term for row in rows() for term in row[0].split(", ")]
    assert len(terms) == len(set(terms))
    assert 0 < len(rows()) <= MOST_TERMS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_term_is_at_home_where_the_page_says(row: list[str]) -> None:
    assert defined(row[2].strip("`")), row[2]


def test_every_term_is_used() -> None:
    text = words()
    assert not [term for row in rows() for term in row[0].split(", ") if not re.search(rf"\b{term}", text)]


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
