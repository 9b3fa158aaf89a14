"""Samples that were skipped: counted by epoch, listed in a file, and refused where they are too many."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence

from autopipe.batching.kernel import BadSample
from autopipe.errors import DataError, DataWarning

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
