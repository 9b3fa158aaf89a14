"""A folder that plays /proc and /sys of another machine."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

Play: TypeAlias = Callable[[dict[str, str]], Path]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Write files by their path and return the root they lie under; more can be written later."""

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            file = tmp_path / "root" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path / "root"

    return write
