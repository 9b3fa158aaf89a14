from __future__ import annotations

import numpy as np
import pytest

from autopipe.assembly import build_loader
from autopipe.core.config import LoaderConfig, PipelineConfig
from autopipe.core.workload import Workload
from autopipe.hardware import own_process
from autopipe.loaders.processes import Processes
from autopipe.loaders.tfdata import TfData
from autopipe.loaders.threads import Threads


class Told:
    """Samples that say whether they were read in a process of its own."""

    def __len__(self) -> int:
        return 4

    def read(self, index: int) -> np.ndarray:
        return np.array([own_process.is_claimed()])


@pytest.mark.parametrize(
    "loader",
    [Processes(workers=1), Processes(workers=2), Processes(workers=1, read_ahead=2), Threads(workers=1), TfData()],
)
def test_a_worker_claims_its_process_where_its_loader_says_so(loader: LoaderConfig) -> None:
    config = PipelineConfig(loader=loader)
    with build_loader(Workload(data=Told(), ops=[], batch_size=2), config) as opened:
        told = [bool(x.all()) for x, _ in opened.batches(0)]
    assert told == [loader.works_alone()] * 2
