"""What is known around a search: the machine and the workload before it, and the profile of this machine after it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from autopipe.artifact.schema import Profile
from autopipe.hardware import disk, memory
from autopipe.hardware.machine import Machine
from autopipe.measure import fingerprint
from autopipe.measure.facts import Description, Facts
from autopipe.measure.fingerprint import Hardware, WorkloadDigest
from autopipe.pipeline.params import Value
from autopipe.search import asking
from autopipe.search.library import OnMachine
from autopipe.search.result import Result
from autopipe.search.settings import Settings
from autopipe.values import count_text


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The machine, the workload and the space of a search."""

    machine: Machine
    described: Description
    space: OnMachine  # as its file was read
    folder: Path  # where converted samples would be kept

    @property
    def hardware(self) -> Hardware:
        """The fingerprint of the machine."""
        return hardware_of(self.machine, self.described)


def facts_of(machine: Machine, described: Description, folder: Path, *, simulated: bool = False) -> Facts:
    """Return the facts of a search, with the memory and disk that are free now; `folder` is for converted samples."""
    devices, reason = devices_of(described, len(machine.gpus))
    accelerated = described.accelerators > 0
    pointless: dict[tuple[str, Value], str] = {}
    if not accelerated:
        takes = "a simulated accelerator takes either order alike" if simulated else "there is no accelerator"
        pointless["channels", "first"] = takes
    return Facts(
        workload=described,
        cores=machine.cpu.cores,
        gpus=devices,
        gpus_reason=reason,
        memory_bytes=memory.detect().available_bytes,
        disk_bytes=disk.detect(folder).free_bytes,
        accelerator=accelerated or simulated,
        pointless=pointless,
    )


def hardware_of(machine: Machine, described: Description) -> Hardware:
    """Return the fingerprint of a machine that trains a workload."""
    return fingerprint.of_machine(machine, described.storage_kind, described.backend, described.virtual_devices)


def devices_of(described: Description, nvml: int) -> tuple[int, str]:
    """Return how many devices can share a batch, by what Keras and `nvml` see, and the reason for the limit."""
    seen, named = described.accelerators, f"Keras's {described.backend} backend"
    if described.virtual_devices:
        return described.virtual_devices, f"{described.virtual_devices} virtual devices were asked for"
    by_keras, by_nvml = count_text(seen, "device"), count_text(nvml, "device")
    if seen and nvml:
        return min(seen, nvml), f"{named} sees {by_keras}, NVML {by_nvml}"
    if seen:
        return 1, f"{named} sees {by_keras}, but NVML none, so that nothing could be told of more than one"
    if nvml:
        return 1, f"NVML sees {by_nvml}, but {named} none: it trains on the CPU"
    return 1, "there is no accelerator"


def workload_digest(described: Description) -> WorkloadDigest:
    """Return the digest of the workload that an artefact keeps."""
    return WorkloadDigest(
        samples=described.samples,
        mean_bytes=described.mean_bytes,
        sizes=described.sizes,
        ops=described.ops_digest,
        op_list=described.ops,
        batch_size=described.batch_size * described.hosts,
        model=described.model_digest,
    )


def profile_of(
    result: Result, described: Description, hardware: Hardware, settings: Settings, *, retune: bool = False
) -> Profile | None:
    """Return the profile that the artefact keeps of a search; None if the search found nothing to use.

    `settings` are the search's. Those of a retune are a part of the tune's, of which the profile keeps the whole.
    """
    if result.winner is None:
        return None
    return Profile(
        hardware=hardware,
        workload=workload_digest(described),
        request=asking.kept(settings, retune=retune),
        measured_at=result.ended_at,
        result=result,
    )
