"""Fingerprints of machines and workloads, and the rule by which two of them are the same for a tuned configuration.

`compare_hardware` and `compare_workload` are the whole rule. What follows from a difference is decided elsewhere:
`autopipe.artifact.pick` takes a profile, `autopipe.artifact.drift` calls one stale.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import pydantic

from autopipe import frameworks
from autopipe.errors import BadSampleError
from autopipe.hardware import disk, machine
from autopipe.hardware.gpu import asked, keras_backend
from autopipe.measure.facts import OpRecord, WorkloadDigest
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.pipeline.wrap import OwnStep
from autopipe.values import Value
from autopipe.workload import digests
from autopipe.workload.data import source as data_source
from autopipe.workload.op import Plan
from autopipe.workload.ops import planner
from autopipe.workload.sample import Source
from autopipe.workload.workload import Workload

# -------------------- changes of ops, in words; their digest shows that there are any

_MODULE: Final = re.compile(r"[\w.<>-]+\.([\w<>]+:?[0-9a-f]{16})")
"""Matches a function or a callable object: its module, name and the digest of its code."""


def of_ops(known: Sequence[OpRecord], here: Sequence[OpRecord]) -> str:
    """Return the removed, added and changed ops, as "RandomFlip was removed"; a function's module does not count."""
    before, now = [*map(_key, known)], [*map(_key, here)]
    added = [op for op in here if _key(op) not in before]
    removed, changed = list[str](), list[str]()
    for op in (each for each in known if _key(each) not in now):
        if (other := next((each for each in added if each.name == op.name), None)) is None:
            removed.append(f"{op.name} was removed")
        else:
            added.remove(other)
            changed.append(_changed(op, other))
    if before != now and not (removed or added or changed):
        return "the ops are in another order or number"
    return ", ".join([*removed, *(f"{op.name} was added" for op in added), *changed])


def _key(op: OpRecord) -> str:
    return _MODULE.sub(r"\1", op.text)


def _changed(known: OpRecord, here: OpRecord) -> str:
    parts = list[str]()
    for name in (each for each in known.settings if each in here.settings):
        before, now = (_MODULE.sub(r"\1", each.settings[name]) for each in (known, here))
        code = before.partition(":")[0]
        of_code = ":" in before and code == now.partition(":")[0]  # a function, which is named by its code too
        said = f"the code of {code}" if of_code else f"{name} was {before} and is {now}"
        parts += [said] if before != now else []
    return f"{known.name} changed" + (f": {' and '.join(parts)}" if parts else "")


BACKEND: Final = "Keras backend"  # the `field` of that difference
_UNKNOWN = "unknown"  # before the workload is imported, the place of its data is not known
_NO_MATTER = frozenset({"optuna"})  # it searches, and has no part in a training

_Count = Annotated[int, pydantic.Field(ge=0, le=2**62)]


class Gpu(Value):
    """One graphics card."""

    name: str
    memory_bytes: _Count | None = None


class Hardware(Value):
    """The hardware and software that a figure depends on besides the workload."""

    cpu_model: str  # as in /proc/cpuinfo
    cores: int = pydantic.Field(ge=1, le=2**20)  # usable by the process, by affinity and cgroups
    memory_bytes: _Count  # usable by the process
    gpus: tuple[Gpu, ...] = ()  # visible to the process
    gpu_driver: str | None = None  # its version
    storage: str = "unknown"  # file system of the data, such as "ext4" or "nfs4 over the network"
    system: str  # the operating system and its kernel
    python: str  # its version
    packages: dict[str, str] = pydantic.Field(default_factory=dict)  # versions of the packages that do the work
    keras_backend: str | None = None  # of the training; None if not known
    visible_gpus: str | None = None  # the value of CUDA_VISIBLE_DEVICES; None if it was not set
    virtual_devices: int = pydantic.Field(default=0, ge=0)  # parts of the CPU that stood for devices; 0 if none did


class MatchLevel(enum.StrEnum):
    """The degree to which figures from one machine hold on another."""

    SAME = "same"
    NEAR = "near"  # the same processor and cards, in another number
    OTHER = "other"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field in which two fingerprints differ, in words."""

    field: str
    known: str
    here: str
    words: str | None = None

    def __str__(self) -> str:
        return self.words or f"{self.field}: {self.known} there, {self.here} here"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The result of comparing two machines."""

    level: MatchLevel  # the decisive one
    differences: tuple[Difference, ...] = ()  # in the hardware; none if it is the same
    software: tuple[Difference, ...] = ()  # differing versions: no other machine, but a profile may be stale


