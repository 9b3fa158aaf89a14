"""What a configuration is expected to hold in memory, beside the loader that it opens."""

from __future__ import annotations

import numpy as np
import pytest

from autopipe.assembly import build_loader
from autopipe.core import footprint
from autopipe.core.config import LoaderConfig, PipelineConfig
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.loaders.processes import Processes
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
        (Processes(workers=1, queue_size=8), SMALL, 3, (8 + 1, 1)),
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
