"""The ledger of bad samples: counts those that were skipped, lists them in a file, and says when there are too many."""

from __future__ import annotations

import json
from collections.abc import Sequence

from autopipe.batching.kernel import BadSample
from autopipe.errors import DataError

_TOLERATED_SHARE = 0.01


class BadSampleLedger:
    """Counts the bad samples of each epoch, each sample once however often the epoch is read, as validation does."""

    def __init__(self, path: str, samples: int) -> None:
        """List bad samples in the file `path`; an epoch has `samples` samples."""
        self._path = path
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
        with open(self._path, "a", encoding="utf-8") as file:
            for sample in fresh:
                row = {"index": sample.index, "replaced_by": sample.replaced_by, "message": sample.message}
                file.write(json.dumps(row) + "\n")
        if len(indices) > self._tolerated:
            raise DataError(
                f"{len(indices)} samples of epoch {epoch} are bad, "
                f"more than the {self._tolerated} (1 %) that are skipped; "
                f"the last: {bad[-1].message}",
                hint=f"They are listed in {self._path}.",
            )
