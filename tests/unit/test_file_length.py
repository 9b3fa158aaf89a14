"""A file is a topic that a reader wants whole, and no more (CONTRIBUTING.md)."""

from __future__ import annotations

from pathlib import Path

import autopipe


def test_no_file_of_the_package_has_more_than_600_lines() -> None:
    files = Path(autopipe.__file__).parent.rglob("*.py")
    lengths = {str(path): len(path.read_text("utf-8").splitlines()) for path in files}
    assert {path: length for path, length in lengths.items() if length > 600} == {}
