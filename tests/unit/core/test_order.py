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
