"""What is known before the first trial: about the machine, the workload, and what the user allows. Values only.

Who knows fills them in (`autopipe.api`); nothing here looks anything up. None means "not known", and then nothing is
left out because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autopipe.core import params
from autopipe.core.description import Description


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the user allows."""

    memory_bytes: int | None = None  # `--max-memory`, for the process tree of the training
    workers: int | None = None  # `--max-workers`
    cpu_percent: float | None = None  # `--max-cpu`; one busy core is 100
    convert: bool = True  # whether samples may be kept in another form on disk; `--convert` and `--no-convert`
    # `--only`: {"loader": ("threads", "tfdata")}
    only: Mapping[str, tuple[params.Value, ...]] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The workload, the machine and what the user allows, as far as a search needs them."""

    workload: Description  # as the process of the trials describes it
    limits: Limits = field(default_factory=Limits)  # those of the search's settings
    cores: int  # usable cores, by affinity and cgroup
    # devices that can share a batch: accelerators that Keras and NVML both see, virtual ones if asked for, else 1
    gpus: int = 0
    gpus_reason: str = ""  # why there are no more
    memory_bytes: int | None = None  # memory that is free for this run
    disk_bytes: int | None = None  # free bytes where converted samples would be kept
    accelerator: bool = True  # whether the model trains on something else than the cores, which batches are sent to
    reads_at_once: int | None = None  # how many reads at a time are of use, by measurement; 1 where reads do not wait
    workers_at_once: int | None = None  # how many workers are of use, by measurement: above the cores where they wait
    workers_beside_reads: int | None = None  # the same where others read for them
    workers_elsewhere: int | None = None  # the same of workers that run on other cores than the training
    # settings that could run and bring nothing, with the reason, such as {("channels", "first"): "there is no
    # accelerator"}; tried where the user names them
    pointless: Mapping[tuple[str, params.Value], str] = field(default_factory=dict)

    @property
    def converting(self) -> Facts:
        """The same, if the user let samples be kept in another form."""
        return replace(self, limits=replace(self.limits, convert=True))

    @property
    def unmeasured(self) -> Facts:
        """The same without what measurements say is of no use."""
        measured = ("reads_at_once", "workers_at_once", "workers_beside_reads", "workers_elsewhere")
        return replace(self, **dict.fromkeys(measured), pointless={})
