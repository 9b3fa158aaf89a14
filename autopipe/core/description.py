"""What has to be known of a workload before its configurations are chosen; found where it can be imported."""

from __future__ import annotations

from typing import Final, Literal

import pydantic

from autopipe.core.config import PipelineConfig
from autopipe.core.value import Value

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
    """A dataset that a function of the user's makes."""

    as_it_is: PipelineConfig  # the configuration that makes it as it is today
    choices: dict[str, tuple[bool | int | float | str, ...]]  # values that each of the function's parameters may take


class Description(Value):
    """What has to be known of a workload before its configurations are chosen; found where it can be imported."""

    status: Literal["described"] = "described"
    schema_version: Literal[1] = 1
    samples: int = pydantic.Field(ge=1)  # in an epoch
    batch_size: int = pydantic.Field(ge=1)  # samples a batch, over all devices together
    # all samples after the deterministic first ops, as a cache holds them; None if they differ in size
    fixed_bytes: int | None = pydantic.Field(default=None, ge=0)
    compact_bytes: int = pydantic.Field(ge=0)  # one sample as it is sent to a device that finishes
    finished_bytes: int = pydantic.Field(ge=0)  # one sample as the model takes it
    # the bytes that the whole set would take in a storage form, by the ops done before, exact where samples have one
    # shape, else judged by a few: `{"array": {1: 2**30}}`
    cuts: dict[str, dict[int, int]] = pydantic.Field(default_factory=dict)
    # what tells the deterministic first ops: none of them, the first, the first two and so on
    first_ops: tuple[str, ...] = ()
    backend: str
    accelerators: int = pydantic.Field(default=0, ge=0)  # how many the backend sees; 0 where it trains on the CPU
    hosts: int = pydantic.Field(default=1, ge=1)  # that share each batch; `batch_size` is one host's part of it
    virtual_devices: int = pydantic.Field(default=0, ge=0)  # parts of the CPU that stand for devices, if asked for
    impossible: tuple[Impossible, ...] = ()  # settings that cannot be used
    mean_bytes: float = pydantic.Field(ge=0)  # of a sample as it is read
    # of some files, how much was in memory before anything was measured, 0 to 1; None if that cannot be told
    resident_share: float | None = pydantic.Field(default=None, ge=0, le=1)
    sizes: tuple[int, ...] = ()  # bytes of some samples, spread over the data
    storage_kind: str = "unknown"  # the file system that the samples lie on; "memory" for those in no file
    data_digest: str  # of the files: count, names, sizes, times
    ops_digest: str  # of the ops and their settings
    ops: tuple[OpSettings, ...] = ()  # the ops themselves, in order
    model_digest: str  # of the model's structure, without its weights
    epochs: int | None = None
    wrapped: WrappedDataset | None = None  # what a dataset of the user's takes; None where autopipe makes the batches

    @property
    def depths(self) -> dict[str, int]:
        """How many ops can be done before a storage form keeps a sample, by the form's name."""
        return {storage: max(sizes) for storage, sizes in self.cuts.items()}

    def against(self, parameter: str, value: object) -> str | None:
        """Return why a setting cannot be used; None where it can."""
        found = (each.reason for each in self.impossible if (each.parameter, each.value) == (parameter, value))
        return next(found, None)
