"""The outcome of a trial, a measurement or a failure with its reason; the other answers, and the options, of requests.

All are values that survive JSON: `model_dump_json()` writes an outcome, `parse_outcome` reads it. They derive nothing:
statistics are in `autopipe.measure.stats`, wording in `autopipe.reports`. A `Report` takes progress meanwhile.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, Self, TypeAlias

import pydantic

from autopipe.measure.lines import Lines
from autopipe.pipeline.config import OfSetup, PipelineConfig
from autopipe.values import Amount, Count, Estimate, JsonObject, Positive, Share, Value

if TYPE_CHECKING:
    from autopipe.hardware.processes import Usage


class Phase(enum.StrEnum):
    """The phases of a trial. Each has its own deadline (`autopipe.measure.trial.supervise`)."""

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
    seconds: Positive  # time from the end of the window before to the end of this one
    waiting_seconds: Amount = 0.0  # the part of it in which the model waited for a batch


class Resources(Value):
    """The resources of a trial, over all its processes. None: not known. Two busy cores are 200 %. `others_cpu_percent`
    is everything else's use of the usable cores, a hypervisor included, and without the part that a CPU quota withholds
    anyway. GPU figures are of the training's cards: mean, busiest and idlest use; memory and power of all together.
    """

    cpu_percent: float | None = None
    others_cpu_percent: float | None = None
    peak_rss_bytes: int | None = None
    workers_bytes: int = 0  # of it, the private memory of all processes but the training's own
    gpu_percent: float | None = None
    gpu_busiest_percent: float | None = None
    gpu_idlest_percent: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_watts: float | None = None

    @classmethod
    def of(cls, usage: Usage, gpus: int | None = None) -> Self:
        """Derive the figures from samples, of the first `gpus` cards; None: of all."""
        if not usage.samples:
            return cls()
        first, last = usage.samples[0], usage.samples[-1]
        seconds, own = last.seconds - first.seconds, last.cpu_seconds - first.cpu_seconds
        others = usage.others_cores
        looks = [sample.gpus[:gpus] for sample in usage.samples]
        cards = [_known(use.busy_percent for use in card) for card in zip(*looks, strict=False)]  # one may go away
        busy = [fmean(card) for card in cards if card]
        watts = [sum(each) for look in looks if (each := _known(use.power_watts for use in look))]
        every = _known(use.busy_percent for look in looks for use in look)
        memory = [int(sum(each)) for look in looks if (each := _known(use.memory_used_bytes for use in look))]
        return cls(
            cpu_percent=100 * own / seconds if seconds > 0 else None,
            others_cpu_percent=None if others is None else 100 * others,
            peak_rss_bytes=max(sample.memory_bytes for sample in usage.samples),
            workers_bytes=max(sample.workers_bytes for sample in usage.samples),
            gpu_percent=fmean(every) if every else None,
            gpu_busiest_percent=max(busy, default=None),
            gpu_idlest_percent=min(busy, default=None),
            gpu_memory_bytes=max(memory, default=None),
            gpu_watts=fmean(watts) if watts else None,
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        others = self.others_cpu_percent or 0.0
        said = f"Meanwhile other processes used {others / 100:.1f} of the cores that this one may use."
        return (said,) if others > 20.0 else ()  # of one core


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


class Ran(Value):
    """The parts that really ran, which may differ from the request: loaders fall back, backends differ."""

    threads: int
    processes: int
    devices: tuple[str, ...]
    backend: str
    versions: dict[str, str]


class ConversionCost(Value):
    """Raw costs of writing a trial's part of the data in another form; `autopipe.measure.costs` derives the rest."""

    cut: Count  # ops that were done before a sample was kept
    samples: int = pydantic.Field(ge=1)  # in the part
    whole: int | None = None  # pieces that are to be converted, if samples are cut of pieces
    bytes: Count  # of the part's files
    workers: int = pydantic.Field(ge=1)  # threads that wrote
    seconds: Amount  # of all of it, before the first shard and after the last included
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
    first_batch_seconds: Amount  # from the opening of the loader to its first batch
    epoch_restart_seconds: Amount | None = None  # the wait between two epochs
    cache_fill_seconds: Amount | None = None  # that filling the caches adds to the first epoch of all data
    data_share: float = pydantic.Field(default=1.0, gt=0, le=1)  # that it trained on; below 1 if any was made first
    discarded_batches: Count = 0  # before the first window, as buffers hide the rate
    stable: bool  # the interval got narrow enough; if not, `warnings` has advice
    warnings: tuple[str, ...] = ()
    data_wait_share: Share  # the share of the measured time in which the model waited, 0 to 1
    resources: Resources = Resources()
    page_cache: Literal["warm", "cold"]  # files were in memory ("warm") or on disk ("cold") when the trial began
    files_ready: bool = True  # there was time to bring all of them there
    ran: Ran
    lines: Lines | None = None  # of the user's files, if that was asked for, and enough was seen
    conversion: ConversionCost | None = None  # of the trial's part of the data, if it reads a converted form
    hand_over_seconds: Amount | None = None  # of one batch from a worker on another machine, by itself
    phase_seconds: dict[Phase, float] = pydantic.Field(default_factory=dict)  # by `autopipe.measure.trial.supervise`
    overhead_seconds: Amount = 0.0  # beyond its windows, by `autopipe.measure.trial.supervise`

    @property
    def measured_seconds(self) -> float:
        return sum(window.seconds for window in self.windows)


