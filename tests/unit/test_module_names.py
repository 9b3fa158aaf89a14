"""A module is named after what it holds, so its name says which one is meant, without its package."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import autopipe

PACKAGE = Path(autopipe.__file__).parent
COMMANDS = PACKAGE / "cli" / "commands"
EXCEPTIONS: dict[str, str] = {}
"""Names that several modules have, each with the reason. Commands are apart: `cli.main` finds them by their names."""


def twice() -> dict[str, list[str]]:
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name != "__init__.py" and path.parent != COMMANDS:
            found[path.stem].append(path.relative_to(PACKAGE).as_posix())
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_two_modules_have_one_name() -> None:
    assert {name: paths for name, paths in twice().items() if name not in EXCEPTIONS} == {}


def test_every_exception_is_still_one() -> None:
    assert EXCEPTIONS.keys() <= twice().keys()
