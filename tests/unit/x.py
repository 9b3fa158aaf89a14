"""What must be known of a plugin it says itself: nobody else knows it by its name, and few import it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import autopipe
from autopipe.pipeline.config import LOADERS, STORAGES

PACKAGE = Path(autopipe.__file__).parent


def strategies() -> Iterator[tuple[str, str]]:
    """Yield the names of device strategies with their modules, which import frameworks when they are imported."""
    for path in (PACKAGE / "pipeline" / "devices").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and {"DeviceStrategy", "SharingStrategy"} & {
                base.id for base in node.bases if isinstance(base, ast.Name)
            }:
                yield node.name, f"autopipe.pipeline.devices.{path.stem}"


NAMES = {
    "extensions": {path.parent.name for path in (PACKAGE / "extensions").glob("*/__init__.py")},
    "pipeline/loaders": {*LOADERS},
    "pipeline/storage": {*STORAGES},
    "workload/ops": {name for name, home in autopipe._HOMES.items() if home.startswith("workload.ops.")},
    "workload/data": {name for name, home in autopipe._HOMES.items() if home.startswith("workload.data.")},
    "pipeline/devices": dict(strategies()).keys() - {"SharingStrategy", "SingleDevice"},
}
OTHER_THINGS = {
    "grain": "Grain itself, whose datasets are batches of users' own code",
    "remote": "what a source is, if its samples are behind a URL",
    "scale": "what `Rescale` multiplies by",
    "keras": "Keras itself: its package, its version, its modules",
    "wrapped": "the key of a description, and the prefix of a wrapped dataset's parameters",
}
ELSEWHERE = {
    ("pipeline/devices/feed.py", "diagnose"): "a method of loaders",
    ("measure/bench.py", "resident"): "the identity of a loader that repeats one batch",
    ("workload/sample.py", "array"): "a field's kind",
    ("workload/data/arrays.py", "array"): "a key of what Arrays pickles",
    ("workload/data/paths.py", "tfrecord"): "the folder of the record index",
    ("frameworks/tfdata.py", "Map"): "a step of tf.data",
}
"""Literals that are another thing of the same name."""
USERS = {
    "search/measurer.py": "the baselines: what people have without autopipe",
    "api/measuring.py": "what is measured where nothing is set",
    "measure/description.py": "the loader that shows what an image costs",
    "measure/formats.py": "the op whose time is asked for each format",
    "measure/verify.py": "the reference that the others are compared with",
    "pipeline/eject/written.py": "the ops that plain tf.data does together or need not do",
    "pipeline/storage/form.py": "the read of a part of an array that lies in a file",
    "pipeline/storage/tfrecord.py": "the frames of the records that it writes, which a source of such files reads",
    "pipeline/eject/module.py": "one loader's settings as plain code, and which workloads Keras's own reader can feed",
    "reports/verdict.py": "the loader that is the nearest to what people write",
    "artifact/reference.py": "the workload of `--images`",
    "artifact/verifying.py": "the loader whose workers share a dataset, as Keras's own threads do",
}
"""Modules that import a plugin because they use it, not to know something of it."""


@functools.cache
def modules() -> dict[str, str]:
    """Return the text of the package's modules that are no list of public names."""
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]
    return {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in paths}


@functools.cache
def literals(where: str) -> set[str]:
    """Return the strings of a module that are no docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings, found = set[int](), set[str]()
    for node in ast.walk(ast.parse(modules()[where])):  # a definition comes before what is in it
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and id(node) not in docstrings:
                found.add(node.value)
        elif isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr):
            docstrings.add(id(node.body[0].value))
    return found


def plugin_modules() -> Mapping[str, str]:
    """Return the modules that hold a plugin, with their kind."""
    found = {f"autopipe.{home}": "/".join(home.split(".")[:2]) for home in autopipe._HOMES.values()}
    found = {module: kind for module, kind in found.items() if kind in ("workload/ops", "workload/data")}
    found |= {module: "pipeline/devices" for name, module in strategies() if name in NAMES["pipeline/devices"]}
    for kind, registry in (("pipeline/loaders", LOADERS), ("pipeline/storage", STORAGES)):
        for name in registry:
            plugin = registry[name]
            found[plugin.__module__ if isinstance(plugin, type) else type(plugin).__module__] = kind
    return found


@functools.cache
def users() -> dict[str, set[str]]:
    """Return the modules that import a plugin of another package, with what they import."""
    plugins, found = plugin_modules(), {}
    for where, text in modules().items():
        if where.startswith("extensions/"):  # which may use the whole core
            continue
        imported = set(re.findall(r"^\s*from (\S+) import", text, re.MULTILINE))
        others = {each for each in imported & plugins.keys() if not where.startswith(f"{plugins[each]}/")}
        if others:
            found[where] = others
    return found


@pytest.mark.parametrize("kind", NAMES)
def test_no_plugin_is_known_by_its_name(kind: str) -> None:
    names = NAMES[kind] - OTHER_THINGS.keys()
    assert names or kind == "extensions"  # of which a copy may have none
    quoted = re.compile(rf"""["'}}]({"|".join(names)})["'{{]""")  # also as a part of an f-string
    found = {
        (where, literal)
        for where, text in modules().items()
        if not where.startswith((f"{kind}/", "extensions/")) and quoted.search(text)
        for literal in literals(where)
        if literal in names
    }
    assert found - ELSEWHERE.keys() == set()


def test_a_plugin_is_imported_only_where_it_is_used() -> None:
    assert {where: others for where, others in users().items() if where not in USERS} == {}


def test_every_exception_is_still_one() -> None:
    for where, text in ELSEWHERE:
        assert text in literals(where), where
    assert USERS.keys() <= users().keys()