MEMORY_HINT = "Use fewer workers, a shorter queue, a smaller batch or no memory cache."


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
    samples: Count
    largest_difference: Amount = 0.0  # between a pixel and that of the reference configuration
    largest_value: Amount = 0.0  # of any pixel in the reference, which tells its scale
    missing: Count = 0  # samples that never came
    repeated: Count = 0  # samples that came more than once in an epoch
    message: str | None = None  # another difference; or the reason why it could not run
    random: str | None = None  # random numbers that repeat, and the remedy
    unseen: str | None = None  # the reason why random numbers that repeat could not be looked for
    epochs: int = 0  # of a user's own dataset, that were read and compared; 1: only its beginning
    is_pass: bool = True  # an epoch has each sample once; if not, samples may come twice

    @property
    def has_run(self) -> bool:
        return bool(self.digest)


class Verification(Value):
    """Configurations side by side: do they give the same batches?"""

    status: Literal["verified"] = "verified"
    schema_version: Literal[1] = 1
    compared: bool = True  # batches were compared; those of a wrapped dataset were only looked at
    agreements: tuple[Agreement, ...]
    faults: tuple[str, ...] = ()  # of a user's own dataset, as it is; notes of any workload
    notes: tuple[str, ...] = ()
    hidden: bool = False  # random changes make another sample of each, so that none is seen to come twice


class LoaderRate(Value):
    """What a loader makes without a model."""

    status: Literal["loader"] = "loader"
    images_per_second: Estimate


class EpochTime(Value):
    """A whole epoch of a training: its steps, its validation, and all that lies between them."""

    status: Literal["epoch"] = "epoch"
    schema_version: Literal[1] = 1
    training_seconds: Amount  # of all steps
    validation_seconds: Amount  # of all steps of the validation
    pause_seconds: Amount  # all between, as for first batches; without the user's callbacks
    share: float = pydantic.Field(default=1.0, gt=0, le=1)  # of the samples that was read; the steps of all follow

    @property
    def seconds(self) -> float:
        return self.training_seconds + self.validation_seconds + self.pause_seconds


# -------------------- options of a request, beyond the configuration or the setup of the model

Options: TypeAlias = Mapping[str, pydantic.JsonValue]


class _Options(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


FEWEST_STEPS = 4  # steps of the shortest trial, its warm-up included


class StopRule(_Options):
    """The rule that ends a trial."""

    min_seconds: Positive = 1.0  # least time in windows that count
    max_seconds: Positive = 3.0  # see `most_seconds`
    half_width: float = pydantic.Field(default=0.03, gt=0, lt=1)  # of an interval that is narrow enough, as a share
    hopeless_below: Positive | None = None  # images/s; a trial that lies wholly below it ends early
    ends_at: float | None = None  # of `time.monotonic`, the same in all processes, when the training has to end

    @property
    def most_seconds(self) -> float:
        """Time in windows that count after which a trial ends, stable or not; with discarded ones, twice as long."""
        return max(self.min_seconds, self.max_seconds)


class OnFiles(_Options):
    """The files of a request; all that a loader without a model needs to know."""

    # "warm" puts files into the page cache before a trial, "cold" removes them; "auto": cold if the data are larger
    # than memory
    page_cache: Literal["warm", "cold", "auto"] = "auto"
    folder: str | None = None  # for samples that are converted for it; None: the temporary folder


class MeasureOptions(StopRule, OnFiles):
    """The settings of one measurement."""

    model_images_per_second: Positive | None = None  # of the model alone, for a session that does not measure it
    makes_images_per_second: Positive | None = None  # of a loader that fills a cache, as known; None: it is measured
    trace: str | None = None  # the file of a trace; None: nothing is noted
    lines: bool = False  # watch the lines of the user's files that make batches


class CeilingOptions(OfSetup, OnFiles):
    """The purpose of ceilings: if trials read from the disk, its speed is one of them."""

    model_only: bool = False  # leave out the loader, its ops and the disk, which are the same in every setup
    again: bool = False  # measure the model once more, even if this process has done so
    samples: int | None = pydantic.Field(default=None, ge=1)  # of a batch, over all devices; None for the workload's
    elsewhere: PipelineConfig | None = None  # whose workers run elsewhere: count the cores that they have there
    resources: bool = False  # also watch what the model alone takes of the machine


class EpochOptions(OnFiles):
    """The options of timing whole epochs."""

    seconds: Positive = 4.0  # duration, about, without the first epoch
    images_per_second: Positive  # of the training, by which the part of the samples is chosen


FEWEST_VERIFIED = 256  # samples that a verification looks at, however long they take


class VerifyOptions(_Options):
    """The options of a verification. Only a wrapped dataset has epochs of its own, and random numbers of its own."""

    # from the first one on. None: `FEWEST_VERIFIED`; of a wrapped dataset all that are read in `seconds`, and at least
    # as many
    samples: int | None = pydantic.Field(default=None, ge=1)
    seconds: Amount = 10.0  # for reading an epoch to its end
    random: bool = False  # look for random numbers that repeat


class Report(Protocol):
    """Takes news of a measurement: a phase begins, a window ended with such a rate, a message for the user."""

    def phase(self, phase: Phase) -> None: ...

    def progress(self, images: int, images_per_second: float) -> None: ...

    def log(self, text: str) -> None: ...
