"""The public names, where they live and what importing them costs; and the package as text: no file is too long, and
nothing is written in the encoding of the user's locale.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import autopipe
from autopipe import registry

ROOT = Path(autopipe.__file__).parent


def _imports_for_type_checkers() -> dict[str, str]:
    (block,) = (node for node in ast.parse((ROOT / "__init__.py").read_text()).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module).removeprefix("autopipe.") for node in imports for name in node.names}


def _of_extensions() -> dict[str, str]:
    found = [entry for group in autopipe._GROUPS for entry in registry.declared(group)]
    ours = [entry for entry in found if entry.module.startswith("autopipe.")]
    return {entry.name: entry.module.removeprefix("autopipe.") for entry in ours}


def test_type_checkers_and_python_import_the_same_names_from_the_same_modules() -> None:
    extensions = _of_extensions()
    found = {
        name: home
        for name, home in _imports_for_type_checkers().items()
        if name in extensions or not home.startswith("extensions.")  # in a copy without some of them
    }
    assert found == {**autopipe._HOMES, **extensions}
    assert sorted(autopipe.__all__) == sorted([*autopipe._HOMES, "__version__"])
    assert {*autopipe.__all__, *extensions} <= {*dir(autopipe)}


def test_every_public_name_is_defined_where_it_is_said_to_be() -> None:
    for home in {*autopipe._HOMES.values()}:
        tree = ast.parse(ROOT.joinpath(*home.split(".")).with_suffix(".py").read_text())
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert {name for name, where in autopipe._HOMES.items() if where == home} <= defined, home


def test_load_imports_neither_the_search_nor_a_framework() -> None:
    code = (
        "import sys, autopipe as ap\n"
        "assert not [name for name in sys.modules if name.startswith('autopipe.') and name != 'autopipe._version']\n"
        "ap.load\n"
        "print({'optuna', 'sqlalchemy', 'keras', 'tensorflow', 'jax', 'torch', 'pandas', 'rich'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


FILES = sorted(ROOT.rglob("*.py"))


def test_no_file_of_the_package_has_more_than_600_lines() -> None:
    """A file is a topic that a reader wants whole, and no more (CONTRIBUTING.md)."""
    lengths = {path.name: len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > 600} == {}


def leaves_it_to_the_locale(call: ast.Call) -> bool:
    """Tell whether a call writes text in an encoding that it does not name."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if any(keyword.arg == "encoding" for keyword in call.keywords):
        return False
    mode = "".join(
        each.value for each in call.args[:2] if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )
    return name == "write_text" or (name == "open" and "b" not in mode and not set("wax+").isdisjoint(mode))


def test_no_text_is_written_in_the_encoding_of_the_locale() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path in FILES
        if re.search(r"write_text|\bopen\(", text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and leaves_it_to_the_locale(node)
    ]
    assert found == []
