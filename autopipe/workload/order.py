"""The samples and random numbers of each epoch: pure functions of (seed, epoch) and the numbers here.

Nothing that remembers a previous call may go in here: any worker computes the numbers of any sample in any order.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import ConfigError, WorkloadError, shortened

# -------------------- randomness
# `_mix` is the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA
# 2014, with Stafford's variant 13 constants), used as a keyed hash over the counter words. Unlike NumPy's Philox it
# takes a whole batch of unrelated counters in one vectorised call.


# As arrays: of a batch's few numbers, a scalar's conversion would take longer than the arithmetic.
_GAMMA, _M1, _M2, _30, _27, _31, _11 = (
    np.array(word, np.uint64) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 30, 27, 31, 11)
)
_ORDER_STREAM = 0xFFFF_FFFF  # the stream of the epoch order; ops use their position in the op list


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z ^ (z >> _30)
    z *= _M1
    z ^= z >> _27
    z *= _M2
    z ^= z >> _31
    return z


def _absorb(state: NDArray[np.uint64], mixed: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = state ^ mixed
    state += _GAMMA
    return _mix(state)


@functools.lru_cache(maxsize=64)  # an epoch's batches begin with the same words, which take longer than their numbers
def _words(*values: int) -> NDArray[np.uint64]:
    """Return the hash state, shape (1,), of integers (modulo 2**64). The array is shared: do not write to it."""
    state = np.zeros(1, np.uint64)
    for value in values:
        state = _absorb(state, _mix(np.array([value % 2**64], np.uint64) + _GAMMA))
    return state


@functools.lru_cache(maxsize=64)
def _columns(seed: int, epoch: int, draws: tuple[tuple[int, int], ...]) -> NDArray[np.uint64]:
    """Return the hash state of each column of numbers, and the mixed counter of each. The array is shared."""
    words = [np.repeat(_words(seed, epoch, stream), count) for stream, count in draws]
    counters = [_mix(np.arange(count, dtype=np.uint64) + _GAMMA) for _, count in draws]
    return np.stack([np.concatenate(words), np.concatenate(counters)])


def uniforms(seed: int, epoch: int, indices: NDArray[np.integer], stream: int, draws: int) -> NDArray[np.float64]:
    """Return the random numbers of one op for some samples of one epoch: in [0, 1), shape (samples, draws), float64.
    They are a function of the arguments alone; `stream` is the op's position in the op list, so that two ops never
    share numbers.
    """
    words, counters = _columns(seed, epoch, ((stream, draws),))
    state = _absorb(words, _mix(np.asarray(indices).astype(np.uint64) + _GAMMA)[:, None])
    bits = _absorb(state, counters)
    bits >>= _11
    return bits.astype(np.float64) * 2.0**-53


def uniforms_of(
    seed: int, epoch: int, indices: NDArray[np.int64], draws: Sequence[tuple[int, int]]
) -> NDArray[np.float64]:
    """Return the numbers of several ops side by side: `draws` has the stream of each, and how many it takes."""
    if not draws:
        return np.empty((len(indices), 0))
    if native.why_not() is None:
        return native.uniforms(_columns(seed, epoch, tuple(draws)), np.ascontiguousarray(indices, np.int64))
    return np.concatenate([uniforms(seed, epoch, indices, *each) for each in draws], axis=1)


def generator(random: NDArray[np.float64]) -> np.random.Generator:
    """Return the generator of two of those numbers, for an op whose numbers follow another distribution."""
    return np.random.Generator(np.random.Philox(key=[int(number * 2**53) for number in random]))


def epoch_order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Return the shuffled order of `count` samples in an epoch: a permutation, shape (count,)."""
    key = int(_words(seed, epoch, _ORDER_STREAM)[0])
    return np.random.Generator(np.random.Philox(key=key)).permutation(count)


