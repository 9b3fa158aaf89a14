"""A training that is killed by SIGKILL in mid-epoch and started again: each sample counts once an epoch.

The model counts samples in a weight of its own, which is saved and restored with the others. So what it says in the end
is of the steps whose state was saved; a step that was trained and then lost with its process does not count.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.fakes.commands import python

SAMPLES, EPOCHS = 30, 3

TRAIN = """
import json, os, signal, sys
from pathlib import Path
import keras
import numpy as np
import autopipe as ap

SAMPLES, EPOCHS = {samples}, {epochs}


class Counts(keras.layers.Layer):
    def build(self, shape):
        self.seen = self.add_weight(shape=(SAMPLES,), initializer="zeros", trainable=False)
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, x):
        numbers = keras.ops.cast(x[:, 0], "int32")
        self.seen.assign(self.seen + keras.ops.sum(keras.ops.one_hot(numbers, SAMPLES), axis=0))
        return x * self.scale


def build_model():
    model = keras.Sequential([keras.Input((1,)), Counts()])
    model.compile(optimizer=keras.optimizers.SGD(1e-9), loss="mse")
    return model


numbers = np.arange(SAMPLES, dtype="float32")[:, None]
workload = ap.Workload(
    data=ap.Arrays(numbers, numbers), ops=[ap.Rescale(1.0)], batch_size=3, model=build_model, seed=1
)


class Killed(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if [self.epoch, batch] == json.loads(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch


class State(keras.callbacks.Callback):
    '''What somebody does who keeps weights and state by hand: files of a step, and then one that names them.'''

    def on_train_batch_end(self, batch, logs=None):
        if batch % 4 == 3:
            state = trainer.state_dict()
            weights = f"{{state['epoch']}}-{{state['batch']}}.weights.h5"
            self.model.save_weights(weights)
            Path("new.json").write_text(json.dumps([weights, state]))
            Path("new.json").replace("state.json")


with ap.build_trainer(workload, ap.PipelineConfig(loader=ap.{loader})) as trainer:
    if {by_hand}:
        done = 0
        if Path("state.json").exists():
            weights, state = json.loads(Path("state.json").read_text())
            trainer.model.load_weights(weights)
            trainer.load_state_dict(state)
            done = state["epoch"]
        trainer.fit(epochs=EPOCHS, initial_epoch=done, verbose=0, callbacks=[State(), Killed()])
    else:
        backup = keras.callbacks.BackupAndRestore("backup", save_freq=4)
        best = keras.callbacks.ModelCheckpoint("best.weights.h5", monitor="loss", save_weights_only=True)
        trainer.fit(epochs=EPOCHS, verbose=0, callbacks=[backup, best, Killed()])
    print(json.dumps(np.asarray(trainer.model.layers[0].seen).tolist()))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by_hand", "loader", "kills"),
    [
        pytest.param(False, "Threads(workers=2)", [(1, 5), (1, 8)], id="BackupAndRestore"),
        pytest.param(True, "Processes(workers=2)", [(1, 5)], id="state_dict"),
    ],
)
def test_each_sample_counts_once_an_epoch_however_often_the_training_was_killed(
    tmp_path: Path, by_hand: bool, loader: str, kills: list[tuple[int, int]]
) -> None:
    """Killed between two saves, and again before the resumed run has saved anything."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN.format(samples=SAMPLES, epochs=EPOCHS, by_hand=by_hand, loader=loader))
    for kill in kills:
        killed = python(script, json.dumps(kill), cwd=tmp_path)
        assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, ""), killed.stderr
    ended = python(script, json.dumps(None), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [EPOCHS] * SAMPLES
