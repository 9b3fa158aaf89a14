"""The facts before the first trial: the workload, the measured costs of its parts, and the user's limits. Values only.

A `Description` is made by the process that imports the workload; a `Ceiling` is measured: the model alone, each op, and
the reads. Predictions and bounds are computed in `autopipe.measure.costs`. None means "not known", and then excludes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import pydantic

from autopipe.measure.outcome import Resources
from autopipe.pipeline import config
from autopipe.pipeline.config import OfSetup, PipelineConfig
from autopipe.values import Amount, Count, Estimate, Positive, Share, Value


class OpCost(Value):
    """The cost of one op on one core."""

    name: str  # the op, or "read"
    # when it runs: "fixed" ops can be kept in a cache or another storage, "fresh" ones run every epoch on the
    # host, "finish" ones may run on the device
    part: Literal["fixed", "fresh", "finish"]
    seconds_per_image: Amount  # processor time
    wait_seconds_per_image: Amount = 0.0  # waiting without a processor: for a disk, a network, a sleep
    lock_seconds_per_image: Amount = 0.0  # the part of the processor time for which it holds Python's lock (GIL)
    native: bool = False  # made for a whole batch by one call, which gives Python's lock up

    @property
    def wall_seconds_per_image(self) -> float:
        return self.seconds_per_image + self.wait_seconds_per_image

    def times(self, share: float) -> OpCost:
        """Return the cost if only this share of the samples goes through the op."""
        names = ("seconds_per_image", "wait_seconds_per_image", "lock_seconds_per_image")
        return self.model_copy(update={name: share * getattr(self, name) for name in names})


class ReadRung(Value):
    """The measured read rate with this many reads at a time."""

    at_once: int = pydantic.Field(ge=1)
    images_per_second: Positive


FEWEST_OF_A_TAIL = 100  # the fewest samples that show the slowest 1 %


class SampleTail(Value):
    """The spread of sample times: of reading and all ops in sequence, or of reads alone, many at a time."""

    samples: int = pydantic.Field(ge=1)  # the number of timed ones
    p50_seconds: Amount  # half of them take less
    p95_seconds: Amount  # 95 % take less
    p99_seconds: Amount  # 99 % take less
    slowest_share: Share  # the part of all time that the slowest 1 % take, 0 to 1
    slowest: str = ""  # name of the slowest one

    @property
    def heavy(self) -> bool:
        """True if the slowest 1 % take more than a tenth of the time."""
        return self.samples >= FEWEST_OF_A_TAIL and self.slowest_share > 0.1

    def scaled(self, factor: float) -> SampleTail:
        """Return the spread of samples that take `factor` times as long."""
        names = ("p50_seconds", "p95_seconds", "p99_seconds")
        return self.model_copy(update={name: factor * getattr(self, name) for name in names})


class ReadCosts(Value):
    """Reads with several at a time, as far as they were measured."""

    latency_seconds: Positive  # of a read with no other beside it, waiting and processor time, on average
    cpu_seconds: Amount  # the processor time in it
    # images/s by the number of reads at a time, ascending; the last brought little over the one before, or time
    # was up. Only the first if reads do not wait.
    rungs: tuple[ReadRung, ...] = pydantic.Field(min_length=1)
    bytes_per_image: Amount  # as they are read
    tail: SampleTail | None = None  # spread of the reads of all rungs; None if they do not wait, and in older artifacts

    @property
    def wait_seconds(self) -> float:
        return max(0.0, self.latency_seconds - self.cpu_seconds)

    @property
    def waits(self) -> bool:
        """True if a read mostly waits, and more reads at a time were faster, as far as was measured."""
        waits = self.wait_seconds > max(WAITS_SECONDS, self.cpu_seconds)
        return waits and (self.at_once > 1 or len(self.rungs) == 1)

    @property
    def best_images_per_second(self) -> float:
        return max(rung.images_per_second for rung in self.rungs)

    @property
    def at_once(self) -> int:
        """The fewest reads at a time that came within a tenth of the highest rate."""
        return min(rung.at_once for rung in self.rungs if rung.images_per_second >= 0.9 * self.best_images_per_second)

    @property
    def saturated(self) -> bool:
        """True if more reads at a time were no faster, and the reader's own work takes no more than 0.7 of a core."""
        if len(self.rungs) < 2 or self.best_images_per_second * self.cpu_seconds > 0.7:
            return False
        before, last = self.rungs[-2:]
        return last.images_per_second < STILL_GAINS * before.images_per_second

    @property
    def most_at_once(self) -> int:
        return self.rungs[-1].at_once

    def images_per_second(self, at_once: int) -> float:
        """Return the expected rate with this many reads at a time; it scales if only one was measured."""
        return self.bound_images_per_second(at_once if len(self.rungs) == 1 else min(at_once, self.most_at_once))

    def bound_images_per_second(self, at_once: int) -> float:
        """Return the upper bound with this many reads at a time, by the latency of each and the measured rates."""
        free = at_once / self.latency_seconds
        return min(free, self.best_images_per_second) if self.saturated else free


