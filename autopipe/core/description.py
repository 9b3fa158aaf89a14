"""What has to be known of a workload before its configurations are chosen; found where it can be imported."""

from __future__ import annotations

from typing import Final, Literal

import pydantic

from autopipe.core.value import JsonObject, Value

CODE: Final = "code"
"""The parameter of what cannot be written as plain code; its values are the forms of such code."""


class Impossible(Value):
    """One setting that a workload rules out, and why."""

    parameter: str
    value: str | int
    reason: str


class OpSettings(Value):
    """One op: its name and its settings as texts."""

    name: str
    settings: dict[str, str]


class WrappedDataset(Value):
    """A dataset that a function of the user's makes.

    Attributes:
        as_it_is: the configuration that makes it as it is today.
        choices: the values that each of the function's parameters may take.
    """

    as_it_is: JsonObject
    choices: dict[str, tuple[bool | int | float | str, ...]]


class Description(Value):
    """What has to be known of a workload before its configurations are chosen; found where it can be imported.

    Attributes:
        samples: in an epoch.
        batch_size: samples a batch, over all devices together.
        fixed_bytes: all samples after the deterministic first ops, as a cache holds them; None if they differ in size.
        compact_bytes: one sample as it is sent to a device that finishes.
        finished_bytes: one sample as the model takes it.
        cuts: the bytes that the whole set would take in a storage form, by the ops done before, exact where samples
            have one shape, else judged by a few: `{"array": {1: 2**30}}`.
        accelerators: how many the backend sees; 0 where it trains on the CPU.
        hosts: how many hosts share each batch; `batch_size` is one host's part of it.
        virtual_devices: how many parts of the CPU stand for devices, because that was asked for; else 0.
        impossible: settings that cannot be used.
        mean_bytes: of a sample as it is read.
        sizes: bytes of some samples, spread over the data.
        storage_kind: the file system that the samples lie on; "memory" for those in no file.
        data_digest: of the files: count, names, sizes, times.
        ops_digest: of the ops and their settings.
        ops: the ops themselves, in order.
        model_digest: of the model's structure, without its weights.
        wrapped: what a dataset that the user made takes; None where autopipe makes the batches.
    """

    status: Literal["described"] = "described"
    schema_version: Literal[1] = 1
    samples: int = pydantic.Field(ge=1)
    batch_size: int = pydantic.Field(ge=1)
    fixed_bytes: int | None = pydantic.Field(default=None, ge=0)
    compact_bytes: int = pydantic.Field(ge=0)
    finished_bytes: int = pydantic.Field(ge=0)
    cuts: dict[str, dict[int, int]] = pydantic.Field(default_factory=dict)
    backend: str
    accelerators: int = pydantic.Field(default=0, ge=0)
    hosts: int = pydantic.Field(default=1, ge=1)
    virtual_devices: int = pydantic.Field(default=0, ge=0)
    impossible: tuple[Impossible, ...] = ()
    mean_bytes: float = pydantic.Field(ge=0)
    sizes: tuple[int, ...] = ()
    storage_kind: str = "unknown"
    data_digest: str
    ops_digest: str
    ops: tuple[OpSettings, ...] = ()
    model_digest: str
    epochs: int | None = None
    wrapped: WrappedDataset | None = None

    def against(self, parameter: str, value: object) -> str | None:
        """Return why a setting cannot be used; None where it can."""
        found = (each.reason for each in self.impossible if (each.parameter, each.value) == (parameter, value))
        return next(found, None)
