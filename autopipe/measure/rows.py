"""A row of figures of a training: the model alone, the loader alone, both together, and what limits it.

`measure`, `check`, `diagnose` and the report show these. Several workloads, configurations or batch sizes are rows
beside each other. The batch size is a part of what is trained, so nothing here changes it or recommends one.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import pydantic

from autopipe.measure import bottleneck
from autopipe.measure import costs as cost_model
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import Measurement, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.values import Amount, Estimate, JsonObject, Positive, Value


class ImageForm(Value):
    """One way to keep the images of a part of the samples, with means over those that were looked at."""

    part: str  # its name in the samples
    name: str
    seconds_per_image: Positive  # processor time of one core that decodes the whole image
    bytes_per_image: Amount
    mean_error: Amount  # absolute difference from today's pixels, in levels of 0 to 255


class Formats(Value):
    """The forms of all parts of the samples that are encoded images."""

    schema_version: Literal[1] = 1
    samples: int = pydantic.Field(ge=1)  # that were looked at
    forms: tuple[ImageForm, ...] = pydantic.Field(min_length=1)  # of each part the first one as they are


class Row(Value):
    """The figures of a training, in images/s. None: not measured."""

    name: str  # of the workload, configuration or batch size
    model: Estimate | None = None  # alone, on a batch that is there already
    loader: Estimate | None = None  # alone, without a model
    together: Estimate | None = None
    limit: str | None = None  # what limits the training, in words
    failure: TrialFailure | None = None  # why a figure is missing
    # what `measure` knows besides
    batch_size: int | None = None  # over all devices together; None: the workload's own
    config: PipelineConfig | None = None  # how it is fed; None: not at all
    alone: Ceiling | None = None  # the parts by themselves
    both: Measurement | None = None
    formats: Formats | None = None  # in which its images could be kept
    without_model: tuple[Measurement, ...] = ()  # of a wrapped dataset, with some values of its parameters

    @classmethod
    def of(
        cls,
        name: str,
        alone: Ceiling | TrialFailure,
        both: Measurement | TrialFailure | None = None,
        config: PipelineConfig | None = None,
        loader: Estimate | None = None,
        **more: Any,
    ) -> Self:
        """Make the row of a training from what was measured of it, or from failures; `more` are other fields."""
        failure = next((each for each in (alone, both) if isinstance(each, TrialFailure)), None)
        found = cls(
            name=name,
            model=alone.model_images_per_second if isinstance(alone, Ceiling) else None,
            loader=loader,
            together=both.images_per_second if isinstance(both, Measurement) else None,
            failure=failure,
            config=config,
            alone=alone if isinstance(alone, Ceiling) else None,
            both=both if isinstance(both, Measurement) else None,
            **more,
        )
        if found.alone is None or found.together is None or config is None:
            return found
        limits, by_itself = cost_model.bounds(found.alone, config), None if loader is None else loader.value
        used = None if found.both is None else found.both.resources
        limit = bottleneck.bottleneck(limits, found.together.value, loader_alone=by_itself, used=used).sentence
        return found.model_copy(update={"limit": limit})

    @property
    def figures(self) -> JsonObject:
        return self.model_dump(mode="json", include={"name", "model", "loader", "together", "limit", "doubt"})

    @property
    def too_low(self) -> list[str]:
        """The parts that read less by themselves than both together, which cannot be: other load slowed them down."""
        together, parts = self.together, (("model", self.model), ("loader", self.loader))
        if together is None:
            return []
        return [name for name, rate in parts if rate is not None and rate.value < together.value]

    @pydantic.computed_field  # type: ignore[prop-decorator]  # mypy knows no property below a decorator
    @property
    def doubt(self) -> str | None:
        """Why figures contradict each other; None if they do not."""
        if not (low := self.too_low):
            return None
        parts = " and ".join(f"the {each} alone" for each in low)
        return f"{parts} read less than both together: measured beside other programs, or there is hardly a difference"
