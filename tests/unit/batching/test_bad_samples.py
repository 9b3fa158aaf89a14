from __future__ import annotations

import json
from pathlib import Path

import pytest

from autopipe.batching.bad_samples import BadSampleLedger
from autopipe.batching.kernel import BadSample
from autopipe.errors import DataError, DataWarning


def test_bad_samples_of_an_epoch_that_is_read_again_are_counted_once(tmp_path: Path) -> None:
    ledger = BadSampleLedger(str(tmp_path / "log"), 100)
    for _ in range(3):
        ledger.record(0, [BadSample(3, 4, "broken")])
    assert ledger.counts == {0: 1}


def test_bad_samples_are_counted_in_each_epoch_and_listed_once(tmp_path: Path) -> None:
    ledger = BadSampleLedger(str(tmp_path / "log"), 1000)
    for epoch in (0, 1):
        ledger.record(epoch, [BadSample(3, 4, "broken")])
        ledger.record(epoch, [])
    assert ledger.counts == {0: 1, 1: 1}
    assert [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()] == [
        {"index": 3, "replaced_by": 4, "message": "broken"}
    ]


def test_a_list_that_cannot_be_written_warns_once_and_stops_nothing(tmp_path: Path) -> None:
    ledger = BadSampleLedger(str(tmp_path / "gone" / "log"), 1000)
    with pytest.warns(DataWarning, match=r"cannot be listed in `.*/gone/log`: No such file"):
        ledger.record(0, [BadSample(3, 9, "broken")])
    ledger.record(0, [BadSample(4, 9, "broken")])  # another warning would be an error here
    assert ledger.counts == {0: 2}
    with pytest.raises(DataError, match=r"11 samples .* are bad.*`autopipe verify --files`"):
        ledger.record(0, [BadSample(number, 99, "broken") for number in range(11)])


@pytest.mark.parametrize(("samples", "tolerated"), [(10, 1), (100, 1), (1000, 10)])
def test_more_than_one_percent_is_too_many(tmp_path: Path, samples: int, tolerated: int) -> None:
    ledger = BadSampleLedger(str(tmp_path / "log"), samples)
    ledger.record(0, [BadSample(number, number + 1, "broken") for number in range(tolerated)])
    with pytest.raises(DataError, match=f"{tolerated + 1} samples"):
        ledger.record(0, [BadSample(99, 0, "broken")])
