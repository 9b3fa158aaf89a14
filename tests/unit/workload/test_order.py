"""The order of samples and the numbers drawn for them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from autopipe.errors import ConfigError, WorkloadError
from autopipe.workload import order as randomness
from autopipe.workload.order import BatchOrder, Blocks, block_order


def order(**changes: object) -> BatchOrder:
    return BatchOrder(**{"count": 10, "batch_size": 4, "seed": 0, "shuffle": True, "drop_remainder": False, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(({"shard": shard}, "`shard` must be") for shard in ((2, 2), (-1, 2), (0, 0))),
        ({"drop_remainder": True, "shard": (1, 4)}, "1 of 4 holds 3 of 10 .* fewer parts, smaller batches, or drop"),
        ({"drop_remainder": True, "count": 3}, "part 0 of 1 holds 3 of 3 samples, with batch_size=4"),
        ({"shard": (11, 12)}, r"part 11 of 12 holds 0 of 10 samples.* Use fewer parts\."),
        ({"count": 26, "batch_size": 2, "rank": (0, 4)}, "4 processes, but the last one of an epoch holds 2 samples"),
    ],
)
def test_a_part_without_a_batch_or_without_its_share_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        order(**changes)


STARTS = [0, 5, 6, 14, 20, 21]  # of blocks of 27 samples


@pytest.mark.parametrize("blocks", [None, (STARTS, 2)])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("count", "drop"), [(26, False), (24, False), (27, True), (8, True)])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_together_have_each_batch_that_one_loader_has(
    count: int, drop: bool, shuffle: bool, ranks: int, blocks: tuple[list[int], int] | None
) -> None:
    if not drop and count % 8 % ranks:
        return
    blocks = blocks and ([start for start in blocks[0] if start < count], blocks[1])
    same = {"count": count, "seed": 3, "shuffle": shuffle, "drop_remainder": drop, "blocks": blocks}
    whole = order(batch_size=8, **same)
    parts = [order(batch_size=8 // ranks, rank=(rank, ranks), **same) for rank in range(ranks)]
    assert {part.batches for part in parts} == {whole.batches}
    for batch in range(whole.batches):
        first = batch * 8
        size = whole.batch_samples(batch)
        together = [part.epoch(1)[batch * part.batch_size :][: part.batch_samples(batch)].tolist() for part in parts]
        assert [index for part in together for index in part] == whole.epoch(1)[first : first + size].tolist()
        assert {len(each) for each in together} == {size // ranks}


MANY = np.arange(20_000)
EXPECTED_ORDER = [7, 3, 5, 6, 1, 2, 4, 0]
EXPECTED_IN_BLOCKS = [3, 5, 7, 6, 4, 0, 1, 2]
EXPECTED_UNIFORMS = [0.5618980249980841, 0.962312026162305, 0.45051450458465236]


def test_the_numbers_of_a_release_are_those_of_the_next() -> None:
    """A changed generator would change every training silently: these are written down."""
    np.testing.assert_array_equal(randomness.epoch_order(0, 0, 8), EXPECTED_ORDER)
    np.testing.assert_array_equal(block_order(0, 0, 8, [0, 3, 6], 2), EXPECTED_IN_BLOCKS)
    np.testing.assert_allclose(randomness.uniforms(1, 2, np.array([3]), 4, 3)[0], EXPECTED_UNIFORMS, rtol=1e-15)


@pytest.mark.parametrize("changed", ["seed", "epoch", "stream", "sample"])
def test_every_key_makes_other_numbers(changed: str) -> None:
    keys = {"seed": 1, "epoch": 2, "stream": 3, "sample": 0}
    other = {**keys, changed: keys[changed] + 1}

    def drawn(key: dict[str, int]) -> np.ndarray:
        return randomness.uniforms(key["seed"], key["epoch"], MANY + key["sample"], key["stream"], 2)

    assert not np.any(drawn(keys) == drawn(other))


def test_numbers_are_uniform_and_unrelated() -> None:
    columns = [
        randomness.uniforms(seed, epoch, MANY, stream, 2)[:, draw]
        for seed, epoch, stream, draw in itertools.product((0, 1), (0, 1), (0, 1), (0, 1))
    ]
    for column in columns:
        counts = np.histogram(column, bins=20, range=(0, 1))[0]
        assert np.sum((counts - 1000) ** 2 / 1000) < 60  # chi-square, 19 degrees of freedom
        assert abs(np.corrcoef(column[:-1], column[1:])[0, 1]) < 0.03
    correlations = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(correlations).max() < 0.03


def test_each_epoch_has_an_order_of_its_own() -> None:
    assert len({tuple(randomness.epoch_order(0, epoch, 50)) for epoch in range(20)}) == 20
    np.testing.assert_array_equal(order(shuffle=False).epoch(5), range(10))
    np.testing.assert_array_equal(order(shuffle=False, shard=(1, 3)).epoch(0), [1, 4, 7])


def test_samples_are_mixed_with_those_of_as_many_blocks_as_are_asked_for_and_blocks_come_in_any_order() -> None:
    block_of = np.repeat(range(6), np.diff([*STARTS, 27]))
    firsts, mixes = set(), set()
    for epoch in range(200):
        found = block_of[block_order(0, epoch, 27, STARTS, 2)]
        groups = [set(part.tolist()) for part in np.split(found, _ends(found, 2))]
        assert [len(group) for group in groups] == [2, 2, 2]
        assert set().union(*groups) == set(range(6))
        firsts.add(found[0])
        mixes |= {frozenset(group) for group in groups}
    assert firsts == set(range(6))
    assert len(mixes) == 15  # all pairs
    alone = block_of[block_order(0, 0, 27, STARTS, 1)]
    assert np.count_nonzero(np.diff(alone)) == 5
    assert {tuple(block_order(0, epoch, 27, STARTS, 9)) != tuple(range(27)) for epoch in range(9)} == {True}


def _ends(blocks: np.ndarray, mixed: int) -> list[int]:
    """Return where groups of blocks end."""
    ends, seen = [], set[int]()
    for place, block in enumerate(blocks.tolist()):
        if block not in seen and len(seen) == mixed:
            ends.append(place)
            seen = set()
        seen.add(block)
    return ends


@pytest.mark.parametrize("given", [{"size": 0}, {"size": 2.5}, {"size": True}, {"mixed": 0}, {"mixed": "all"}])
def test_blocks_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(WorkloadError, match=f"`{name}` of Blocks must be a whole number >= 1"):
        Blocks(**given)
