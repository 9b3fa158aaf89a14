from __future__ import annotations

import numpy as np
import pytest

from autopipe.core.order import BatchOrder
from autopipe.errors import ConfigError


def order(**changes: object) -> BatchOrder:
    return BatchOrder(**{"count": 10, "batch_size": 4, "seed": 0, "shuffle": True, "drop_remainder": False, **changes})  # type: ignore[arg-type]


def test_a_short_last_batch_counts_unless_it_is_dropped() -> None:
    assert (order().batches, order().has_short_batch) == (3, True)
    assert (order(drop_remainder=True).batches, order(drop_remainder=True).has_short_batch) == (2, False)
    assert [order().batch_samples(batch) for batch in range(3)] == [4, 4, 2]


def test_without_shuffle_the_order_is_the_datas() -> None:
    np.testing.assert_array_equal(order(shuffle=False).epoch(5), range(10))
    np.testing.assert_array_equal(order(shuffle=False, shard=(1, 3)).epoch(0), [1, 4, 7])


def test_an_epochs_order_can_be_asked_for_again() -> None:
    np.testing.assert_array_equal(order().epoch(3), order().epoch(3))


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0)])
def test_an_impossible_shard_is_refused(shard: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="shard"):
        order(shard=shard)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"drop_remainder": True, "shard": (1, 4)},
            "part 1 of 4 holds 3 of 10 .* fewer parts, smaller batches, or drop",
        ),
        ({"drop_remainder": True, "count": 3}, "part 0 of 1 holds 3 of 3 samples, with batch_size=4"),
        ({"shard": (11, 12)}, r"part 11 of 12 holds 0 of 10 samples.* Use fewer parts\."),
    ],
)
def test_a_part_without_a_batch_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        order(**changes)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("count", "drop"), [(26, False), (24, False), (27, True), (8, True)])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_together_have_each_batch_that_one_loader_has(count: int, drop: bool, shuffle: bool, ranks: int) -> None:
    if not drop and count % 8 % ranks:
        return

    def order(rank: int, ranks: int) -> BatchOrder:
        size = 8 // ranks
        return BatchOrder(
            count=count, batch_size=size, seed=3, shuffle=shuffle, drop_remainder=drop, rank=(rank, ranks)
        )

    whole, parts = order(0, 1), [order(rank, ranks) for rank in range(ranks)]
    assert {part.batches for part in parts} == {whole.batches}
    for batch in range(whole.batches):
        first = batch * 8
        size = whole.batch_samples(batch)
        together = [part.epoch(1)[batch * part.batch_size :][: part.batch_samples(batch)].tolist() for part in parts]
        assert [index for part in together for index in part] == whole.epoch(1)[first : first + size].tolist()
        assert {len(each) for each in together} == {size // ranks}


def test_a_last_batch_that_ranks_cannot_share_is_refused() -> None:
    with pytest.raises(ConfigError, match="between 4 processes, but the last one of an epoch holds 2 samples"):
        BatchOrder(count=26, batch_size=2, seed=0, shuffle=True, drop_remainder=False, rank=(0, 4))
