"""What came of a trial: a measurement, or a failure that says why there is none. Both are values and survive JSON.

They carry figures and derive none: statistics live in `autopipe.core.stats`, wording in `autopipe.report`. Whoever
writes one to a file or a study writes `model_dump_json()` and reads it back with `parse_outcome`.
"""

from __future__ import annotations

import enum
from typing import Annotated, Literal, Self

import pydantic

from autopipe.core.config import ModelSetup

SCHEMA_VERSION: Literal[1] = 1

JsonObject = dict[str, pydantic.JsonValue]
"""A `PipelineConfig` in its canonical form as JSON: readable without importing the loader it names."""


class Phase(enum.StrEnum):
    """What a trial is doing. Each phase has a deadline of its own (`autopipe.trial.deadlines`)."""

    START = "start"  # the child process comes up
    IMPORT = "import"  # the workload is imported, and with it the framework
    BUILD = "build"  # the model is built and compiled
    WARM_UP = "warm_up"  # steps on a resident batch, before any loader is open
    OPEN = "open"  # the loader starts
    FIRST_BATCH = "first_batch"
    FILL = "fill"  # caches are filled, buffers reach their steady state
    MEASURE = "measure"
    CLOSE = "close"


class FailureKind(enum.StrEnum):
    """Why a trial gave no measurement."""

    UNSUPPORTED = "unsupported"  # this configuration cannot run on this machine or with this workload
    IMPORT = "import"  # the workload cannot be imported
    BUILD = "build"  # the model cannot be built, compiled or fed with such batches
    BAD_DATA = "bad_data"  # a sample cannot be read, or an op failed on it
    OUT_OF_MEMORY = "out_of_memory"
    HUNG = "hung"  # not a sign of life for the whole deadline of a phase
    CRASHED = "crashed"  # the process died, or raised what nobody expected
    TIMEOUT = "timeout"  # alive, but not done in the time a trial may take
    INTERRUPTED = "interrupted"  # somebody ended it


class _Value(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Window(_Value):
    """Some consecutive training steps, timed together.

    Attributes:
        images: images trained on; where a queue emptied meanwhile, those that the loader made.
        seconds: time from the end of the window before to the end of this one.
        waiting_seconds: the part of it in which the model waited for a batch.
    """

    images: int = pydantic.Field(ge=1)
    seconds: float = pydantic.Field(gt=0)
    waiting_seconds: float = pydantic.Field(default=0.0, ge=0)


class Estimate(_Value):
    """A figure with its interval."""

    value: float
    low: float
    high: float

    @pydantic.model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"`low` must not exceed `high`, but got low={self.low} and high={self.high}.")
        return self


class Resources(_Value):
    """What a trial took, over all its processes. None where it was not or cannot be known."""

    cpu_percent: float | None = None
    peak_rss_bytes: int | None = None
    shm_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_watts: float | None = None


class Ran(_Value):
    """What really ran, which need not be what was asked for: loaders fall back, backends differ."""

    threads: int
    processes: int
    devices: tuple[str, ...]
    backend: str
    versions: dict[str, str]


class ConversionCost(_Value):
    """What it took to write a trial's part of the data in another form. Raw; `autopipe.core.payback` derives the rest.

    Attributes:
        cut: how many ops were done before a sample was kept.
        samples: in the part.
        bytes: of the part's files.
        workers: threads that wrote.
        seconds: how long all of it took, with what comes before the first shard and after the last.
        shard_samples: samples of each shard.
        shard_seconds: how long each shard took in its thread.
    """

    cut: int = pydantic.Field(ge=0)
    samples: int = pydantic.Field(ge=1)
    bytes: int = pydantic.Field(ge=0)
    workers: int = pydantic.Field(ge=1)
    seconds: float = pydantic.Field(ge=0)
    shard_samples: tuple[int, ...] = pydantic.Field(min_length=1)
    shard_seconds: tuple[float, ...] = pydantic.Field(min_length=1)


class Measurement(_Value):
    """One configuration, timed in the training it is meant for.

    Attributes:
        windows: the raw timings; every other rate derives from them.
        discarded_batches: batches taken before the first window, because buffers could still hide the loader's rate.
        first_batch_seconds: from the opening of the loader to its first batch.
        epoch_restart_seconds: the wait between two epochs.
        cache_fill_seconds: what filling the caches adds to the first epoch over all of the data.
        stable: whether the interval got narrow enough; if not, `warnings` says what to do.
        data_wait_share: the part of the measured time in which the model waited, 0 to 1.
        page_cache: whether the files were in memory ("warm") or on disk ("cold") when the trial began.
        conversion: what writing the trial's part of the data took, if the configuration reads a converted form.
        phase_seconds: the time each phase took. Filled in by `autopipe.trial.supervise`.
        overhead_seconds: what the trial cost beyond its windows. Filled in by `autopipe.trial.supervise`.
    """

    status: Literal["ok"] = "ok"
    schema_version: Literal[1] = SCHEMA_VERSION
    config: JsonObject
    config_key: str
    batch_size: int = pydantic.Field(ge=1)
    windows: tuple[Window, ...] = pydantic.Field(min_length=1)
    images_per_second: Estimate
    first_batch_seconds: float = pydantic.Field(ge=0)
    epoch_restart_seconds: float | None = pydantic.Field(default=None, ge=0)
    cache_fill_seconds: float | None = pydantic.Field(default=None, ge=0)
    discarded_batches: int = pydantic.Field(default=0, ge=0)
    stable: bool
    warnings: tuple[str, ...] = ()
    data_wait_share: float = pydantic.Field(ge=0, le=1)
    resources: Resources = Resources()
    page_cache: Literal["warm", "cold"]
    ran: Ran
    conversion: ConversionCost | None = None
    phase_seconds: dict[Phase, float] = pydantic.Field(default_factory=dict)
    overhead_seconds: float = pydantic.Field(default=0.0, ge=0)

    @property
    def measured_seconds(self) -> float:
        """Return the time that the windows cover."""
        return sum(window.seconds for window in self.windows)


