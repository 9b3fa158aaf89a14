"""The public names, where they live and what importing them costs; and that no file of the package is too long."""

from __future__ import annotations

import ast
from pathlib import Path

import autopipe
from autopipe import registry
from tests.fakes.commands import python, succeeded

ROOT = Path(autopipe.__file__).parent
FILES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}


def test_type_checkers_and_python_import_the_same_names_from_the_same_modules() -> None:
    entries = [entry for group in autopipe._GROUPS for entry in registry.declared(group)]
    ours = [entry for entry in entries if entry.module.startswith("autopipe.")]
    extensions = {entry.name: entry.module.removeprefix("autopipe.") for entry in ours}
    (block,) = (node for node in ast.parse(FILES["__init__.py"]).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    checked = {name.name: str(node.module).removeprefix("autopipe.") for node in imports for name in node.names}
    found = {
        name: home
        for name, home in checked.items()
        if name in extensions or not home.startswith("extensions.")  # in a copy without some of them
    }
    assert found == {**autopipe._HOMES, **extensions}
    assert sorted(autopipe.__all__) == sorted([*autopipe._HOMES, "__version__"])
    assert {*autopipe.__all__, *extensions} <= {*dir(autopipe)}


def test_load_imports_neither_the_search_nor_a_framework() -> None:
    code = (
        "import sys, autopipe as ap\n"
        "assert not [name for name in sys.modules if name.startswith('autopipe.') and name != 'autopipe._version']\n"
        "ap.load\n"
        "print({'optuna', 'sqlalchemy', 'keras', 'tensorflow', 'jax', 'torch', 'pandas', 'rich'} & set(sys.modules))"
    )
    assert succeeded(python("-c", code)).stdout == "set()\n"


def test_no_file_of_the_package_has_more_than_600_lines() -> None:
    """A file is a topic that a reader wants whole, and no more (CONTRIBUTING.md)."""
    assert [path for path, text in FILES.items() if len(text.splitlines()) > 600] == []
