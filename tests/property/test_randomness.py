"""Random numbers are a function of (seed, epoch, sample, op): whoever asks, in whatever order, gets the same ones."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from autopipe.workload import order as randomness
from autopipe.workload.order import BatchOrder

seeds = st.integers(-(2**63), 2**64)
epochs = st.integers(0, 2**31)
streams = st.integers(0, 64)
indices = st.lists(st.integers(0, 2**40), min_size=1, max_size=20)


@given(seeds, epochs, indices, streams, st.integers(0, 4), st.randoms())
def test_a_samples_numbers_do_not_depend_on_its_batch(seed, epoch, wanted, stream, draws, shuffler):  # type: ignore[no-untyped-def]
    together = randomness.uniforms(seed, epoch, np.array(wanted), stream, draws)
    assert (together.shape, together.dtype.name) == ((len(wanted), draws), "float64")
    assert np.all((together >= 0) & (together < 1))
    for place in shuffler.sample(range(len(wanted)), len(wanted)):
        alone = randomness.uniforms(seed, epoch, np.array([wanted[place]]), stream, draws)
        assert_array_equal(together[place], alone[0])


@given(seeds, epochs, st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 6))
def test_an_order_is_a_permutation_that_in_blocks_ends_some_before_it_begins_others(
    seed: int, epoch: int, lengths: list[int], mixed: int
) -> None:
    block_of = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    order = randomness.block_order(seed, epoch, len(block_of), starts, mixed)
    for each in (order, randomness.epoch_order(seed, epoch, len(block_of))):
        assert sorted(each.tolist()) == list(range(len(block_of)))
    began = list(dict.fromkeys(block_of[order].tolist()))  # so many of them are mixed at a time
    group_of = np.empty(len(lengths), int)
    group_of[began] = np.arange(len(began)) // mixed
    assert_array_equal(np.sort(group_of[block_of[order]]), group_of[block_of[order]])


@given(st.integers(1, 200), st.integers(1, 20), st.integers(1, 7), st.booleans(), st.booleans(), epochs)
def test_shards_are_disjoint_and_cover_the_epoch(count, size, parts, shuffle, drop, epoch):  # type: ignore[no-untyped-def]
    assume(count // parts >= (size if drop else 1))  # a part without a batch is refused
    orders = [
        BatchOrder(count=count, batch_size=size, seed=1, shuffle=shuffle, drop_remainder=drop, shard=(part, parts))
        for part in range(parts)
    ]
    seen = [index for order in orders for index in order.epoch(epoch).tolist()]
    assert sorted(seen) == list(range(count))
    for order in orders:
        assert order.samples == len(order.epoch(epoch))
        sizes = [order.batch_samples(batch) for batch in range(order.batches)]
        assert sum(sizes) == (order.samples // size * size if drop else order.samples)
        assert all(0 < found <= size for found in sizes)
        assert order.has_short_batch == any(found < size for found in sizes)
