"""Processes that train together: who may, and what is said to the others. Real ones: tests/servers."""

from __future__ import annotations

import json
from typing import Any

import keras
import pytest

from autopipe import assembly, frameworks
from autopipe.core.config import PipelineConfig
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.devices import choose, ranks
from autopipe.devices.mirrored import Mirrored
from autopipe.errors import ConfigError, ModelError
from autopipe.loaders.threads import Threads
from tests.fakes.loader import blobs

TWO_WORKERS = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})


def test_tensorflow_in_several_processes_is_refused_with_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", TWO_WORKERS)
    with pytest.raises(
        ModelError, match="MultiWorkerMirroredStrategy fails under it \\(keras issue 20585\\)"
    ) as caught:
        choose.strategy(1)
    assert "jax.distributed.initialize" in str(caught.value.hint)


@pytest.mark.parametrize("config", ["", "{}", json.dumps({"cluster": {"worker": ["a:1"]}})])
def test_one_process_is_no_cluster(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", config)
    assert Mirrored.cluster() == (0, 1)
    assert frameworks.jax_rank() == (0, 1)


def test_a_batch_that_processes_cannot_share_is_refused() -> None:
    x, y = blobs(16, side=4)
    workload = Workload(data=Arrays(x, y), ops=(), batch_size=6)
    with pytest.raises(ConfigError, match="between 4 processes, but `batch_size` is 6"):
        assembly.build_loader(workload, PipelineConfig(loader=Threads(workers=1)), rank=(0, 4))


def test_a_rank_has_its_part_of_every_batch() -> None:
    x, y = blobs(16, side=4)
    workload = Workload(data=Arrays(x, y), ops=(), batch_size=8, shuffle=False)
    config = PipelineConfig(loader=Threads(workers=1))
    with assembly.build_loader(workload, config) as whole, assembly.build_loader(workload, config, rank=(1, 2)) as half:
        assert (len(whole), len(half), half.batch_size) == (2, 2, 4)
        assert half.identity == whole.identity  # so that a state of either resumes the other
        assert [batch[0].tolist() for batch in half.batches(0)] == [x[4:8].tolist(), x[12:16].tolist()]


class Writes(keras.callbacks.CSVLogger):
    """One of those that write."""


def test_rank_0_writes_and_the_others_only_restore() -> None:
    log, other = Writes("log.csv"), keras.callbacks.EarlyStopping()
    backup = keras.callbacks.BackupAndRestore("backup", save_freq=1)
    saved: list[Any] = []
    backup._save_model = lambda *values, **named: saved.append(values)
    assert ranks.callbacks_of((0, 1), [log, other, backup]) == [log, other, backup]
    assert ranks.callbacks_of((1, 2), [log, other, backup]) == [other, backup]
    backup.on_train_batch_end(0)
    backup.on_epoch_end(0)
    assert saved == []
