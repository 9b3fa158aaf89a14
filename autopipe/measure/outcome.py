"""The outcome of a trial, a measurement or a failure with its reason; and the other answers of its process.

All are values that survive JSON: `model_dump_json()` writes an outcome, `parse_outcome` reads it. They derive nothing:
statistics are in `autopipe.measure.stats`, wording in `autopipe.reports`. A `Report` takes progress meanwhile.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Literal, Protocol, TypeAlias

import pydantic

from autopipe.pipeline.config import PipelineConfig
from autopipe.values import Estimate, JsonObject, Value
from autopipe.workload.mode import Mode


class Phase(enum.StrEnum):
    """The phases of a trial. Each has its own deadline (`autopipe.measure.trial.failures`)."""

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

    NOT_PLAIN = "not_plain"  # a baseline that cannot be written as plain code, and is left out
    UNSUPPORTED = "unsupported"  # this configuration cannot run on this machine or with this workload
    IMPORT = "import"  # the workload cannot be imported
    BUILD = "build"  # the model cannot be built, compiled or fed with such batches
    BAD_DATA = "bad_data"  # a sample cannot be read, or an op failed on it
    OUT_OF_MEMORY = "out_of_memory"
    HUNG = "hung"  # not a sign of life for the whole deadline of a phase
    CRASHED = "crashed"  # the process died, or raised an unexpected error
    TIMEOUT = "timeout"  # alive, but not done in the time a trial may take
    INTERRUPTED = "interrupted"  # it was ended from outside


class Window(Value):
    """Some consecutive training steps, timed together."""

    images: int = pydantic.Field(ge=1)  # images trained on; if a queue emptied meanwhile, those that the loader made
    seconds: float = pydantic.Field(gt=0)  # time from the end of the window before to the end of this one
    waiting_seconds: float = pydantic.Field(default=0.0, ge=0)  # the part of it in which the model waited for a batch


class Resources(Value):
    """The resources of a trial, over all its processes. None: not known.

    `others_cpu_percent` is everything else's use of the usable cores, a hypervisor included, and without the part that
    a CPU quota withholds anyway. GPU figures are of the training's cards: mean, busiest and idlest use; memory and
    power of all together.
    """

    cpu_percent: float | None = None
    others_cpu_percent: float | None = None
    peak_rss_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_busiest_percent: float | None = None
    gpu_idlest_percent: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_watts: float | None = None


class Ran(Value):
    """The parts that really ran, which may differ from the request: loaders fall back, backends differ."""

    threads: int
    processes: int
    devices: tuple[str, ...]
    backend: str
    versions: dict[str, str]


class ConversionCost(Value):
    """Raw costs of writing a trial's part of the data in another form; `autopipe.measure.costs` derives the rest."""

    cut: int = pydantic.Field(ge=0)  # ops that were done before a sample was kept
    samples: int = pydantic.Field(ge=1)  # in the part
    bytes: int = pydantic.Field(ge=0)  # of the part's files
    workers: int = pydantic.Field(ge=1)  # threads that wrote
    # of all of it, before the first shard and after the last included
    seconds: float = pydantic.Field(ge=0)
    shard_samples: tuple[int, ...] = pydantic.Field(min_length=1)  # samples of each shard
    shard_seconds: tuple[float, ...] = pydantic.Field(min_length=1)  # duration of each shard in its thread


