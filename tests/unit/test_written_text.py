"""Text is written as UTF-8, whatever the user's locale: a folder's name may hold any letter."""

from __future__ import annotations

import ast
from pathlib import Path

import autopipe

PACKAGE = Path(autopipe.__file__).parent


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
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and leaves_it_to_the_locale(node)
    ]
    assert found == []
