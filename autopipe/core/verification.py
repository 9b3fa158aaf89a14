"""Whether configurations give the batches that the workload asks for."""

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
    """Configurations side by side: do they give the same batches?"""

    status: Literal["verified"] = "verified"
    schema_version: Literal[1] = 1
    agreements: tuple[Agreement, ...]
