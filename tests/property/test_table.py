"""Any CSV file gives samples or a DataError, never another exception."""

from __future__ import annotations

import contextlib
import csv
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autopipe.errors import DataError
from autopipe.workload.data.table import Table

per_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
LABELS = st.text(min_size=1, max_size=8).map(str.strip).filter(bool).filter(lambda text: "\0" not in text)


@per_file
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_refused_or_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(b"path,label\n" + content)
    with contextlib.suppress(DataError):
        Table(tmp_path / "a.csv")


@per_file
@given(st.lists(LABELS, min_size=1, max_size=6))
def test_labels_come_back(tmp_path: Path, labels: list[str]) -> None:
    (tmp_path / "1.jpg").write_bytes(b"1")
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("path", "label"), *(("1.jpg", label) for label in labels)])
    data = Table(tmp_path / "a.csv")
    found = [data.read(i)[1] for i in range(len(data))]  # type: ignore[index]  # a pair, because there is a label
    if data.classes is None:
        assert [float(label) for label in labels] == [float(value) for value in found]
    else:
        assert labels == [data.classes[number] for number in found]
