"""What is known before a search: the machine as it is found here, and the workload as the child describes it."""

from __future__ import annotations

from pathlib import Path

from autopipe.core.description import Description
from autopipe.core.facts import Facts
from autopipe.hardware import disk
from autopipe.hardware.machine import Machine
from autopipe.tuned.schema import OpRecord, WorkloadDigest


def facts_of(machine: Machine, described: Description, folder: Path, *, simulated: bool = False) -> Facts:
    """Return the facts of a search; `folder` is where converted samples would be kept."""
    return Facts(
        cores=machine.cpu.cores,
        gpus=described.devices,
        batch_size=described.batch_size,
        memory_bytes=machine.memory.available_bytes,
        disk_bytes=disk.detect(folder).free_bytes,
        sample_count=described.samples,
        source_bytes=described.mean_bytes,
        accelerator=bool(machine.gpus) or simulated,
        prefix_bytes=described.fixed_bytes,
        cuts={
            storage: {each.cut: each.bytes for each in described.cuts if each.storage == storage}
            for storage in {each.storage for each in described.cuts}
        },
        compact_bytes=described.compact_bytes,
        finished_bytes=described.finished_bytes,
        impossible={(each.parameter, each.value): each.reason for each in described.impossible},
    )


def workload_digest(described: Description) -> WorkloadDigest:
    """Return what an artefact keeps of the workload."""
    return WorkloadDigest(
        samples=described.samples,
        mean_bytes=described.mean_bytes,
        sizes=described.sizes,
        ops=described.ops_digest,
        op_list=tuple(OpRecord(name=op.name, settings=op.settings) for op in described.ops),
        batch_size=described.batch_size,
        model=described.model_digest,
    )
