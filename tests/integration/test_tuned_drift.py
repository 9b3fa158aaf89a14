"""`autopipe check` with a real child that trains: what it says of a profile that holds, one that drifted, and one gone
stale. All three share one child, on the backend that starts soonest. And a real training under the drift monitor.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
from pathlib import Path

import pytest
from tensorboard.compat.proto import event_pb2

from autopipe.api import tuning
from autopipe.artifact.schema import Profile
from autopipe.hardware import machine
from autopipe.measure import fingerprint
from autopipe.measure.facts import Description
from autopipe.search import lock, searching
from autopipe.search.result import Event, Waiting
from autopipe.search.searching import hardware_of
from autopipe.workload.data.records import read_record, scan_records
from tests.fakes.commands import ROOT, python
from tests.fakes.profiles import about, profile
from tests.fakes.workload_script import TRAIN


def _profile(described: Description, rate: float) -> Profile:
    """Return what a tune in this very child would have found, at another rate."""
    here = fingerprint.of_machine(machine.detect(), described.storage_kind, described.backend)
    digest, now = described.digest, datetime.datetime.now(datetime.UTC)
    return profile(hardware=here, workload=digest, images_per_second=about(rate), ceiling=None, measured_at=now)


@pytest.mark.slow
def test_profiles_that_hold_or_drifted_or_went_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(tuning, "PROOF", {"min_seconds": 0.5, "max_seconds": 1.0})
    (tmp_path / "train.py").write_text(TRAIN)

    with searching.runner_for(f"{tmp_path / 'train.py'}:workload") as runner, tuning.Processes(runner) as processes:
        described = searching.description(runner)
        here = hardware_of(machine.detect(), described)
        holds = tuning.check_with(processes, described, _profile(described, 1e-3), here)
        waited = list[Event]()
        with contextlib.ExitStack() as another_tune:
            monkeypatch.setattr(lock, "MEASURING", f"autopipe-test-{os.getpid()}")
            another_tune.enter_context(lock.Queue(pytest.fail).held(lock.MEASURING))

            def wait(event: Event) -> None:
                waited.append(event)
                another_tune.close()

            fast = _profile(described, 1e12)
            queue = searching.queue_of(wait)
            drifted = tuning.check_with(processes, described, fast, here, queue=queue)
        (event,) = waited
        assert isinstance(event, Waiting)
        assert event.why.startswith(f"process {os.getpid()} ")
        assert queue.seconds > 0
        another = described.model_copy(update={"ops": "f" * 16, "op_list": described.op_list[1:]})
        stale = tuning.check_with(processes, another, _profile(described, 1.0), here, measures=lambda judged: False)
    assert described.backend == "jax"
    assert [each.exit_code for each in (holds, drifted, stale)] == [0, 5, 4]
    assert holds.rows[0].together is not None
    assert holds.rows[0].together.value > 1.0
    assert "images/s, but 1,000,000,000,000 when it was tuned" in drifted.reasons[0]
    assert "Rescale was removed" in stale.reasons[0]


# ---------------------------------------------------------------- a training: what is logged, and when it warns

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
def test_a_training_that_is_too_slow_is_warned_once_and_tensorboard_has_figures(backend: str, tmp_path: Path) -> None:
    done = python("-c", CODE.format(root=str(ROOT)), tmp_path, backend=backend)
    assert (done.returncode, done.stdout) == (0, "0 1\n"), done.stderr
    files = list((tmp_path / "train").iterdir())
    assert len(files) == 2
    for file in files:
        tags = [value.tag for event in _events(file) for value in event.summary.value]
        for figure in ("images_per_second", "data_wait_share", "cores_of_others", "lost_workers"):
            assert tags.count(f"epoch_{figure}") == 3


def _events(file: Path) -> list[event_pb2.Event]:
    path = os.fsencode(file)
    ends = scan_records(path).tolist()
    return [event_pb2.Event.FromString(read_record(path, start, end)) for start, end in itertools.pairwise(ends)]
