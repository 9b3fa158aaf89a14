"""examples/branches: a model that places its own branches trains through the feed as on one device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fakes.commands import ROOT, python, succeeded


@pytest.mark.slow
def test_branches_stay_where_the_model_puts_them_and_train_the_same(tmp_path: Path) -> None:
    done = succeeded(python(ROOT / "examples" / "branches" / "train.py", cwd=tmp_path, backend="tensorflow"))
    rows = re.findall(r"^(.*): [\d,]+ images/s, loss (\S+), coarse branch on (\S+)$", done.stdout, re.MULTILINE)
    assert [(name, where) for name, _, where in rows] == [
        ("one device", "CPU:0"),
        ("branches on two", "CPU:1"),
        ("data parallel on two", "both"),
    ]
    assert len({round(float(loss), 3) for _, loss, _ in rows}) == 1
