"""A look at every sample, by sources that are played by the test: nothing here waits for a clock."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autopipe.artifact.verifying import BadFile, inspect
from autopipe.errors import DataError
from autopipe.pipeline.storage.form import Conversion
from autopipe.workload.ops import custom, planner
from autopipe.workload.workload import Workload

COUNT = 1000


class Played:
    """Samples of which some are bad; counts those that were read."""

    def __init__(self) -> None:
        self.bad: set[int] = set()
        self.gone: int | None = None
        self.read_once: set[int] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return COUNT

    def name(self, index: int) -> str:
        return f"/played/{index}.jpg"

    def digest(self) -> str:
        return "played"

    def read(self, index: int) -> NDArray[np.uint8]:
        with self._lock:
            self.read_once.add(index)
        if index in self.bad:
            raise OSError("it is torn")
        if index == self.gone:
            raise DataError("The connection is gone.")
        return np.full((2, 2, 3), index % 256, np.uint8)


@pytest.fixture
def source() -> Played:
    return Played()


def conversion(source: Played, *ops: Any) -> Conversion:
    workload = Workload(data=source, ops=ops, batch_size=4)
    plan = planner.make_plan(workload)
    source.read_once.clear()
    return Conversion.of(workload, plan, len(plan.prefix))


def test_every_sample_is_looked_at_and_each_bad_one_is_named_with_its_reason(source: Played, tmp_path: Path) -> None:
    def refuse(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if image[0, 0, 0] == 7:
            raise ValueError("no sevens")
        return image

    looked = conversion(source, custom.Map(refuse))
    source.bad = {70, 999}
    found = inspect(looked, tmp_path / "journal", workers=3)
    assert source.read_once == set(range(COUNT))
    assert (found.samples, found.resumed) == (COUNT, 0)
    assert [each.index for each in found.bad] == [7, 70, 263, 519, 775, 999]
    assert found.bad[1] == BadFile(
        index=70, name="/played/70.jpg", reason="sample 70 (/played/70.jpg) cannot be read: OSError: it is torn"
    )
    assert "no sevens" in found.bad[0].reason
    assert not (tmp_path / "journal").exists()


def test_a_stopped_look_goes_on_where_it_was_and_looks_at_bad_samples_again(source: Played, tmp_path: Path) -> None:
    journal = tmp_path / "folder" / "journal"
    looked = conversion(source)
    source.bad, source.gone = {70}, 500
    with pytest.raises(DataError, match="connection is gone"):
        inspect(looked, journal, workers=1)
    source.read_once.clear()
    source.gone = None
    said: list[tuple[int, int]] = []
    found = inspect(looked, journal, workers=1, on_progress=lambda done, count: said.append((done, count)))
    assert (found.resumed, [each.index for each in found.bad]) == (384, [70])  # seven times 64, but for those about 70
    assert source.read_once == {*range(64, 128), *range(448, COUNT)}
    assert said[0][0] > 384
    assert said[-1] == (COUNT, COUNT)


def test_half_a_line_of_a_look_that_was_killed_does_no_harm(source: Played, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text("0;\n64")
    assert inspect(conversion(source), journal, workers=1).resumed == 64
    assert source.read_once == set(range(64, COUNT))


def test_a_look_goes_on_without_a_journal(source: Played, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    found = inspect(conversion(source), tmp_path / "file" / "journal", workers=1)
    assert (found.samples, found.bad) == (COUNT, ())
    assert "cannot be kept" in caplog.text
