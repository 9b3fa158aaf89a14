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


@given(seeds, epochs, indices, streams, st.integers(1, 4), st.randoms())
def test_a_samples_numbers_do_not_depend_on_its_batch(seed, epoch, wanted, stream, draws, shuffler):  # type: ignore[no-untyped-def]
    together = randomness.uniforms(seed, epoch, np.array(wanted), stream, draws)
    places = list(range(len(wanted)))
    shuffler.shuffle(places)
    for place in places:
        alone = randomness.uniforms(seed, epoch, np.array([wanted[place]]), stream, draws)
        np.testing.assert_array_equal(together[place], alone[0])


@given(seeds, epochs, indices, streams, st.integers(0, 4))
def test_numbers_lie_in_the_unit_interval(seed, epoch, wanted, stream, draws):  # type: ignore[no-untyped-def]
    numbers = randomness.uniforms(seed, epoch, np.array(wanted), stream, draws)
    assert numbers.shape == (len(wanted), draws)
    assert numbers.dtype == np.float64
    assert np.all((numbers >= 0) & (numbers < 1))


@given(seeds, epochs, st.integers(1, 300))
def test_an_epochs_order_is_a_permutation(seed: int, epoch: int, count: int) -> None:
    assert sorted(randomness.epoch_order(seed, epoch, count)) == list(range(count))


@given(seeds, epochs, st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 6))
def test_an_order_in_blocks_is_a_permutation_that_ends_some_blocks_before_it_begins_others(
    seed: int, epoch: int, lengths: list[int], mixed: int
) -> None:
    block_of = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    order = randomness.block_order(seed, epoch, len(block_of), starts, mixed)
    assert sorted(order.tolist()) == list(range(len(block_of)))
    groups, left = [], list(dict.fromkeys(block_of[order].tolist()))
    while left:
        groups.append(left[:mixed])
        left = left[mixed:]
    group_of = np.empty(len(lengths), int)
    for number, group in enumerate(groups):
        group_of[group] = number
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
