"""The limits of a configuration: what model, loader and each op take alone; `bound` makes a rate of them."""

from __future__ import annotations

from typing import Literal

import pydantic

from autopipe.core.config import ModelSetup
from autopipe.core.value import Estimate, Value


class OpCost(Value):
    """What one op costs on one core.

    Attributes:
        name: the op, or "read".
        part: when it runs: "fixed" ops can be kept in a cache or another storage, "fresh" ones run every epoch on the
            host, "finish" ones may run on the device.
    """

    name: str
    part: Literal["fixed", "fresh", "finish"]
    seconds_per_image: float = pydantic.Field(ge=0)


class Ceiling(Value):
    """What no configuration with this `setup` can exceed, and what it is made of. None where it was not measured.

    Attributes:
        model_images_per_second: the model alone, on a batch that is already there.
        model_core_seconds_per_image: processor time that one image costs while the model trains.
        loader_images_per_second: the loader alone, with nobody waiting for its batches.
        op_costs: the loader's work, op by op, with all cores busy.
        read_bytes_per_second: how fast the files come from the disk; None where trials find them in memory.
        bytes_per_image: as it is read.
        cores: how many cores the model and the loader share.
        bound_images_per_second: what these figures together allow the configuration that was chosen.
    """

    status: Literal["ceiling"] = "ceiling"
    schema_version: Literal[1] = 1
    model_images_per_second: Estimate
    model_core_seconds_per_image: float = pydantic.Field(ge=0)
    loader_images_per_second: Estimate | None = None
    op_costs: tuple[OpCost, ...] = ()
    read_bytes_per_second: float | None = pydantic.Field(default=None, ge=0)
    bytes_per_image: float | None = pydantic.Field(default=None, ge=0)
    cores: float | None = pydantic.Field(default=None, gt=0)
    bound_images_per_second: float | None = pydantic.Field(default=None, ge=0)
    devices: int = pydantic.Field(default=1, ge=1)
    channels: Literal["last", "first"] = "last"
    finish: Literal["host", "device"] = "device"
    warnings: tuple[str, ...] = ()

    @property
    def setup(self) -> ModelSetup:
        """The setup of the model that was measured."""
        return ModelSetup(self.devices, self.channels, self.finish)
