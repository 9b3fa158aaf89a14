"""What a configuration is expected to hold in memory, beside the loader that it opens."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from autopipe.assembly import build_loader
from autopipe.core import footprint
from autopipe.core.config import LoaderConfig, PipelineConfig
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.hardware import cpu
from autopipe.loaders.processes import Processes
from autopipe.loaders.tfdata import TfData
from autopipe.loaders.threads import Threads
from tests.fakes.facts import DESCRIBED

SMALL, LARGE = (4, 4, 3), (1024, 512, 3)
BATCH = 4


@pytest.mark.parametrize(
    ("loader", "shape", "steps", "held"),
    [
        (Threads(workers=3, queue_size=8), SMALL, 1, (8 + 3 * 8, 8)),
        (Threads(workers=3, queue_size=8), SMALL, 3, (6 + 3 * 3, 3)),
        (Threads(workers=1, queue_size=2), SMALL, 16, (32 + 16, 16)),
        (Threads(workers=3, queue_size=8), LARGE, 3, (8 + 3, 1)),
        (Threads(workers=3, queue_size=8, read_ahead=4), SMALL, 3, (8 + 3, 1)),
        (Processes(workers=1, queue_size=8), SMALL, 3, (6 + 3, 3)),
    ],
    ids=str,
)
def test_batches_that_are_made_several_at_a_time_are_counted_so(
    loader: LoaderConfig, shape: tuple[int, ...], steps: int, held: tuple[int, int]
) -> None:
    data = Arrays(np.zeros((8, *shape), np.uint8))
    config = PipelineConfig(loader=loader, steps_per_execution=steps)
    with build_loader(Workload(data=data, ops=[], batch_size=BATCH), config) as opened:
        assert opened.buffered_batches == held[0]
    known = {"batch_size": BATCH, "compact_bytes": int(np.prod(shape)), "mean_bytes": 0.0}
    assert footprint.memory_bytes(config, DESCRIBED.model_copy(update=known)) == sum(held) * BATCH * int(np.prod(shape))


@pytest.mark.parametrize(
    ("loader", "cache", "held"),
    [
        (TfData(num_parallel_calls=3, prefetch=5), "none", 6 + 3),
        (TfData(), "none", 16 + 2),  # "auto": as many as the loader makes sure that there is room for
        (TfData(num_parallel_calls=9, prefetch=5), "none", 6 + 3),  # 9 samples at a time are those of 3 batches
        (TfData(num_parallel_calls=3, prefetch=5, read_ahead=2), "none", 6 + 1),
        (TfData(num_parallel_calls=9, prefetch=5), "memory", 6 + 9),
    ],
    ids=str,
)
def test_whole_batches_that_tf_data_makes_side_by_side_are_counted(
    monkeypatch: pytest.MonkeyPatch, loader: TfData, cache: Literal["none", "memory"], held: int
) -> None:
    monkeypatch.setattr(cpu, "usable_cores", lambda: 2)
    known = DESCRIBED.model_copy(update={"batch_size": BATCH, "compact_bytes": 1000, "mean_bytes": 0.0})
    config = PipelineConfig(loader=loader, cache=cache)
    assert footprint.memory_bytes(config, known) == (held + 1) * BATCH * 1000