WAITS_SECONDS = 0.0001  # an op or a read that waits by itself waits for longer; a read from the page cache does not
STILL_GAINS = 1.3  # times faster: four times as many reads at a time that are not have reached the storage's limit


class LoaderCeiling(Value):
    """The limits of the loader, which are the same for all setups of the model. None: not measured."""

    loader_images_per_second: Estimate | None = None  # the loader alone, without a model that waits for its batches
    op_costs: tuple[OpCost, ...] = ()  # the loader's work, op by op, with all cores busy
    reads: ReadCosts | None = None  # at a time; None for a dataset of the user's own
    tail: SampleTail | None = None  # how unequal samples are
    not_native: str | None = None  # why the native library makes no samples; None: it does
    read_bytes_per_second: Amount | None = None  # rate of the disk; None if trials find the files in memory
    compact_bytes: Count | None = None  # of a sample as it is handed over with `finish="device"`
    finished_bytes: Count | None = None  # the same with `finish="host"`
    depths: dict[str, int] = pydantic.Field(default_factory=dict)  # ops done before a storage form keeps a sample
    cores_elsewhere: Positive | None = None  # cores for workers that run elsewhere; None if not known

    @property
    def fixed(self) -> list[OpCost]:
        """The read and the deterministic first ops."""
        return [op for op in self.op_costs if op.part == "fixed"]

    def made_in_time(self, config: PipelineConfig, cores: int) -> float:
        """Return the images/s that the loader of a configuration makes before it keeps them, on so many cores."""
        assert self.loader_images_per_second is not None  # measured
        made, at_once = self.loader_images_per_second.value, config.loader.reads_at_once()
        if self.reads is None or not self.reads.waits:
            return made
        return min(made, self.reads.images_per_second(cores if config.kept.converts else at_once or cores))

    def sent_bytes(self, finish: str) -> int:
        """Return the bytes of a sample that is handed over so; 0 if not known."""
        return (self.finished_bytes if finish == "host" else None) or self.compact_bytes or 0


OVERTAKEN = 1.1  # times a limit (the model alone, say): a training faster than that shows that it was read too low


class Ceiling(OfSetup, LoaderCeiling):
    """The limits of every configuration with this `setup`, and their parts. None: not measured."""

    status: Literal["ceiling"] = "ceiling"
    schema_version: Literal[1] = 1
    model_images_per_second: Estimate  # the model alone, on a batch that is already there
    model_core_seconds_per_image: Amount  # processor time that one image costs while the model trains
    bytes_per_image: Amount | None = None  # as it is read
    transfer_seconds_per_image: Positive | None = None  # to send one to the device; None if it is used in place
    cores: Positive | None = None  # shared by the model and the loader
    # memory of the accelerator in use, by all processes, after the model has trained alone; None without one
    device_bytes: Count | None = None
    gradient_bytes: Count | None = None  # exchanged between devices in each step; None in an older artifact
    exchange_seconds: Amount | None = None  # of that on the devices of the setup, by itself; None on one device
    resources: Resources | None = None  # that the model alone takes; None if not requested
    bound_images_per_second: Amount | None = None  # the limit of the chosen configuration by these figures
    warnings: tuple[str, ...] = ()

    def is_overtaken_by(self, rate: Estimate) -> bool:
        """True if a training was so much faster that the model alone must have been measured on a busy machine."""
        return rate.value > OVERTAKEN * self.model_images_per_second.value

    def with_loader_of(self, other: LoaderCeiling) -> Ceiling:
        return self.model_copy(update={name: getattr(other, name) for name in LoaderCeiling.model_fields})


CODE: Final = "code"  # the parameter of what plain code cannot express; its values are the forms of such code


class Impossible(Value):
    """One setting that a workload rules out, and the reason."""

    parameter: str
    value: str | int
    reason: str


class OpRecord(Value):
    """One op and its settings, for messages about changes."""

    name: str = pydantic.Field(pattern=r"^[^\W\d]\w*$", max_length=256)
    settings: dict[str, str] = pydantic.Field(default_factory=dict)

    @property
    def text(self) -> str:
        return f"{self.name}({', '.join(f'{name}={text}' for name, text in self.settings.items())})"


class WrappedDataset(Value):
    """A dataset made by a function of the user's."""

    as_it_is: PipelineConfig  # the configuration that makes it as it is today
    choices: dict[str, tuple[bool | int | float | str, ...]]  # values that each of the function's parameters may take
    with_workers: bool = False  # loaders whose workers make its batches are tried, or named with the reason against it


