"""What reads files in threads is asked again where CPython 3.11 fails as two threads parse at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import called
from autopipe.pipeline.batching.datasets import batch_at
from tests.fakes.sources import Failing, Made


def test_a_call_is_made_again_once_and_for_this_failure_alone() -> None:
    assert called(Failing(max), 1, 2) == 2
    for failing in (Failing(max, calls=2), Failing(max, said="error return without exception set")):
        with pytest.raises(SystemError):
            called(failing, 1, 2)


def sample(index: int) -> tuple[Any, int]:
    return np.full((2, 2, 3), index, np.uint8), index


class Batches:
    """`dataset[i]` of a user whose reading fails once."""

    def __init__(self) -> None:
        self._read = Failing(lambda index: np.full((4, 2), index))

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return self._read(index)


@pytest.mark.parametrize("of_source", [True, False], ids=["source", "op"])
def test_samples_are_read_on(of_source: bool) -> None:
    read, flip = Failing(sample, calls=0), Failing(np.flipud, calls=0)
    workload = ap.Workload(data=Made(8, read), ops=[ap.Map(flip)], batch_size=4)
    with ap.build_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=2))) as loader:
        failing = read if of_source else flip
        failing.calls = 1
        assert sorted(int(label) for batch in loader.epoch(0) for label in batch[1]) == list(range(8))
        assert failing.calls < 0


def test_a_batch_of_a_dataset_is_read_again() -> None:
    assert batch_at(Batches(), 2, 3).tolist() == np.full((4, 2), 2).tolist()