def compare_hardware(known: Hardware, here: Hardware) -> Match:
    """Compare machines: another model of processor or card is another one. Other numbers, memory, storage or another
    Keras backend are near. Versions of software are listed only.
    """
    models = [
        _difference("processor", known.cpu_model, here.cpu_model),
        _difference("GPU model", *(", ".join(sorted({gpu.name for gpu in each.gpus})) for each in (known, here))),
    ]
    amounts = [
        _difference("usable cores", known.cores, here.cores),
        _difference("GPUs", len(known.gpus), len(here.gpus)),
        _difference("virtual devices", known.virtual_devices, here.virtual_devices),
        _difference("GPU memory", _gpu_memory(known), _gpu_memory(here)) if known.gpus and here.gpus else None,
        # A kernel's own memory varies a little from one start to the next.
        _apart("memory", known.memory_bytes, here.memory_bytes, 0.05, machine.size_text),
        None if _UNKNOWN in (known.storage, here.storage) else _difference("storage", known.storage, here.storage),
        None
        if None in (known.keras_backend, here.keras_backend)
        else _difference(BACKEND, known.keras_backend, here.keras_backend),
    ]
    # Versions to the second number: bug fixes do not change speed, nor does what was not there at the tune.
    software = [
        _difference("operating system", known.system, here.system),
        _difference("GPU driver", _minor(known.gpu_driver), _minor(here.gpu_driver)),
        _difference("Python", _minor(known.python), _minor(here.python)),
        *(
            _difference(name, _minor(known.packages.get(name)), _minor(here.packages.get(name)))
            for name in sorted(known.packages)
        ),
    ]
    others, fewer = tuple(filter(None, models)), tuple(filter(None, amounts))
    level = MatchLevel.OTHER if others else MatchLevel.NEAR if fewer else MatchLevel.SAME
    return Match(level=level, differences=others + fewer, software=tuple(filter(None, software)))


def compare_workload(known: WorkloadDigest, here: WorkloadDigest) -> tuple[Difference, ...]:
    """Return the differences between two workloads that matter to speed. Ops and batch size must be equal, and the
    model, if both have built it; the data may grow a little.
    """
    found = [
        # The number does not change the speed until samples no longer fit a cache; reading them costs by their size.
        _apart("number of samples", known.samples, here.samples, 0.25),
        _apart("mean size of a sample", known.mean_bytes, here.mean_bytes, 0.10, machine.size_text),
        _difference("ops", known.ops, here.ops, words) if (words := of_ops(known.op_list, here.op_list)) else None,
        _difference("batch size", known.batch_size, here.batch_size),
        _difference("model", known.model, here.model, "the model's structure is another than it was")
        if known.model and here.model
        else None,
    ]
    return tuple(filter(None, found))


def detect(data: Source | None = None) -> Hardware:
    """Return the fingerprint of this machine, with the storage of `data`. Imports no framework."""
    return of_machine(machine.detect(), storage_of(data), keras_backend())


