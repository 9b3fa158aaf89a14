"""What a loader is given to do: where samples come from, what is done to them, and in which order they are wanted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from autopipe.core.config import ModelSetup
from autopipe.core.finish import Finish, Finishing
from autopipe.core.order import BatchOrder
from autopipe.core.plan import Step
from autopipe.core.sample import SampleSpec, Source

_AT_A_TIME = 8  # batches: one hand-over in eight costs little enough
_MOST_BYTES_AT_A_TIME = 1 << 22  # more than a processor's cache holds from one op to the next


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What any worker, thread or process, needs to make a sample. It pickles.

    Attributes:
        source: where samples are read; in another storage form, its samples have the first ops behind them.
        steps: what is done to each sample, in order.
        fixed_steps: how many of the first steps give the same result in every epoch; a cache may hold what they give.
        fixed_spec: the sample after these.
        spec: the sample after all steps: a row of the batch.
        seed: the workload's seed.
        on_bad_sample: see `Workload`.
        cached: the part of the samples, 0 to 1, that is kept in memory after the fixed steps.
        trace: the folder to which notes go of what is done when; None: nobody takes any.
    """

    source: Source
    steps: tuple[Step, ...]
    fixed_steps: int
    fixed_spec: SampleSpec
    spec: SampleSpec
    seed: int
    on_bad_sample: Literal["error", "skip"]
    cached: float = 0.0
    trace: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """Everything a loader needs besides its own knobs.

    Attributes:
        recipe: how samples are made.
        order: which samples make up each batch.
        finish: what is left to do to a batch on the device.
        bad_sample_log: the file that lists skipped samples.
        identity: returns a digest of what fixes the sequence of batches.
        setup: what of the configuration the model's speed depends on.
        finishing: finishes batches for whoever trains without a model of Keras.
    """

    recipe: Recipe
    order: BatchOrder
    finish: Finish
    bad_sample_log: str
    identity: Callable[[], str]
    finishing: Finishing
    setup: ModelSetup

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
