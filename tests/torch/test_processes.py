"""Processes that torchrun connects: Keras does not train in several of them on torch, and a trainer says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.commands import python, succeeded

RANK = """
import numpy as np, keras
import autopipe as ap
from autopipe.errors import ModelError

model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
data = ap.Arrays(np.zeros((8, 2), "float32"), np.zeros((8, 1), "float32"))
workload = ap.Workload(data=data, ops=[], batch_size=4, model=model)
try:
    ap.build_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=1)))
except ModelError as error:
    print(error.message)
"""


@pytest.mark.slow
def test_each_of_two_processes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", tmp_path / "rank.py"]
    done = succeeded(python(*launch, backend="torch"))
    assert done.stdout.count("trains in one process on the torch backend, but torch.distributed connects 2.") == 2
