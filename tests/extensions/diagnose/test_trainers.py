"""Loops that a package's trainer runs, which makes the loader itself: the option to change is the trainer's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autopipe.extensions.diagnose import loop, steps
from autopipe.extensions.diagnose.loop import Loop
from autopipe.extensions.diagnose.steps import Look
from autopipe.extensions.diagnose.watched import Watched, sentence
from autopipe.measure.outcome import Resources
from tests.fakes.loader import Clock

DataLoader = type("DataLoader", (), {"__module__": "torch.utils.data.dataloader", "num_workers": 0})
BATCH = (np.zeros((4, 2)), np.arange(4))


def trained(clock: Clock, data: Any) -> Watched:
    """Train for three epochs, in which three quarters of the time wait for data."""
    seen = Loop(Look(), data, "train.py:7")
    for _ in range(3):
        seen.pass_began()
        for _ in range(10):
            seen.asked()
            clock.now += 3.0
            seen.came(BATCH)
            clock.now += 1.0
        seen.asked()
    found = seen.ended()
    assert found is not None
    return found.model_copy(update={"resources": Resources(), "cores": 2.0})  # whatever this machine does and has


@pytest.mark.parametrize(
    ("module", "data", "option"),
    [
        ("transformers.trainer", DataLoader(), "dataloader_num_workers= of TrainingArguments, 0 now"),
        ("ultralytics.engine.trainer", DataLoader(), "workers= of `train`, 0 now"),
        ("mine", DataLoader(), "its num_workers=, 0 now"),
        ("transformers.trainer", iter([BATCH]), "a loader that reads ahead"),
    ],
)
def test_the_next_step_is_the_option_of_what_makes_the_loader(
    module: str, data: Any, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {"__name__": module, "trained": trained}
    exec("def train(*given): return trained(*given)", names)
    clock = Clock()
    monkeypatch.setattr(loop, "StepClock", lambda: steps.StepClock(clock))
    assert f"The next step is {option}" in sentence(names["train"](clock, data))
