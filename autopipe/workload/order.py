"""Which samples make up each batch of an epoch: a function of (seed, epoch) and the numbers here, nothing else."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import ConfigError
from autopipe.workload import randomness


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchOrder:
    """Cuts each epoch into batches of sample indices."""

    count: int  # samples in the data
    batch_size: int  # samples a batch of this loader
    seed: int  # the workload's seed
    shuffle: bool  # whether each epoch has an order of its own; otherwise index order
    drop_remainder: bool  # whether a short last batch is left out
    # `(i, n)`: this loader takes the i-th of n disjoint parts, which together cover the epoch
    shard: tuple[int, int] = (0, 1)
    # `(i, n)`: this loader takes the i-th of n equal parts of each batch, which n of them share. All have as many
    # batches, with the numbers that one loader of the whole batches would give them
    rank: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        part, parts = self.shard
        if not 0 <= part < parts:
            raise ConfigError(f"`shard` must be (i, n) with 0 <= i < n, but got shard={self.shard}.")
        left = self._shard_samples % (self.batch_size * self.rank[1])
        if left % self.rank[1] and not self.drop_remainder:
            raise ConfigError(
                f"Each batch must divide equally between {self.rank[1]} processes, but the last one of an epoch holds "
                f"{left} samples.",
                hint="drop_remainder=True leaves it out.",
            )
        if self.batches == 0:
            held, whole = self._shard_samples, self.batch_size * self.rank[1]
            raise ConfigError(
                f"An epoch must hold a batch, but part {part} of {parts} holds {held} of {self.count} samples, "
                f"with batch_size={whole} and drop_remainder={self.drop_remainder}.",
                hint="Use fewer parts" + (", smaller batches, or drop_remainder=False." if held else "."),
            )

    @property
    def _shard_samples(self) -> int:
        part, parts = self.shard
        return (self.count - part + parts - 1) // parts

    @property
    def samples(self) -> int:
        """Samples that are this loader's in an epoch, before any remainder is dropped."""
        _, ranks = self.rank
        whole, rest = divmod(self._shard_samples, self.batch_size * ranks)
        return whole * self.batch_size + rest // ranks

    @property
    def batches(self) -> int:
        """Batches in an epoch."""
        whole, rest = divmod(self.samples, self.batch_size)
        return whole + (1 if rest and not self.drop_remainder else 0)

    @property
    def has_short_batch(self) -> bool:
        """Whether the last batch of an epoch is smaller than the others."""
        return self.samples % self.batch_size != 0 and not self.drop_remainder

    def epoch(self, number: int) -> NDArray[np.int64]:
        """Return the sample indices of an epoch in order, shape (samples,), 8 bytes a sample."""
        part, parts = self.shard
        if self.shuffle:
            order = randomness.epoch_order(self.seed, number, self.count)[part::parts]
        else:
            order = np.arange(part, self.count, parts, dtype=np.int64)
        return order if self.rank == (0, 1) else self._of_rank(order)

    def _of_rank(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return this rank's part of each batch, one after the other."""
        rank, ranks = self.rank
        full = len(order) - len(order) % (self.batch_size * ranks)
        own = order[:full].reshape(-1, ranks, self.batch_size)[:, rank].ravel()
        each = (len(order) - full) // ranks
        return np.concatenate([own, order[full + rank * each : full + (rank + 1) * each]])

    def batch_samples(self, batch: int) -> int:
        """Return how many samples batch number `batch` holds."""
        return min(self.batch_size, self.samples - batch * self.batch_size)
