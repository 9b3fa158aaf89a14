"""Ways in which a JPEG file is damaged."""

from __future__ import annotations

from pathlib import Path


def truncate(path: Path) -> None:
    """Cut off the end."""
    path.write_bytes(path.read_bytes()[:-200])


def empty(path: Path) -> None:
    """Leave no byte."""
    path.write_bytes(b"")


def corrupt(path: Path) -> None:
    """Leave what begins and ends like a JPEG, and holds no image."""
    path.write_bytes(b"\xff\xd8" + b"no image at all" * 20 + b"\xff\xd9")
