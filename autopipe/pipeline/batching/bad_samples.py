"""Samples that cannot be used: counted by epoch, listed in a file, refused if they are too many, and found again.

tf.data loses the error on its way: what arrives is its own, with a text. The batch is then made once more by the
kernel, which names op and sample.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence

from autopipe.errors import AutopipeError, ConfigError, DataError, DataWarning
from autopipe.pipeline.batching.kernel import BadSample, Kernel
from autopipe.pipeline.batching.slots import RowLayout, SharedBlock
from autopipe.pipeline.job import LoadJob

_TOLERATED_SHARE = 0.01  # of an epoch's samples, which may be bad


class BadSampleLedger:
    """Counts the bad samples of each epoch, each sample once however often the epoch is read, as validation does."""

    def __init__(self, path: str, samples: int) -> None:
        """List bad samples in the file `path`; an epoch has `samples` samples."""
        self._path = path
        self._unwritten = path == os.devnull
        self._tolerated = max(1, int(samples * _TOLERATED_SHARE))
        self._listed: set[int] = set()
        self._bad: dict[int, set[int]] = {}

    @property
    def counts(self) -> dict[int, int]:
        """Bad samples by epoch."""
        return {epoch: len(indices) for epoch, indices in self._bad.items()}

    def record(self, epoch: int, bad: Sequence[BadSample]) -> None:
        """Note the bad samples of one batch.

        Raises:
            DataError: more than 1 % of the epoch's samples (and more than one) are bad.
        """
        if not bad:
            return
        indices = self._bad.setdefault(epoch, set())
        indices.update(sample.index for sample in bad)
        fresh = [sample for sample in bad if sample.index not in self._listed]
        self._listed.update(sample.index for sample in fresh)
        self._list(fresh)
        if len(indices) > self._tolerated:
            raise DataError(
                f"{len(indices)} samples of epoch {epoch} are bad, "
                f"more than the {self._tolerated} (1 %) that are skipped; the last: {bad[-1].message}",
                hint="`autopipe verify --files` lists all." if self._unwritten else f"They are listed in {self._path}.",
            )

    def _list(self, samples: Sequence[BadSample]) -> None:
        """Write samples to the file; no training ends because that is not possible."""
        rows = ({"index": each.index, "replaced_by": each.replaced_by, "message": each.message} for each in samples)
        try:
            with open(self._path, "a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(row)}\n" for row in rows)
        except OSError as error:
            if not self._unwritten:
                self._unwritten = True
                warnings.warn(
                    f"Skipped samples cannot be listed in `{self._path}`: {error.strerror}. `bad_sample_log` of the "
                    "workload names another file.",
                    DataWarning,
                    stacklevel=2,
                )


def failure_of(job: LoadJob, epoch: int, batch: int) -> AutopipeError | None:
    """Return the error that the kernel raises on a batch, with its cause, or None if it makes it."""
    indices = job.order.epoch(epoch)[batch * job.order.batch_size :][: job.order.batch_size]
    layout = RowLayout(job.recipe.spec, len(indices))
    try:
        Kernel(job.recipe).fill(epoch, indices, layout.arrays(SharedBlock(layout.size)))
    except AutopipeError as error:
        return error
    return None


def refuse_skipping(job: LoadJob, kind: str) -> None:
    """Refuse a workload that skips bad samples, for a loader that cannot count them.

    Raises:
        ConfigError: the workload has `on_bad_sample="skip"`.
    """
    if job.recipe.on_bad_sample == "skip":
        raise ConfigError(
            f'The `{kind}` loader cannot replace and count bad samples, but the workload has on_bad_sample="skip".',
            hint="Use the `threads` or `processes` loader, or remove the bad samples.",
        )