class WorkloadDigest(Value):
    """The properties of a training that figures depend on."""

    samples: int = pydantic.Field(ge=0, le=2**62)  # in an epoch
    mean_bytes: Amount  # of a sample as it is read
    sizes: tuple[int, ...] = ()  # bytes of some samples, spread over the data
    ops: str  # a digest of the ops and their settings
    op_list: tuple[OpRecord, ...]  # the ops themselves, in order
    batch_size: int = pydantic.Field(ge=1)  # samples a batch, over all devices together
    model: str | None = None  # a digest of the model's structure, without its weights; None if no model was built


class Description(WorkloadDigest):
    """The facts about a workload that configurations are chosen by; made by a process that can import it."""

    status: Literal["described"] = "described"
    schema_version: Literal[1] = 1
    op_list: tuple[OpRecord, ...] = ()
    # all samples after the deterministic first ops, as a cache holds them, by an estimate if they differ in size; None
    # if not known
    fixed_bytes: Count | None = None
    compact_bytes: Count  # one sample as it is sent to a device that finishes
    finished_bytes: Count  # one sample as the model takes it
    # bytes of the whole set in a storage form, by the ops done before; exact if samples have one shape, else estimated
    # from a few: `{"array": {1: 2**30}}`
    cuts: dict[str, dict[int, int]] = pydantic.Field(default_factory=dict)
    first_ops: tuple[str, ...] = ()  # digests of no, one, two, ... of the deterministic first ops
    backend: str
    cores_left: int | None = pydantic.Field(default=None, ge=1)  # that are left to the process by what it has imported
    accelerators: Count = 0  # visible to the backend; 0 if it trains on the CPU
    virtual_devices: Count = 0  # parts of the CPU that stand for devices, if asked for
    impossible: tuple[Impossible, ...] = ()  # settings that cannot be used
    resident_share: Share | None = None  # of some files, in memory before the first measurement; None if unknown
    progressive_share: Share | None = None  # of some images as read, that are progressive JPEG; None of arrays
    counted: str | None = None  # the parts of x that make a sample; None if it is plainly an image
    storage_kind: str = "unknown"  # the file system that the samples lie on; "memory" for those in no file
    data_digest: str  # of the files: count, names, sizes, times
    pieces: tuple[int, str] | None = None  # number and digest of pieces that are kept in place of samples
    epochs: int | None = None
    validation: Count = 0  # samples that each epoch validates on
    wrapped: WrappedDataset | None = None  # for a dataset of the user's; None if autopipe makes the batches

    @property
    def digest(self) -> WorkloadDigest:
        """What an artifact keeps of the workload."""
        return WorkloadDigest(**{name: getattr(self, name) for name in WorkloadDigest.model_fields})

    @property
    def reads_alone(self) -> bool:
        """True if a dataset of the user's has neither a model nor a step: steps take no time."""
        return self.wrapped is not None and self.model is None

    @property
    def depths(self) -> dict[str, int]:
        """Return the number of ops that can be done before a storage form keeps a sample, by the form's name."""
        return {storage: max(sizes) for storage, sizes in self.cuts.items()}

    def against(self, parameter: str, value: object) -> str | None:
        """Return the reason against a setting; None if it can be used."""
        found = (each.reason for each in self.impossible if (each.parameter, each.value) == (parameter, value))
        return next(found, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The user's limits."""

    memory_bytes: int | None = None  # `--max-memory`, for the process tree of the training
    workers: int | None = None  # `--max-workers`
    convert: bool = True  # samples may be kept in another form on disk; `--convert` and `--no-convert`
    # `--only`: {"loader": ("threads", "tfdata")}
    only: Mapping[str, tuple[config.SettingValue, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The workload, the machine and the user's limits, as far as a search needs them."""

    workload: Description  # as the process of the trials describes it
    limits: Limits = field(default_factory=Limits)  # those of the search's settings
    cores: int  # usable cores, by affinity and cgroup
    gpus: int = 0  # devices that can share a batch: accelerators that Keras and NVML see, or virtual ones; else 1
    gpus_reason: str = ""  # why there are no more
    memory_bytes: int | None = None  # memory that is free for this run
    disk_bytes: int | None = None  # free bytes for converted samples
    device_bytes: int | None = None  # memory of an accelerator for model and samples; None without one
    model_device_bytes: int = 0  # of it in use while the model trains, by measurement
    accelerator: bool = True  # the model trains on a device to which batches are sent, and not on the cores
    reads_at_once: int | None = None  # useful reads at a time, by measurement; 1 if reads do not wait
    workers_at_once: int | None = None  # useful workers, by measurement: more than the cores if they wait
    # settings that can run without any gain, with the reason, such as {("channels", "first"): "there is no
    # accelerator"}; tried if the user names them
    pointless: Mapping[tuple[str, config.SettingValue], str] = field(default_factory=dict)

    @property
    def converting(self) -> Facts:
        return replace(self, limits=replace(self.limits, convert=True))

    @property
    def with_pointless(self) -> Facts:
        """Return a copy that rules out only what cannot run or is not allowed."""
        return replace(self, pointless={})