def of_machine(
    found: machine.Machine,
    storage: str = _UNKNOWN,
    keras_backend: str | None = None,
    virtual_devices: int | None = None,
) -> Hardware:
    """Return the fingerprint of a machine; by default, the environment gives the number of virtual devices."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") if found.gpus else None
    return Hardware(
        cpu_model=found.cpu.model,
        cores=found.cpu.cores,
        memory_bytes=found.memory.usable_bytes,
        gpus=tuple(Gpu(name=gpu.name, memory_bytes=gpu.memory_bytes) for gpu in found.gpus),
        gpu_driver=next((gpu.driver for gpu in found.gpus if gpu.driver), None),
        storage=storage,
        system=f"{found.os}, {_minor(found.kernel)}",
        python=found.python,
        packages={name: version for name, version in found.versions.items() if version and name not in _NO_MATTER},
        keras_backend=keras_backend,
        visible_gpus=None if visible is None else visible[:1024],  # sixteen UUIDs take 640
        virtual_devices=asked() if virtual_devices is None else virtual_devices,
    )


def storage_of(data: Source | None) -> str:
    """Return the kind of storage of the samples: a file system, that of a URL ("s3"), or "memory"."""
    if data is None:
        return _UNKNOWN
    if (remote := data_source.remote(data)) is not None:
        return remote
    if not (files := data_source.files(data, [0])):
        return "memory"
    found = disk.detect(Path(os.fspath(files[0])))
    return f"{found.kind} over the network" if found.network else found.kind


def workload_digest(workload: Workload, model: str | None = None) -> WorkloadDigest:
    """Return the digest of a workload, by a few samples. Raises BadSampleError unless bad ones are skipped."""
    return WorkloadDigest(
        samples=len(workload.data),
        mean_bytes=round(data_source.mean_bytes(workload.data), 1),
        sizes=tuple(_sizes(workload)),
        ops=digests.ops_digest(tuple(workload.ops)),
        op_list=ops_of(workload),
        batch_size=workload.batch_size,
        model=model,
    )


def ops_of(workload: Workload) -> tuple[OpRecord, ...]:
    """Return the ops of a workload as an artifact keeps them."""
    return tuple(OpRecord(name=op.name, settings=digests.op_settings(op)) for op in workload.ops)


def changed_since(known: WorkloadDigest, workload: Workload) -> tuple[str, ...]:
    """Return the changes of a workload since it was tuned, in words. Reads no sample."""
    size = f"the batch size was {known.batch_size} and is {workload.batch_size}"
    found = (of_ops(known.op_list, ops_of(workload)), size * (workload.batch_size != known.batch_size))
    return tuple(filter(None, found))


def _sizes(workload: Workload) -> Iterator[int]:
    """Yield the bytes of 16 samples, spread over the data, without bad ones that a training skips."""
    for index in sorted({int(index) for index in np.linspace(0, len(workload.data) - 1, 16)}):
        try:
            yield data_source.sample_bytes(planner.read(workload.data, index))
        except BadSampleError:
            if workload.on_bad_sample == "error":
                raise


def _difference(field: str, known: object, here: object, words: str | None = None) -> Difference | None:
    texts = {"known": known, "here": here}
    named = {name: "none" if value in (None, "") else str(value) for name, value in texts.items()}
    return None if known == here else Difference(field=field, words=words, **named)


def _minor(version: str | None) -> str | None:
    return None if version is None else ".".join(version.split(".")[:2])


def _apart(
    field: str, known: float, here: float, tolerance: float, text: Callable[[float], str] = str
) -> Difference | None:
    """Return the difference of two amounts if it exceeds this share of the larger one."""
    is_close = abs(known - here) <= tolerance * max(known, here)
    return None if is_close else _difference(field, text(known), text(here))


def _gpu_memory(hardware: Hardware) -> str:
    """Name the memory of each model once; the number of cards is a field of its own."""
    known = sorted(hardware.gpus, key=lambda gpu: (gpu.name, gpu.memory_bytes or 0))
    sizes = {gpu.name: gpu.memory_bytes for gpu in known}
    return ", ".join("unknown" if size is None else machine.size_text(size) for size in sizes.values())


# -------------------- the structure of a model. Keras is not imported.


def model_digest(model: Any) -> str:
    """Return a digest of a Keras model's structure, without names and connections of layers; of a simulated
    accelerator, by its step.
    """
    layers = frameworks.layers(model) if hasattr(model, "layers") else [model]
    optimizer = type(getattr(model, "optimizer", None)).__name__
    instead = getattr(model, "stands_for", None)  # of any other model the digest must not change
    step = []
    if isinstance(instead, SimulatedAccelerator):
        step = [f"{instead.step_seconds!r} {instead.batch_size!r}"]
    elif isinstance(instead, OwnStep):
        step = [repr(instead)]
    texts = list[str]()
    for layer in layers:
        shapes = [tuple(weight.shape) for weight in getattr(layer, "weights", ())]
        policy = getattr(getattr(layer, "dtype_policy", None), "name", None)
        texts.append(f"{type(layer).__name__} {policy} {shapes} {json.dumps(_settings(layer), sort_keys=True)}")
    return digests.digest(str(getattr(model, "input_shape", None)), optimizer, *step, *texts)


def _settings(layer: Any) -> dict[str, Any]:
    """Return a layer's public attributes; `get_config` has them too, but imports TensorFlow for any backend."""
    if hasattr(layer, "layers"):  # a container: its layers follow on their own
        return {}
    own = {name: value for name, value in vars(layer).items() if name not in ("name", "seed", "built")}
    return {name: _plain(value) for name, value in own.items() if not name.startswith("_")}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return getattr(value, "__name__", type(value).__name__)  # of an activation, its function's name


def first_ops(plan: Plan) -> tuple[str, ...]:
    """Return digests of the deterministic first ops of a plan: of none, the first, the first two and so on."""
    ops = [step.op for step in plan.prefix]
    return tuple(digests.ops_digest(ops[:cut]) for cut in range(len(ops) + 1))
