"""The model's own time of a step, in lines."""

from __future__ import annotations

from autopipe.core.step_time import StepTime
from autopipe.reports import wording


def lines(found: StepTime) -> list[str]:
    """Return what `autopipe measure --mode` prints."""
    took = found.step_seconds
    interval = f"{wording.milliseconds(took.low)} to {wording.milliseconds(took.high)}"
    return [
        f"step        {wording.milliseconds(took.value)} ({interval}) for {found.batch_size} images: {found.mode}",
        f"images/s    {wording.rate(found.images_per_second)} on a batch that is there, without a loader",
        f"first call  {wording.seconds(found.first_call_seconds)}: it traces and compiles, and then does a step",
    ]
