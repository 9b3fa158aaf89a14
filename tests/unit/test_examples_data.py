"""The demo sets of the examples: the same files each time, without a network. Integration tests train on them."""

from __future__ import annotations

import runpy
import socket
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "size", "count", "files"),
    [
        ("photos", {"per_class": 1}, 8, {".jpg": 8}),
        ("segmentation", {"count": 1}, 1, {".png": 2, ".csv": 1}),
        ("scenes", {"count": 1}, 1, {".tif": 2}),
        ("custom_source", {"per_class": 2}, 8, {".tar": 1}),
    ],
)
def test_a_demo_set_is_the_same_each_time_and_replaces_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str, size: Any, count: int, files: dict[str, int]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a demo set must not be downloaded")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    make: Any = runpy.run_path(str(EXAMPLES / example / "make_demo.py"))["make"]
    one, two = (tmp_path / f"{name}{'.tar' * (example == 'custom_source')}" for name in ("one", "two"))
    make(one, **{name: number + 1 for name, number in size.items()})
    assert [make(out, **size) for out in (one, two)] == [count, count]
    assert sorted(tmp_path.iterdir()) == [one, two]
    found, again = (
        {file.relative_to(out): file.read_bytes() for file in (out, *out.rglob("*")) if file.is_file()}
        for out in (one, two)
    )
    assert found == again
    names = [file.suffix or one.suffix for file in found]
    assert {suffix: names.count(suffix) for suffix in files} == files
