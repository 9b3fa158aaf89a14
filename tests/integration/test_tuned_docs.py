"""docs/retune.md: its Python runs. Its commands are `test_readme.py`'s, its recipes `test_retune_recipes.py`'s."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fakes.commands import ROOT, python, succeeded
from tests.fakes.profiles import of_this_machine

BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs" / "retune.md").read_text(), flags=re.M | re.S)


def _blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


@pytest.mark.slow
@pytest.mark.parametrize("code", _blocks("python"))
def test_the_python_runs_beside_an_artifact_that_fits(code: str, tmp_path: Path) -> None:
    of_this_machine(tmp_path)
    succeeded(python("-W", "error::UserWarning:autopipe", "-c", code, cwd=tmp_path))
