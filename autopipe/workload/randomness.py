"""Randomness as data: every random number of an epoch is a function of (seed, epoch, sample, op).

A counter-based generator needs no state, so any worker can compute the numbers of any sample in any order and
get the same ones. What must not go in here: anything that remembers a previous call.

`_mix` is the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
OOPSLA 2014, with Stafford's variant 13 constants), used as a keyed hash over the counter words. Unlike NumPy's
Philox it takes a whole batch of unrelated counters in one vectorised call.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

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


def _absorb(state: NDArray[np.uint64], word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return _absorb_mixed(state, _mix(word + _GAMMA))


def _absorb_mixed(state: NDArray[np.uint64], mixed: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = state ^ mixed
    state += _GAMMA
    return _mix(state)


@functools.lru_cache(maxsize=16)
def _mixed_counters(draws: int) -> NDArray[np.uint64]:
    return _mix(np.arange(draws, dtype=np.uint64)[None, :] + _GAMMA)


@functools.lru_cache(maxsize=64)  # an epoch's batches begin with the same words, which take longer than their numbers
def _words(*values: int) -> NDArray[np.uint64]:
    """Return the hash state, shape (1,), of a tuple of integers (taken modulo 2**64). It is shared: read only."""
    state = np.zeros(1, np.uint64)
    for value in values:
        state = _absorb(state, np.array([value % 2**64], np.uint64))
    return state


def uniforms(seed: int, epoch: int, indices: NDArray[np.integer], stream: int, draws: int) -> NDArray[np.float64]:
    """Return the random numbers of one op for some samples of one epoch.

    Args:
        seed: the workload's seed.
        epoch: the epoch's number, from 0.
        indices: sample indices, shape (n,).
        stream: the op's position in the op list; two ops never share numbers.
        draws: how many numbers the op needs for each sample.

    Returns:
        Numbers in [0, 1), shape (n, draws), float64, a function of the arguments alone.
    """
    state = _absorb(_words(seed, epoch, stream), np.asarray(indices).astype(np.uint64))
    bits = _absorb_mixed(state[:, None], _mixed_counters(draws))
    bits >>= _11
    return bits.astype(np.float64) * 2.0**-53


def epoch_order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Return the shuffled order of `count` samples in an epoch: a permutation, shape (count,)."""
    key = int(_words(seed, epoch, _ORDER_STREAM)[0])
    return np.random.Generator(np.random.Philox(key=key)).permutation(count)
