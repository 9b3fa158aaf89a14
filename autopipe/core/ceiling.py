"""What was measured of a workload before its configurations: the model alone, each op, and the reads.

Values only; `autopipe.core.costs` makes predictions of them, `bounds` there says what limits a configuration.
"""

from __future__ import annotations

from typing import Literal

import pydantic

from autopipe.core.config import OfSetup
from autopipe.core.value import Estimate, Value


class OpCost(Value):
    """What one op costs on one core.

    Attributes:
        name: the op, or "read".
        part: when it runs: "fixed" ops can be kept in a cache or another storage, "fresh" ones run every epoch on the
            host, "finish" ones may run on the device.
        seconds_per_image: processor time.
        wait_seconds_per_image: time in which it waits and takes no processor: a disk, a network, a sleep.
        lock_seconds_per_image: the part of the processor time for which it holds Python's lock.
        alone_seconds_per_image: the processor time in a process of its own, where that is another; else None.
    """

    name: str
    part: Literal["fixed", "fresh", "finish"]
    seconds_per_image: float = pydantic.Field(ge=0)
    wait_seconds_per_image: float = pydantic.Field(default=0.0, ge=0)
    lock_seconds_per_image: float = pydantic.Field(default=0.0, ge=0)
    alone_seconds_per_image: float | None = pydantic.Field(default=None, ge=0)

    @property
    def alone(self) -> OpCost:
        """What it costs in a process of its own."""
        if (busy := self.alone_seconds_per_image) is None:
            return self
        locked = min(self.lock_seconds_per_image, busy)
        return self.model_copy(
            update={"seconds_per_image": busy, "lock_seconds_per_image": locked, "alone_seconds_per_image": None}
        )

    @property
    def wall_seconds_per_image(self) -> float:
        """What a worker spends on it."""
        return self.seconds_per_image + self.wait_seconds_per_image

    def times(self, share: float) -> OpCost:
        """Return what it costs where only this share of the samples goes through it."""
        names = ("seconds_per_image", "wait_seconds_per_image", "lock_seconds_per_image")
        return self.model_copy(update={name: share * getattr(self, name) for name in names})


class ReadRung(Value):
    """How fast samples were read with so many reads at a time."""

    at_once: int = pydantic.Field(ge=1)
    images_per_second: float = pydantic.Field(gt=0)


FEWEST_OF_A_TAIL = 100
"""Samples that it takes to tell what the slowest in a hundred do."""


class SampleTail(Value):
    """How unequal samples are: seconds of reading and of all ops one after the other; or of reading, many at a time.

    Attributes:
        samples: how many were timed.
        p50_seconds: half of them take less.
        p95_seconds: 95 % take less.
        p99_seconds: 99 % take less.
        slowest_share: the part of all time that the slowest 1 % take, 0 to 1.
        slowest: name of the slowest one.
    """

    samples: int = pydantic.Field(ge=1)
    p50_seconds: float = pydantic.Field(ge=0)
    p95_seconds: float = pydantic.Field(ge=0)
    p99_seconds: float = pydantic.Field(ge=0)
    slowest_share: float = pydantic.Field(ge=0, le=1)
    slowest: str = ""

    @property
    def heavy(self) -> bool:
        """Whether the slowest 1 % take more than a tenth of the time."""
        return self.samples >= FEWEST_OF_A_TAIL and self.slowest_share > 0.1


class ReadCosts(Value):
    """What reading does when several samples are read at a time, as far as it was measured.

    Attributes:
        latency_seconds: of one read with no other beside it, waiting and processor time, on average.
        cpu_seconds: the processor time in it.
        rungs: images/s by the number of reads at a time, ascending; the last brought little over the one before, or
            time was up. Of reads that do not wait there is the first only.
        bytes_per_image: as they are read.
        tail: how unequal the reads of all rungs are, if they wait; None if they do not, and in older artefacts.
    """

    latency_seconds: float = pydantic.Field(gt=0)
    cpu_seconds: float = pydantic.Field(ge=0)
    rungs: tuple[ReadRung, ...] = pydantic.Field(min_length=1)
    bytes_per_image: float = pydantic.Field(ge=0)
    tail: SampleTail | None = None

    @property
    def wait_seconds(self) -> float:
        """How long a read waits."""
        return max(0.0, self.latency_seconds - self.cpu_seconds)

    @property
    def waits(self) -> bool:
        """Whether a read waits for most of its time, and more of them at a time bring more, as far as was seen."""
        waits = self.wait_seconds > max(_WAITING_SECONDS, self.cpu_seconds)
        return waits and (self.at_once > 1 or len(self.rungs) == 1)

    @property
    def best_images_per_second(self) -> float:
        """The highest rate that was seen."""
        return max(rung.images_per_second for rung in self.rungs)

    @property
    def at_once(self) -> int:
        """The fewest reads at a time that came within a tenth of the highest rate."""
        return min(rung.at_once for rung in self.rungs if rung.images_per_second >= 0.9 * self.best_images_per_second)

    @property
    def saturated(self) -> bool:
        """Whether more reads at a time had stopped to bring more, and that not for want of processor time."""
        if len(self.rungs) < 2 or self.best_images_per_second * self.cpu_seconds > _BUSY:
            return False
        before, last = self.rungs[-2:]
        return last.images_per_second < STILL_GAINS * before.images_per_second

    @property
    def most_at_once(self) -> int:
        """The most reads at a time that were measured."""
        return self.rungs[-1].at_once

    def images_per_second(self, at_once: int) -> float:
        """Return the rate that so many reads at a time promise: more than were measured promise no more.

        Where only one at a time was measured, as it hardly waits, or for a machine that is asked about, all do as well.
        """
        return self.bound_images_per_second(at_once if len(self.rungs) == 1 else min(at_once, self.most_at_once))

    def bound_images_per_second(self, at_once: int) -> float:
        """Return the rate that so many reads at a time cannot exceed, by the latency of each and by what was seen."""
        free = at_once / self.latency_seconds
        return min(free, self.best_images_per_second) if self.saturated else free


