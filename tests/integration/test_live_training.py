"""Trainings that tune themselves: the weights are those of a fixed pipeline, whatever is tried meanwhile."""

import functools
import itertools
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import psutil
import pytest

import autopipe as ap
from autopipe.artifact import artifact as files
from autopipe.measure import fingerprint
from autopipe.pipeline.devices import model as of_models
from autopipe.pipeline.switching import SwitchingLoader
from tests.fakes.commands import environment
from tests.fakes.loader import ArrayLoader, blobs
from tests.fakes.profiles import of_this_machine
from tests.unit.pipeline.devices import models
from tests.unit.pipeline.devices.models import same_weights

FIXED = ap.PipelineConfig(loader=ap.Threads(workers=2, queue_size=1))
OTHERS = [
    ap.PipelineConfig(loader=ap.Processes(workers=1, queue_size=1)),
    ap.PipelineConfig(loader=ap.TfData(num_parallel_calls=1)),
    ap.PipelineConfig(loader=ap.Threads(workers=1, queue_size=1), keep="memory"),
    FIXED,
]


def model() -> keras.Model:
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(23)])
    made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


def workload(photos: Path, **changes: Any) -> ap.Workload:
    ops = [ap.Decode(), ap.Resize(10, 10), ap.RandomCrop(8, 8), ap.RandomFlip(), ap.Rescale(1 / 255)]
    data = ap.Table(photos / "labels.csv")
    return ap.Workload(**{"data": data, "ops": ops, "batch_size": 4, "model": model, **changes})


class Switching(keras.callbacks.Callback):
    """Has another loader take over every few batches."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers, self._turns = itertools.count(1), itertools.cycle(OTHERS)
        self.served = set[Any]()

    def set_trainer(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        loader = self._trainer.loader
        loader.watch = None  # here, nothing else decides
        self.served.add(loader.loader)
        if next(self._numbers) % 3 == 0 and not loader.is_switching:
            loader.switch(self._trainer.opened(next(self._turns)))
            loader._upcoming.is_there(60)  # so that no loader is late, however slow the machine is


@functools.cache
def by_a_fixed_loader(photos: Path) -> ap.Trainer:
    with ap.make_trainer(workload(photos), FIXED) as trainer:
        trainer.fit(epochs=4, verbose=0)
    return trainer


@pytest.mark.slow
def test_weights_are_the_same_whatever_takes_over_meanwhile(photos: Path) -> None:
    switching, asked = Switching(), workload(photos)
    with ap.make_trainer(asked, FIXED, tune="live") as trainer:
        history = trainer.fit(epochs=4, callbacks=[switching], validation=asked.data, verbose=0).history
    assert len(history["val_loss"]) == 4
    assert same_weights(trainer.model, by_a_fixed_loader(photos).model)
    assert len(switching.served) > 2


def test_a_training_begins_without_a_configuration(photos: Path) -> None:
    with ap.make_trainer(workload(photos), tune="live") as trainer:
        trainer.fit(epochs=4, verbose=0)
    assert same_weights(trainer.model, by_a_fixed_loader(photos).model)


def test_a_model_of_short_steps_trains_many_by_one_call(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_models, "forward_seconds", lambda model, batch_size: 0.001)
    with ap.make_trainer(workload(photos), tune="live") as trainer:
        trainer.fit(epochs=1, verbose=0)
        assert trainer.setup.steps_per_execution == 32


def test_a_loop_of_ones_own_gets_the_same_batches(photos: Path) -> None:
    with ap.make_loader(workload(photos), FIXED) as fixed, ap.make_loader(workload(photos), tune="live") as loader:
        for epoch in range(3):
            for found, wanted in zip(loader.epoch(epoch), fixed.epoch(epoch), strict=True):
                for part, same in zip(found, wanted, strict=True):
                    np.testing.assert_array_equal(np.asarray(part), np.asarray(same))


def test_a_trainer_that_was_given_its_loader_cannot_tune_itself_and_another_needs_a_configuration(photos: Path) -> None:
    x, y = blobs(24)
    trainer = ap.Trainer(models.classifier(), ArrayLoader(x.astype(np.float32), y, 4))
    with pytest.raises(ap.ModelError, match="cannot tune itself"):
        trainer.fit(tune="live")
    with pytest.raises(ap.ConfigError, match="`config` is missing"):
        ap.make_trainer(workload(photos))


TRAIN = """
import signal, sys, threading, time
import keras
import numpy as np
import psutil
import autopipe as ap
from autopipe.artifact import artifact as files
from autopipe.search.result import Change
from tests.fakes.sources import Made

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins without it
HERE = psutil.Process().pid
OTHER = ap.PipelineConfig(loader=ap.Processes(workers=2, queue_size=2))


