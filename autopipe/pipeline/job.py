"""What a loader is given to do: where samples come from, what is done to them, and in which order they are wanted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from autopipe.pipeline.config import ModelSetup
from autopipe.workload.finish import Finish, Finishing
from autopipe.workload.order import BatchOrder
from autopipe.workload.plan import Step
from autopipe.workload.sample import SampleSpec, Source

_AT_A_TIME = 8  # batches: one hand-over in eight costs little enough
_MOST_BYTES_AT_A_TIME = 1 << 22  # more than a processor's cache holds from one op to the next


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What any worker, thread or process, needs to make a sample. It pickles."""

    source: Source  # where samples are read; in another storage form, its samples have the first ops behind them
    steps: tuple[Step, ...]  # what is done to each sample, in order
    fixed_steps: int  # how many of the first steps give the same result in every epoch; a cache may hold what they give
    fixed_spec: SampleSpec  # the sample after these
    spec: SampleSpec  # the sample after all steps: a row of the batch
    seed: int  # the workload's seed
    on_bad_sample: Literal["error", "skip"]  # see `Workload`
    cached: float = 0.0  # the part of the samples, 0 to 1, that is kept in memory after the fixed steps
    trace: str | None = None  # the folder to which notes go of what is done when; None: nobody takes any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """Everything a loader needs besides its own knobs."""

    recipe: Recipe  # how samples are made
    order: BatchOrder  # which samples make up each batch
    finish: Finish  # what is left to do to a batch on the device
    bad_sample_log: str  # the file that lists skipped samples
    identity: Callable[[], str]  # returns a digest of what fixes the sequence of batches
    finishing: Finishing  # finishes batches for whoever trains without a model of Keras
    setup: ModelSetup  # what of the configuration the model's speed depends on

    def at_a_time(self, queue_size: int) -> int:
        """Return how many batches a worker may make in one go, where they are small: what one call takes, or a few.

        The interpreter's lock changes hands at each hand-over, which takes longer than to make a small batch.
        """
        spec = self.recipe.spec
        if not spec.is_fixed or self.recipe.trace is not None:
            return 1
        return at_a_time(spec.bytes * self.order.batch_size, queue_size, self.setup)


def at_a_time(batch_bytes: int, queue_size: int, setup: ModelSetup) -> int:
    """Return how many batches of so many bytes a worker may make in one go, of which so many may wait."""
    together, fits = setup.steps_per_execution, _MOST_BYTES_AT_A_TIME // max(1, batch_bytes)
    return max(1, min(together if together > 1 else _AT_A_TIME, queue_size, fits))