_WAITING_SECONDS = 0.0001  # a read from the page cache waits for less
_BUSY = 0.7  # of a core: beyond it the reader's own work may be the limit
STILL_GAINS = 1.3
"""Four times as many reads at a time that bring less than this much more have come to what the storage gives."""


_OF_THE_LOADER = (
    "loader_images_per_second",
    "op_costs",
    "reads",
    "tail",
    "read_bytes_per_second",
    "compact_bytes",
    "finished_bytes",
    "depths",
    "cores_elsewhere",
)
OVERTAKEN = 1.1
"""Times a limit: a training that is faster than that shows that the limit, the model alone say, was read too low."""


class Ceiling(OfSetup, Value):
    """What no configuration with this `setup` can exceed, and what it is made of. None where it was not measured.

    Attributes:
        model_images_per_second: the model alone, on a batch that is already there.
        model_core_seconds_per_image: processor time that one image costs while the model trains.
        loader_images_per_second: the loader alone, with nobody waiting for its batches.
        op_costs: the loader's work, op by op, with all cores busy.
        reads: how reading scales with the number of reads at a time; None for a dataset of the user's own.
        tail: how unequal samples are.
        read_bytes_per_second: how fast the files come from the disk; None where trials find them in memory.
        bytes_per_image: as it is read.
        compact_bytes: of a sample as it is handed over with `finish="device"`.
        finished_bytes: the same with `finish="host"`.
        depths: how many ops can be done before a storage form keeps a sample, by its name.
        transfer_seconds_per_image: to send an image to the device; None where a batch is used where it lies.
        cores: how many cores the model and the loader share.
        cores_elsewhere: how many cores there are for workers that run elsewhere; None if that is not known.
        gradient_bytes: what devices exchange in each step; None where it was not asked for.
        exchange_seconds: that this takes on the devices of the setup; None where it was not asked for, or on one.
        bound_images_per_second: what these figures together allow the configuration that was chosen.
    """

    status: Literal["ceiling"] = "ceiling"
    schema_version: Literal[1] = 1
    model_images_per_second: Estimate
    model_core_seconds_per_image: float = pydantic.Field(ge=0)
    loader_images_per_second: Estimate | None = None
    op_costs: tuple[OpCost, ...] = ()
    reads: ReadCosts | None = None
    tail: SampleTail | None = None
    read_bytes_per_second: float | None = pydantic.Field(default=None, ge=0)
    bytes_per_image: float | None = pydantic.Field(default=None, ge=0)
    compact_bytes: int | None = pydantic.Field(default=None, ge=0)
    finished_bytes: int | None = pydantic.Field(default=None, ge=0)
    depths: dict[str, int] = pydantic.Field(default_factory=dict)
    transfer_seconds_per_image: float | None = pydantic.Field(default=None, gt=0)
    cores: float | None = pydantic.Field(default=None, gt=0)
    cores_elsewhere: float | None = pydantic.Field(default=None, gt=0)
    gradient_bytes: int | None = pydantic.Field(default=None, ge=0)
    exchange_seconds: float | None = pydantic.Field(default=None, ge=0)
    bound_images_per_second: float | None = pydantic.Field(default=None, ge=0)
    warnings: tuple[str, ...] = ()

    def is_overtaken_by(self, rate: Estimate) -> bool:
        """Whether a training ran so much faster that the model alone was read while something else had the machine.

        The interval of an unsteady rate does not count: no part of it above the ceiling can be true.
        """
        return rate.value > OVERTAKEN * self.model_images_per_second.value

    def with_loader_of(self, other: Ceiling) -> Ceiling:
        """Return the same with what `other`, of another setup of the model, tells of the loader: it is one for all."""
        return self.model_copy(update={name: getattr(other, name) for name in _OF_THE_LOADER})
