"""What must be known of a plugin it says itself: nobody else knows it by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import autopipe
from autopipe.core.config import LOADERS, STORAGES

PACKAGE = Path(autopipe.__file__).parent
OTHER_THINGS = {
    "keras": "Keras itself: its package, its version, its modules",
    "array": "a field's kind in core/sample.py, a key of what Arrays pickles",
    "tfrecord": "the folder of the record index in data/records.py",
    "wrapped": "the key of a description, and the prefix of a wrapped dataset's parameters",
}
ELSEWHERE = {
    "array": {"core/sample.py", "data/arrays.py"},
    "tfrecord": {"data/records.py"},
}


def literals(path: Path) -> Iterator[str]:
    """Yield the strings of a module that are no docstrings."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_no_loader_and_no_storage_form_is_known_by_its_name() -> None:
    names = {*LOADERS, *STORAGES} - {"keras", "wrapped", "files"}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        where = path.relative_to(PACKAGE).as_posix()
        if where.startswith(("loaders/", "storage/")) or path.name == "__init__.py":
            continue
        found |= {f"{where}: {text!r}" for text in literals(path) if text in names - _allowed(where)}
    assert not found


def _allowed(where: str) -> set[str]:
    return {name for name, places in ELSEWHERE.items() if where in places}


def test_every_exception_is_still_one() -> None:
    for name, places in ELSEWHERE.items():
        assert name in OTHER_THINGS
        for place in places:
            assert name in set(literals(PACKAGE / place)), place
