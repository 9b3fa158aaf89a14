"""Verification: do all configurations give the batches that the workload asks for, the same samples with the same
pixels?

Each configuration is run twice over a part of the data: as it is, and over samples that are nothing but their numbers,
which tells missing and repeated samples from changed ones.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe import assembly
from autopipe.core.config import PipelineConfig
from autopipe.core.report import Report
from autopipe.core.sample import FieldKind
from autopipe.core.verification import Agreement, Verification
from autopipe.core.workload import Workload
from autopipe.errors import AutopipeError
from autopipe.loaders.threads import Threads
from autopipe.measure.subset import Subset

_REFERENCE = PipelineConfig(loader=Threads(workers=1, queue_size=1), finish="host", device_prefetch=0)


class _Numbers:
    """A source of samples that are one dark pixel, with their numbers for targets."""

    x_kind, y_kind = FieldKind.IMAGE, FieldKind.LABEL

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def read(self, index: int) -> tuple[NDArray[np.uint8], int]:
        return np.zeros((1, 1, 1), np.uint8), index


def verify(workload: Workload, configs: Sequence[PipelineConfig], *, samples: int, report: Report) -> Verification:
    """Compare the first epoch of each configuration with that of one thread, over at most `samples` samples."""
    part = dataclasses.replace(workload, data=Subset(workload.data, samples), drop_remainder=False)
    part = dataclasses.replace(part, batch_size=min(part.batch_size, len(part.data)))
    numbered = dataclasses.replace(part, data=_Numbers(len(part.data)), ops=())
    reference = _Epoch.of(part, numbered, _REFERENCE)
    agreements = []
    for config in configs:
        try:
            agreements.append(_compare(config, reference, _Epoch.of(part, numbered, config)))
        except AutopipeError as error:
            agreements.append(
                Agreement(config=config.model_dump(mode="json"), digest="", samples=0, message=str(error))
            )
        report.progress(len(agreements), 0.0)
    return Verification(agreements=tuple(agreements))


@dataclasses.dataclass(frozen=True, slots=True)
class _Epoch:
    """One epoch, sample by sample: `x` and `y` in the order in which they came, and the numbers of the samples."""

    x: NDArray[Any]
    y: NDArray[Any] | None
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, workload: Workload, numbered: Workload, config: PipelineConfig) -> _Epoch:
        x, y = _collected(workload, config)
        _, numbers = _collected(numbered, config)
        if numbers is None:
            raise RuntimeError("a source of numbered samples gave no numbers")
        return cls(
            _channels_last(x, config), None if y is None else _channels_last(y, config), numbers.astype(np.int64)
        )

    def digest(self) -> str:
        found = hashlib.sha256(np.ascontiguousarray(self.x).tobytes())
        found.update(b"" if self.y is None else np.ascontiguousarray(self.y).tobytes())
        return found.hexdigest()[:16]


def _collected(workload: Workload, config: PipelineConfig) -> tuple[NDArray[Any], NDArray[Any] | None]:
    with assembly.build_loader(workload, config) as loader:
        batches = [(np.array(x), None if y is None else np.array(y)) for x, y in loader.epoch(0)]
    xs, ys = zip(*batches, strict=True)
    return np.concatenate(xs), None if ys[0] is None else np.concatenate(ys)


def _channels_last(array: NDArray[Any], config: PipelineConfig) -> NDArray[Any]:
    return np.moveaxis(array, 1, -1) if config.channels == "first" and array.ndim == 4 else array


def _compare(config: PipelineConfig, reference: _Epoch, epoch: _Epoch) -> Agreement:
    counts = np.bincount(epoch.numbers, minlength=len(reference.numbers))
    same_order = np.array_equal(epoch.numbers, reference.numbers)
    messages: list[str] = []
    if not same_order:
        messages.append("the samples come in another order")
    if not _equal(epoch.y, reference.y):
        messages.append("the targets differ")
    return Agreement(
        config=config.model_dump(mode="json"),
        digest=epoch.digest(),
        samples=len(epoch.numbers),
        largest_difference=_largest_difference(reference, epoch),
        largest_value=float(np.max(np.abs(reference.x), initial=0)),
        missing=int(np.count_nonzero(counts == 0)),
        repeated=int(np.count_nonzero(counts > 1)),
        message="; ".join(messages) or None,
    )


def _equal(first: NDArray[Any] | None, second: NDArray[Any] | None) -> bool:
    return (first is None and second is None) or (
        first is not None and second is not None and np.array_equal(first, second)
    )


def _largest_difference(reference: _Epoch, epoch: _Epoch) -> float:
    """Return the largest difference of a value between samples of the same number."""
    place = {number: position for position, number in enumerate(reference.numbers.tolist())}
    largest = 0.0
    for row, number in _numbered_rows(epoch):
        if number in place and row.size:
            other = reference.x[place[number]]
            largest = max(largest, float(np.max(np.abs(row.astype(np.float64) - other))))
    return largest


def _numbered_rows(epoch: _Epoch) -> Iterable[tuple[NDArray[Any], int]]:
    return zip(epoch.x, epoch.numbers.tolist(), strict=True)


def repeats(workload: Workload, configs: Sequence[PipelineConfig], *, samples: int, report: Report) -> Verification:
    """Look at the first `samples` samples of an epoch with each configuration, and count those that came before.

    Samples are the same where all bytes of x and y are. What the data hold twice is counted, too.
    """
    agreements = []
    for config in configs:
        as_data = config.model_dump(mode="json")
        try:
            with assembly.build_loader(workload, config) as loader:
                seen = list(_digests(loader.epoch(0), samples))
        except AutopipeError as error:
            agreements.append(Agreement(config=as_data, digest="", samples=0, message=str(error)))
        else:
            whole = hashlib.blake2b(b"".join(seen), digest_size=8).hexdigest()
            repeated = len(seen) - len(set(seen))
            agreements.append(Agreement(config=as_data, digest=whole, samples=len(seen), repeated=repeated))
        report.progress(len(agreements), 0.0)
    return Verification(agreements=tuple(agreements), compared=False)


def _digests(batches: Iterable[Any], samples: int) -> Iterable[bytes]:
    for x, y in batches:
        for row in range(len(x)):
            if samples <= 0:
                return
            samples -= 1
            found = hashlib.blake2b(np.ascontiguousarray(x[row]).tobytes(), digest_size=16)
            found.update(b"" if y is None else np.ascontiguousarray(y[row]).tobytes())
            yield found.digest()
