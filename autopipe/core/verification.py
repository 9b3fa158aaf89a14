"""Whether configurations give the batches that the workload asks for, and whether its samples can be used at all."""

from __future__ import annotations

from typing import Literal

import pydantic

from autopipe.core.value import JsonObject, Value


class Agreement(Value):
    """Whether one configuration gives the batches that the workload asks for.

    Attributes:
        digest: of all batches it gave; equal digests mean equal batches.
        largest_difference: between a pixel and the same pixel of the reference configuration.
        largest_value: of any pixel in the reference, which tells its scale.
        missing: samples that never came.
        repeated: samples that came more than once in an epoch.
        message: why nothing could be compared, if so.
    """

    config: JsonObject
    digest: str
    samples: int = pydantic.Field(ge=0)
    largest_difference: float = pydantic.Field(default=0.0, ge=0)
    largest_value: float = pydantic.Field(default=0.0, ge=0)
    missing: int = pydantic.Field(default=0, ge=0)
    repeated: int = pydantic.Field(default=0, ge=0)
    message: str | None = None


class Verification(Value):
    """Configurations side by side: do they give the same batches?

    Attributes:
        compared: whether their batches were; those of a wrapped dataset were only looked at for repeated samples.
    """

    status: Literal["verified"] = "verified"
    schema_version: Literal[1] = 1
    compared: bool = True
    agreements: tuple[Agreement, ...]


class BadFile(Value):
    """A sample that a training would stop at.

    Attributes:
        index: which sample it is.
        name: the path of its file, or what else a person calls it.
        reason: what is wrong with it.
    """

    index: int = pydantic.Field(ge=0)
    name: str
    reason: str


class FileVerification(Value):
    """A look at every sample of a workload.

    Attributes:
        samples: how many there are.
        resumed: how many of them an earlier look, which was stopped, had found good.
        bad: those that cannot be used, in order.
    """

    status: Literal["inspected"] = "inspected"
    schema_version: Literal[1] = 1
    samples: int = pydantic.Field(ge=0)
    resumed: int = pydantic.Field(default=0, ge=0)
    bad: tuple[BadFile, ...]
