"""What trials of one session leave for the next one."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe.hardware import machine
from autopipe.measure.session import TrialSession
from autopipe.values import JsonObject
from tests.fakes.reports import Told


class Counted:
    """Samples that count their readings."""

    def __init__(self) -> None:
        self.reads = 0

    def __len__(self) -> int:
        return 64

    def read(self, index: int) -> tuple[Any, int]:
        self.reads += 1
        return np.full((4, 4, 3), index, np.uint8), index % 2


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
    made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


SHORT: JsonObject = {"min_seconds": 0.02, "max_seconds": 0.05, "page_cache": "warm"}
FIRST = ap.PipelineConfig(loader=ap.Threads(workers=1), keep="memory")


@pytest.mark.parametrize(
    ("then", "small", "anew"),
    [
        (FIRST, True, False),
        (FIRST.model_copy(update={"loader": ap.Threads(workers=2)}), True, False),
        (FIRST.model_copy(update={"keep": "memory:50%"}), True, True),
        (FIRST, False, True),
    ],
)
def test_a_trial_finds_the_cache_of_the_one_before_full(
    then: ap.PipelineConfig, small: bool, anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it keeps other samples, or others could miss the memory: then what that one took is free before it."""
    data = Counted()
    with contextlib.closing(TrialSession(ap.Workload(data=data, ops=[], batch_size=8, model=model))) as session:
        if not small:
            monkeypatch.setattr(
                machine, "detect_memory", lambda: machine.Memory(usable_bytes=10**9, available_bytes=20_000)
            )
        first = session.measure(FIRST, SHORT, Told())
        reads = data.reads
        second = session.measure(then, SHORT, Told())
    assert reads >= 64
    assert (data.reads > reads) == anew
    assert first.cache_fill_seconds is not None
    assert (second.cache_fill_seconds == first.cache_fill_seconds) == (not anew)
