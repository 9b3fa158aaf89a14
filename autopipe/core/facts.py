"""What is known before the first trial: about the machine, the workload, and what the user allows. Values only.

Who knows fills them in (`autopipe.api`); nothing here looks anything up. None means "not known", and then nothing is
left out because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autopipe.core.params import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The machine and the workload, as far as a search needs them.

    Attributes:
        cores: usable cores, by affinity and cgroup.
        gpus: devices that a batch can be shared out to: accelerators that Keras and NVML both see, virtual ones where
            those were asked for, else 1.
        gpus_reason: why there are no more.
        virtual: whether they are virtual: parts of the CPU.
        batch_size: samples a batch, over all devices together.
        memory_bytes: memory that is free for this run.
        disk_bytes: free bytes where converted samples would be kept.
        sample_count: samples an epoch.
        source_bytes: one sample as it is read.
        prefix_bytes: the whole data set after its deterministic first ops: what a cache would hold.
        cuts: the bytes that the whole set takes in a storage form, by the ops done before: `{"array": {1: 2**30}}`.
        compact_bytes: one sample as the loader hands it over with `finish="device"`.
        finished_bytes: one sample as the model takes it.
        accelerator: whether the model trains on something else than the cores, that batches have to be sent to.
        reads_at_once: how many reads at a time are of use, by measurement; 1 where reads do not wait.
        workers_at_once: how many workers are of use, by measurement: more than the cores where they wait.
        workers_beside_reads: the same where others read for them.
        impossible: settings that cannot run here or with this workload, with the reason:
            `{("loader", "tfdata"): "Map(augment, random=True) has no TensorFlow half"}`.
        pointless: settings that could run and bring nothing, with the reason; tried where the user names them.
    """

    cores: int
    gpus: int = 0
    gpus_reason: str = ""
    virtual: bool = False
    batch_size: int = 1
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    sample_count: int | None = None
    source_bytes: float | None = None
    prefix_bytes: int | None = None
    cuts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    compact_bytes: int | None = None
    finished_bytes: int | None = None
    accelerator: bool | None = None
    reads_at_once: int | None = None
    workers_at_once: int | None = None
    workers_beside_reads: int | None = None
    impossible: Mapping[tuple[str, Value], str] = field(default_factory=dict)
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
