from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autopipe.core.plain_code import names, packed
from autopipe.core.workload import Workload
from autopipe.data.table import Table
from autopipe.ops.custom import Map
from autopipe.ops.planner import make_plan

TEXT = "file;rooms;age;kind;day;price;trust\n1.png;1;20;old;3;1.5;0.5\n2.png;2;3;new;1;2;0.25\n"


def kept(value: Any) -> Any:
    """Return what can be compared: values with their dtypes."""
    if isinstance(value, dict):
        return {key: kept(part) for key, part in value.items()}
    array = np.asarray(value)
    return array.tolist(), array.dtype


@pytest.mark.parametrize(
    "settings",
    [
        {"label": "price", "features": ["rooms", "age"], "sample_weight": "trust"},
        {"label": "day", "label_mode": "class", "sample_weight": "trust"},
        {"label": "day", "label_mode": "number"},
        {"label": ["kind", "day"]},
        {"label": ["kind", "price"], "features": ["age"]},
        {"label": None, "features": ["age", "rooms"]},
    ],
    ids=str,
)
def test_plain_code_gives_the_columns_as_the_table_does(tmp_path: Path, settings: dict[str, Any]) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.png").write_bytes(f"file {number}".encode())
    (tmp_path / "houses.csv").write_text(TEXT)
    data = Table(tmp_path / "houses.csv", path="file", **settings)
    spec = make_plan(Workload(data=data, ops=[Map(len)], batch_size=2)).source  # these files are no images
    plain = data.plain_numpy(spec)
    assert plain.arguments == names(spec)
    lines = ["import csv", "from pathlib import Path", "import numpy as np", *plain.constants, plain.functions]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    columns = scope["samples"]()
    for index in range(2):
        row = dict(zip(plain.arguments, (column[index] for column in columns), strict=True))
        row[plain.arguments[0]] = Path(row[plain.arguments[0]]).read_bytes()
        found = eval(packed(spec), row)
        found, read = (value if isinstance(value, tuple) else (value,) for value in (found, data.read(index)))
        assert [kept(part) for part in found] == [kept(part) for part in read]
