"""A row of figures of a training: the model alone, the loader alone, both together, and what limits it.

Several workloads, artifacts or batch sizes are rows beside each other. The batch size is a part of what is trained, so
nothing here changes it or recommends one.
"""

from __future__ import annotations

from collections.abc import Sequence

import pydantic

from autopipe.measure import bottleneck
from autopipe.measure import costs as cost_model
from autopipe.measure.facts import Ceiling
from autopipe.measure.formats import Formats
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.values import Estimate, JsonObject, Value


class Row(Value):
    """A training, measured in parts and as a whole. Rates are images/s; None: not measured."""

    name: str  # of the workload, artifact or batch size
    batch_size: int | None = None  # over all devices together; None: the workload's own
    config: PipelineConfig | None = None  # how it is fed; None: not at all
    alone: Ceiling | TrialFailure  # the parts by themselves
    both: Measurement | TrialFailure | None = None  # None if only the parts were asked for
    formats: Formats | None = None  # in which its images could be kept
    without_model: tuple[Measurement, ...] = ()  # of a wrapped dataset, with some values of its parameters

    @pydantic.computed_field  # type: ignore[prop-decorator]  # mypy knows no property below a decorator
    @property
    def model(self) -> Estimate | None:
        """The rate of the model alone."""
        return self.alone.model_images_per_second if isinstance(self.alone, Ceiling) else None

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as above
    @property
    def loader(self) -> Estimate | None:
        """The rate of the loader alone."""
        return self.alone.loader_images_per_second if isinstance(self.alone, Ceiling) else None

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as above
    @property
    def together(self) -> Estimate | None:
        """The rate of the training."""
        return self.both.images_per_second if isinstance(self.both, Measurement) else None

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as above
    @property
    def limit(self) -> str | None:
        """What limits the training, in words; None if it was not measured."""
        if self.together is None or self.config is None or not isinstance(self.alone, Ceiling):
            return None
        return bottleneck.bottleneck(cost_model.bounds(self.alone, self.config), self.together.value).sentence

    @property
    def failure(self) -> TrialFailure | None:
        """Why a figure is missing."""
        return next((each for each in (self.alone, self.both) if isinstance(each, TrialFailure)), None)


def by_batch_size(runner: TrialRunner, setup: ModelSetup, batch_size: int, sizes: Sequence[int]) -> tuple[Row, ...]:
    """Measure the model alone at these sizes, in two rounds, of which the faster reading counts; the workload has
    `batch_size`.

    Memory is that of the first round, which goes from the smallest to the largest: a process keeps what it has taken.
    After a size for which memory is too small, larger ones are not tried.
    """
    found: dict[int, Ceiling | TrialFailure] = {}
    full: int | None = None
    for size in sorted(set(sizes)):
        if full is not None:
            message = f"not tried, because a batch of {full} takes too much memory"
            found[size] = TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.WARM_UP, message=message)
            continue
        found[size] = answer = _alone(runner, setup, size, resources=True)
        if isinstance(answer, TrialFailure) and answer.kind is FailureKind.OUT_OF_MEMORY:
            full = size
    for size, first in found.items():
        again = _alone(runner, setup, size, again=True) if isinstance(first, Ceiling) else first
        if isinstance(again, Ceiling) and isinstance(first, Ceiling):  # other load can only slow a model down
            faster = max(first, again, key=lambda each: each.model_images_per_second.value)
            found[size] = faster.model_copy(update={"resources": first.resources})
    named = {size: f"batch {size}{' (own)' if size == batch_size else ''}" for size in found}
    return tuple(Row(name=named[size], batch_size=size, alone=answer) for size, answer in found.items())


def _alone(
    runner: TrialRunner, setup: ModelSetup, size: int, *, resources: bool = False, again: bool = False
) -> Ceiling | TrialFailure:
    options: JsonObject = {"model_only": True, "samples": size, "resources": resources, "again": again}
    return runner.ceiling(setup, options)
