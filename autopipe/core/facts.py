"""What is known before the first trial: about the machine, the workload, and what the user allows. Values only.

Who knows fills them in (`autopipe.api`); nothing here looks anything up. None means "not known", and then nothing is
left out because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autopipe.core.description import Description
from autopipe.core.params import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The machine and the workload, as far as a search needs them.

    Attributes:
        workload: as the process of the trials describes it.
        cores: usable cores, by affinity and cgroup.
        gpus: devices that a batch can be shared out to: accelerators that Keras and NVML both see, virtual ones where
            those were asked for, else 1.
        gpus_reason: why there are no more.
        memory_bytes: memory that is free for this run.
        disk_bytes: free bytes where converted samples would be kept.
        accelerator: whether the model trains on something else than the cores, that batches have to be sent to.
        reads_at_once: how many reads at a time are of use, by measurement; 1 where reads do not wait.
        workers_at_once: how many workers are of use, by measurement: more than the cores where they wait.
        workers_beside_reads: the same where others read for them.
        pointless: settings that could run and bring nothing, with the reason; tried where the user names them:
            `{("channels", "first"): "there is no accelerator"}`.
    """

    workload: Description
    cores: int
    gpus: int = 0
    gpus_reason: str = ""
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    accelerator: bool = True
    reads_at_once: int | None = None
    workers_at_once: int | None = None
    workers_beside_reads: int | None = None
    pointless: Mapping[tuple[str, Value], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the user allows.

    Attributes:
        memory_bytes: `--max-memory`, for the process tree of the training.
        workers: `--max-workers`.
        cpu_percent: `--max-cpu`; one busy core is 100.
        convert: whether samples may be kept in another form on disk; `--convert` and `--no-convert`.
        only: `--only`, e.g. `{"loader": ("threads", "tfdata")}`.
    """

    memory_bytes: int | None = None
    workers: int | None = None
    cpu_percent: float | None = None
    convert: bool = True
    only: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