class Measurement(Value):
    """One configuration, timed in the training it is meant for."""

    status: Literal["ok"] = "ok"
    schema_version: Literal[1] = 1
    config: JsonObject
    config_key: str
    batch_size: int = pydantic.Field(ge=1)
    windows: tuple[Window, ...] = pydantic.Field(min_length=1)  # the raw timings; every other rate derives from them
    images_per_second: Estimate
    first_batch_seconds: float = pydantic.Field(ge=0)  # from the opening of the loader to its first batch
    epoch_restart_seconds: float | None = pydantic.Field(default=None, ge=0)  # the wait between two epochs
    # the time that filling the caches adds to the first epoch over all of the data
    cache_fill_seconds: float | None = pydantic.Field(default=None, ge=0)
    # the share of the data that it trained on; below 1 if something had to be made first
    data_share: float = pydantic.Field(default=1.0, gt=0, le=1)
    # batches before the first window, in which buffers could still hide the loader's rate
    discarded_batches: int = pydantic.Field(default=0, ge=0)
    stable: bool  # the interval got narrow enough; if not, `warnings` has advice
    warnings: tuple[str, ...] = ()
    # the share of the measured time in which the model waited, 0 to 1
    data_wait_share: float = pydantic.Field(ge=0, le=1)
    resources: Resources = Resources()
    # files were in memory ("warm") or on disk ("cold") when the trial began
    page_cache: Literal["warm", "cold"]
    files_ready: bool = True  # there was time to bring all of them there
    ran: Ran
    # costs of writing the trial's part of the data, if the configuration reads a converted form
    conversion: ConversionCost | None = None
    # of a batch from another machine's worker to this one, with nothing else under way
    hand_over_seconds: float | None = pydantic.Field(default=None, ge=0)
    # time of each phase. Filled in by `autopipe.measure.trial.supervise`
    phase_seconds: dict[Phase, float] = pydantic.Field(default_factory=dict)
    # costs of the trial beyond its windows. Filled in by `autopipe.measure.trial.supervise`
    overhead_seconds: float = pydantic.Field(default=0.0, ge=0)

    @property
    def measured_seconds(self) -> float:
        return sum(window.seconds for window in self.windows)


class TrialFailure(Value):
    """No measurement, and why."""

    status: Literal["failed"] = "failed"
    schema_version: Literal[1] = 1
    kind: FailureKind
    phase: Phase
    message: str  # the broken rule and the received value
    hint: str | None = None  # the remedy
    log_tail: str = ""  # the last lines that the trial's process printed
    config: JsonObject | None = None  # the configuration, or None if it failed before any was tried
    config_key: str | None = None


Outcome = Annotated[Measurement | TrialFailure, pydantic.Field(discriminator="status")]

_OUTCOME: pydantic.TypeAdapter[Measurement | TrialFailure] = pydantic.TypeAdapter(Outcome)


def parse_outcome(text: str | bytes) -> Measurement | TrialFailure:
    """Parse the `model_dump_json()` of an outcome; raises pydantic.ValidationError for any other text."""
    return _OUTCOME.validate_json(text)


class Agreement(Value):
    """The result of comparing a configuration's batches with those that the workload asks for."""

    config: PipelineConfig
    digest: str  # of all batches it gave; equal digests mean equal batches, and none that it could not run
    samples: int = pydantic.Field(ge=0)
    # between a pixel and that of the reference configuration
    largest_difference: float = pydantic.Field(default=0.0, ge=0)
    largest_value: float = pydantic.Field(default=0.0, ge=0)  # of any pixel in the reference, which tells its scale
    missing: int = pydantic.Field(default=0, ge=0)  # samples that never came
    repeated: int = pydantic.Field(default=0, ge=0)  # samples that came more than once in an epoch
    message: str | None = None  # another difference; or the reason why it could not run

    @property
    def has_run(self) -> bool:
        return bool(self.digest)


class Verification(Value):
    """Configurations side by side: do they give the same batches?"""

    status: Literal["verified"] = "verified"
    schema_version: Literal[1] = 1
    compared: bool = True  # batches were compared; those of a wrapped dataset were only looked at
    agreements: tuple[Agreement, ...]


class StepTime(Value):
    """The steps of a model on one batch that is already on the device.

    Attributes:
        mode: of the step.
        batch_size: samples in a step.
        step_seconds: one step, compiled and warm.
        first_call_seconds: the first call of all, which traces and compiles, and then does a step.
        backend: of Keras.
    """

    status: Literal["step"] = "step"
    schema_version: Literal[1] = 1
    mode: Mode
    batch_size: int = pydantic.Field(ge=1)
    step_seconds: Estimate
    first_call_seconds: float = pydantic.Field(ge=0)
    backend: str

    @property
    def images_per_second(self) -> float:
        return self.batch_size / self.step_seconds.value


Options: TypeAlias = Mapping[str, pydantic.JsonValue]


class Report(Protocol):
    """Takes news of a measurement."""

    def phase(self, phase: Phase) -> None:
        """Begin a phase."""

    def progress(self, images: int, images_per_second: float) -> None:
        """Take the rate at the end of a window."""

    def log(self, text: str) -> None:
        """Take a message for the user."""