def read(index):
    if psutil.Process().pid != HERE:
        threading.Event().wait()  # the loader that should take over never has its first batch
    time.sleep(0.005)
    return np.zeros(4, np.float32), np.float32(0)

def build_model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

def raced(windows, race):
    while not race.is_over:
        race.measured(OTHER)

class Tells(keras.callbacks.Callback):
    def set_trainer(self, trainer):
        self.loader, self.is_told = trainer.loader, False
        self.loader.watch._raced = raced
        self.loader.watch.changes.append(Change(epoch=0, before="", after="", kept=True))
    def on_train_batch_end(self, batch, logs=None):
        if self.loader.is_switching and not self.is_told and files.read(sys.argv[1]).live:
            self.is_told = True
            print(*(each.pid for each in psutil.Process().children(recursive=True)), flush=True)

if __name__ == "__main__":
    workload = ap.Workload(data=Made(40, read), ops=[], batch_size=4, model=build_model)
    with ap.load(sys.argv[1], workload=workload).make_trainer(tune="live") as trainer:
        trainer.fit(epochs=10**6, callbacks=[Tells()], verbose=0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_training_that_ends_while_loaders_change_leaves_nothing_behind(tmp_path: Path, end: signal.Signals) -> None:
    path = of_this_machine(tmp_path, below="tuned", hardware=fingerprint.detect()).parent / "autopipe.json"
    scratch, pipe = tmp_path / "scratch", subprocess.PIPE
    (tmp_path / "training.py").write_text(TRAIN)
    scratch.mkdir()
    command = [sys.executable, "-W", "ignore", str(tmp_path / "training.py"), str(path)]
    variables = environment(TMPDIR=str(scratch))
    with subprocess.Popen(command, env=variables, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        children = [psutil.Process(int(pid)) for pid in line.split() if psutil.pid_exists(int(pid))]
        process.send_signal(end)
        _, errors = process.communicate(timeout=60)  # ends when the last holder of the pipes does
    assert len(children) >= 2, errors
    _, left = psutil.wait_procs(children, timeout=60)
    assert [each for each in left if each.status() != psutil.STATUS_ZOMBIE] == []
    assert process.returncode == -end, errors
    assert list(scratch.iterdir()) == []
    assert files.read(path).live[0].changes[0].kept


def of_tensorflow() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((np.zeros((8, 8, 8, 3), np.float32), np.zeros(8))).batch(4)


class Rows:
    """Two batches by their index."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return np.full((4, 8, 8, 3), index, np.float32), np.zeros(4)


class Reordered(Rows):
    def on_epoch_end(self) -> None:
        pass


@pytest.mark.parametrize(("dataset", "may_change"), [(Rows(), True), (Reordered(), False), (of_tensorflow, False)])
def test_the_loader_of_a_dataset_with_an_index_may_change_unless_it_changes(
    dataset: Any, may_change: bool, caplog: pytest.LogCaptureFixture
) -> None:
    threads = ap.PipelineConfig(loader=ap.Threads(workers=1), finish="host", device_prefetch=0)
    config = None if dataset is of_tensorflow else threads
    with ap.make_trainer(ap.wrap(dataset, model=model), config, tune="live") as trainer:
        trainer.fit(epochs=2, verbose=0)
        assert isinstance(trainer.loader, SwitchingLoader) is may_change
    assert ("as it is" in caplog.text) is not may_change
