"""How the model's own time of a step is told."""

from __future__ import annotations

from autopipe.core.mode import Mode
from autopipe.core.outcome import StepTime
from autopipe.core.value import Estimate
from autopipe.reports import step_lines


def test_a_step_is_told_warm_with_the_first_call_apart() -> None:
    found = StepTime(
        mode=Mode.PREDICT,
        batch_size=16,
        step_seconds=Estimate(value=0.004, low=0.0039, high=0.0042),
        first_call_seconds=2.5,
        backend="jax",
    )
    assert StepTime.model_validate_json(found.model_dump_json()) == found
    assert step_lines.lines(found) == [
        "step        4 ms (3.9 ms to 4.2 ms) for 16 images: predict",
        "images/s    4,000 on a batch that is there, without a loader",
        "first call  2.5 s: it traces and compiles, and then does a step",
    ]
