"""The request of a tune, as its profile keeps it; a part of the artefact, see `autopipe.artifact.schema`."""

from __future__ import annotations

from typing import Literal

import pydantic

from autopipe.values import Value


class SimulatedStep(Value):
    """A simulated accelerator in the place of the model.

    Attributes:
        step_seconds: of a step of `batch_size` samples, or of any step.
        batch_size: None if a step takes the same time with any size.
    """

    step_seconds: float = pydantic.Field(gt=0)
    batch_size: int | None = pydantic.Field(default=None, ge=1)

    @property
    def text(self) -> str:
        milliseconds = f"{1e3 * self.step_seconds:g}ms"
        return milliseconds if self.batch_size is None else f"{milliseconds}/{self.batch_size}"


class Request(Value):
    """The settings of the tune that made a profile, which a retune repeats.

    Attributes:
        space: a shipped search space, or a file.
        only: allowed values of parameters.
        trials: the most trials.
        budget_seconds: the most seconds; None: no limit.
        max_memory_bytes: of the training.
        max_workers: of the loader.
        max_cpu_percent: of the training; one busy core is 100.
        convert: samples may be kept in another form; None: if epochs are known.
        epochs: over which one-time costs were charged.
        simulate: in the place of the model.
        virtual_devices: parts of the CPU that stood for devices.
        hosts: that share each batch.
        page_cache: the state of the files before a trial.
        isolation: of trials from each other.
        seed: of everything random in the search.
    """

    space: str = pydantic.Field(default="default", max_length=4096)
    only: dict[str, tuple[bool | int | float | str, ...]] = pydantic.Field(default_factory=dict)
    trials: int = pydantic.Field(default=30, ge=1)
    budget_seconds: float | None = pydantic.Field(default=None, gt=0)
    max_memory_bytes: int | None = pydantic.Field(default=None, ge=0)
    max_workers: int | None = pydantic.Field(default=None, ge=0)
    max_cpu_percent: float | None = pydantic.Field(default=None, gt=0)
    convert: bool | None = None
    epochs: int | None = pydantic.Field(default=None, ge=1)
    simulate: SimulatedStep | None = None
    virtual_devices: int = pydantic.Field(default=0, ge=0)
    hosts: int = pydantic.Field(default=1, ge=1)
    page_cache: Literal["warm", "cold", "auto"] = "auto"
    isolation: Literal["warm", "process"] = "warm"
    seed: int = 0
