"""Files stay below 300 lines (CONTRIBUTING.md)."""

from __future__ import annotations

from pathlib import Path

import autopipe


def test_no_file_of_the_package_has_300_lines() -> None:
    files = Path(autopipe.__file__).parent.rglob("*.py")
    lengths = {str(path): len(path.read_text("utf-8").splitlines()) for path in files}
    assert {path: length for path, length in lengths.items() if length >= 300} == {}