class OpCost(_Value):
    """What one op costs on one core.

    Attributes:
        name: the op, or "read".
        part: when it runs: "fixed" ops can be kept in a cache or another storage, "fresh" ones run every epoch on the
            host, "finish" ones may run on the device.
    """

    name: str
    part: Literal["fixed", "fresh", "finish"]
    seconds_per_image: float = pydantic.Field(ge=0)


class Ceiling(_Value):
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
    schema_version: Literal[1] = SCHEMA_VERSION
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


class Agreement(_Value):
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


class Verification(_Value):
    """Configurations side by side: do they give the same batches?"""

    status: Literal["verified"] = "verified"
    schema_version: Literal[1] = SCHEMA_VERSION
    agreements: tuple[Agreement, ...]


class Impossible(_Value):
    """One setting that a workload rules out, and why."""

    parameter: str
    value: str | int
    reason: str


class CutSize(_Value):
    """What all samples take in a storage form.

    Attributes:
        storage: the form.
        cut: how many ops are done before they are kept.
        bytes: of the whole set, exact where samples have one shape, else judged by a few.
    """

    storage: str
    cut: int = pydantic.Field(ge=0)
    bytes: int = pydantic.Field(ge=0)


class WrappedDataset(_Value):
    """A dataset that a function of the user's makes.

    Attributes:
        as_it_is: the configuration that makes it as it is today.
        choices: the values that each of the function's parameters may take.
    """

    as_it_is: JsonObject
    choices: dict[str, tuple[bool | int | float | str, ...]]


class Description(_Value):
    """What has to be known of a workload before its configurations are chosen; found where it can be imported.

    Attributes:
        samples: in an epoch.
        data_bytes: all samples as they are read.
        fixed_bytes: all samples after the deterministic first ops, as a cache holds them; None if they differ in size.
        compact_bytes: one sample as it is sent to a device that finishes.
        finished_bytes: one sample as the model takes it.
        cuts: what the samples would take in each storage form, after as many ops as it can hold the result of.
        fixed_ops: names of the deterministic first ops, reading included.
        suffix_ops: names of the cheap last ops.
        devices: how many devices could share a batch.
        impossible: settings that cannot be used.
        mean_bytes: of a sample as it is read.
        sizes: bytes of some samples, spread over the data.
        storage_kind: the file system that the samples lie on; "memory" for those in no file.
        data_digest: of the files: count, names, sizes, times.
        ops_digest: of the ops and their settings.
        model_digest: of the model's structure, without its weights.
        wrapped: what a dataset that the user made takes; None where autopipe makes the batches.
    """

    status: Literal["described"] = "described"
    schema_version: Literal[1] = SCHEMA_VERSION
    samples: int = pydantic.Field(ge=1)
    batch_size: int = pydantic.Field(ge=1)
    data_bytes: int = pydantic.Field(ge=0)
    fixed_bytes: int | None = pydantic.Field(default=None, ge=0)
    compact_bytes: int = pydantic.Field(ge=0)
    finished_bytes: int = pydantic.Field(ge=0)
    cuts: tuple[CutSize, ...] = ()
    fixed_ops: tuple[str, ...]
    suffix_ops: tuple[str, ...]
    backend: str
    devices: int = pydantic.Field(ge=1)
    impossible: tuple[Impossible, ...] = ()
    mean_bytes: float = pydantic.Field(ge=0)
    sizes: tuple[int, ...] = ()
    storage_kind: str = "unknown"
    data_digest: str
    ops_digest: str
    model_digest: str
    epochs: int | None = None
    wrapped: WrappedDataset | None = None


class TrialFailure(_Value):
    """No measurement, and why.

    Attributes:
        message: the rule that was broken and what was found.
        hint: what to do about it.
        log_tail: the last lines that the trial's process printed.
        config: the configuration, or None if it failed before any was tried.
    """

    status: Literal["failed"] = "failed"
    schema_version: Literal[1] = SCHEMA_VERSION
    kind: FailureKind
    phase: Phase
    message: str
    hint: str | None = None
    log_tail: str = ""
    config: JsonObject | None = None
    config_key: str | None = None


Outcome = Annotated[Measurement | TrialFailure, pydantic.Field(discriminator="status")]

_OUTCOME: pydantic.TypeAdapter[Measurement | TrialFailure] = pydantic.TypeAdapter(Outcome)


def parse_outcome(text: str | bytes) -> Measurement | TrialFailure:
    """Read back what `model_dump_json()` of an outcome wrote.

    Raises:
        pydantic.ValidationError: if it is no outcome of this schema version.
    """
    return _OUTCOME.validate_json(text)
