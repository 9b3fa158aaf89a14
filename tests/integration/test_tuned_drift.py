"""A real training under the drift monitor: what is logged, and when it warns."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event

from autopipe.workload.data.records import read_record, scan_records
from tests.fakes.commands import ROOT, python

CODE = """
import sys, warnings
sys.path.insert(0, {root!r})
import numpy as np, keras
import autopipe as ap
from autopipe.values import Estimate
from autopipe.artifact import factory
from autopipe.measure import fingerprint
from autopipe.artifact.drift import DriftMonitor, DriftWarning
from tests.fakes.profiles import about, digest, profile

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
data = ap.Arrays(np.zeros((64, 4), "float32"), np.zeros((64, 1), "float32"))
workload = ap.Workload(data=data, ops=[ap.Rescale(2.0)], batch_size=4, model=model)
here = fingerprint.detect(data)

def train(promised):
    known = profile(hardware=here, workload=fingerprint.workload_digest(workload), images_per_second=about(promised))
    tuned = factory.of_profile(known, workload)
    with warnings.catch_warnings(record=True) as seen, tuned.make_trainer() as trainer:
        warnings.simplefilter("always")
        loader = trainer.loader
        board = keras.callbacks.TensorBoard(sys.argv[1], profile_batch=0)
        history = trainer.fit(epochs=3, verbose=0, callbacks=[DriftMonitor(), board]).history
        assert trainer.loader is loader
    assert len(history["images_per_second"]) == len(history["data_wait_share"]) == 3
    assert min(history["images_per_second"]) > 1 and 0 <= min(history["data_wait_share"]) <= 1
    return sum(issubclass(warning.category, DriftWarning) for warning in seen)

print(train(promised=1.0), train(promised=1e9))
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_training_that_is_slower_than_promised_is_warned_once_and_tensorboard_has_its_figures(
    backend: str, tmp_path: Path
) -> None:
    done = python("-c", CODE.format(root=str(ROOT)), tmp_path, backend=backend)
    assert (done.returncode, done.stdout) == (0, "0 1\n"), done.stderr
    files = list((tmp_path / "train").iterdir())
    assert len(files) == 2
    for file in files:
        tags = [value.tag for event in _events(file) for value in event.summary.value]
        for figure in ("images_per_second", "data_wait_share", "cores_of_others", "lost_workers"):
            assert tags.count(f"epoch_{figure}") == 3


def _events(file: Path) -> list[Event]:
    path = os.fsencode(file)
    ends = scan_records(path).tolist()
    return [Event.FromString(read_record(path, start, end)) for start, end in itertools.pairwise(ends)]