def block_order(seed: int, epoch: int, count: int, starts: Sequence[int], mixed: int) -> NDArray[np.int64]:
    """Return an epoch's order as `Blocks` has it, shape (count,); `starts` are the blocks' first samples, from 0."""
    key = int(_words(seed, epoch, _ORDER_STREAM)[0])
    random = np.random.Generator(np.random.Philox(key=key))
    turns = random.permutation(len(starts)) // mixed
    drawn = random.permutation(count)
    return drawn[np.argsort(np.repeat(turns, np.diff([*starts, count]))[drawn], kind="stable")]


# -------------------- order


@dataclasses.dataclass(frozen=True)
class Blocks:
    """An order of epochs that takes neighbours together: `ap.Workload(shuffle=ap.Blocks())`.

    Each epoch has the blocks in an order of its own, takes `mixed` of them at a time, and shuffles their samples among
    themselves. What neighbours share is then read and unpacked once: a volume for its slices, a chunk for its rows.
    Batches are less mixed than by `shuffle=True`, which a model may notice; a larger `mixed` mixes more.

    Attributes:
        size: samples of a block, by their numbers; None for the data's own blocks: the scenes or volumes of `Windows`.
        mixed: blocks whose samples are mixed, >= 1.

    Raises:
        WorkloadError: they are no whole numbers >= 1.
    """

    size: int | None = None
    mixed: int = 8

    def __post_init__(self) -> None:
        for name, value in (("size", 1 if self.size is None else self.size), ("mixed", self.mixed)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise WorkloadError(f"`{name}` of Blocks must be a whole number >= 1, but got {name}={value!r}.")


def check_part(name: str, part: Any) -> None:
    """Raise ConfigError unless a part is (i, n): the i-th of n."""
    is_pair = isinstance(part, Sequence) and [isinstance(each, int | np.integer) for each in part] == [True, True]
    if not is_pair or not 0 <= part[0] < part[1]:
        raise ConfigError(f"`{name}` must be (i, n) with 0 <= i < n, but got {name}={shortened(part)}.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchOrder:
    """Cuts each epoch into batches of sample indices."""

    count: int  # samples in the data
    batch_size: int  # samples a batch of this loader
    seed: int  # the workload's seed
    shuffle: bool  # whether each epoch has an order of its own; otherwise index order
    # the first sample of each block and how many blocks are mixed, if neighbours are shuffled together
    blocks: tuple[Sequence[int], int] | None = None
    drop_remainder: bool  # whether a short last batch is left out
    # `(i, n)`: this loader takes the i-th of n disjoint parts, which together cover the epoch
    shard: tuple[int, int] = (0, 1)
    # `(i, n)`: this loader takes the i-th of n equal parts of each batch. All n loaders have the same number of
    # batches, and the numbers that one loader of the whole batches would give them
    rank: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        check_part("shard", self.shard)
        check_part("rank", self.rank)
        part, parts = self.shard
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
        _, ranks = self.rank
        whole, rest = divmod(self._shard_samples, self.batch_size * ranks)
        return whole * self.batch_size + rest // ranks

    @property
    def batches(self) -> int:
        whole, rest = divmod(self.samples, self.batch_size)
        return whole + (1 if rest and not self.drop_remainder else 0)

    @property
    def has_short_batch(self) -> bool:
        return self.samples % self.batch_size != 0 and not self.drop_remainder

    def epoch(self, number: int) -> NDArray[np.int64]:
        """Return the sample indices of an epoch in order, shape (samples,), 8 bytes a sample."""
        part, parts = self.shard
        if self.shuffle and self.blocks is not None:
            order = block_order(self.seed, number, self.count, *self.blocks)[part::parts]
        elif self.shuffle:
            order = epoch_order(self.seed, number, self.count)[part::parts]
        else:
            order = np.arange(part, self.count, parts, dtype=np.int64)
        if self.rank == (0, 1):
            return order
        rank, ranks = self.rank
        full = len(order) - len(order) % (self.batch_size * ranks)
        own = order[:full].reshape(-1, ranks, self.batch_size)[:, rank].ravel()
        each = (len(order) - full) // ranks
        return np.concatenate([own, order[full + rank * each : full + (rank + 1) * each]])

    def batch_samples(self, batch: int) -> int:
        return min(self.batch_size, self.samples - batch * self.batch_size)
