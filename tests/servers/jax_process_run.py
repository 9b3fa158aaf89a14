"""Trains in one of several JAX processes and writes what came of it as JSON.

Usage: KERAS_BACKEND=jax python -m tests.servers.jax_process_run RANK RANKS PORT FOLDER TASK
"""

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import autopipe as ap

SAMPLES, BATCH, EPOCHS = 26, 8, 2  # the last batch of an epoch holds 2
KILLED_AT = 3


@dataclasses.dataclass(frozen=True)
class Noted:
    notes: str

    def __len__(self) -> int:
        return SAMPLES

    def read(self, index: int) -> tuple[Any, Any]:
        with Path(self.notes).open("a") as file:
            file.write(f"{index}\n")
        return np.random.default_rng(index).integers(0, 255, (6, 6, 3), np.uint8), np.int64(index % 3)

    def digest(self) -> str:
        return "noted"


def build() -> Any:
    import keras

    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((6, 6, 3)), keras.layers.Flatten(), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])
    return model


def weights(model: Any) -> list[float]:
    return [float(value) for array in model.get_weights() for value in np.asarray(array).ravel()]


def run(rank: int, folder: Path, task: str) -> dict[str, Any]:
    import keras

    ops = [ap.RandomFlip(), ap.Rescale(1 / 255)]
    data = Noted(str(folder / f"read-{rank}.txt"))
    workload = ap.Workload(data=data, ops=ops, batch_size=BATCH, model=build)
    config = ap.PipelineConfig(loader=ap.Threads(workers=2, queue_size=2))

    class Steps(keras.callbacks.Callback):
        count = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            Steps.count += 1
            if task == "killed" and rank == 1 and Steps.count == KILLED_AT:
                os.kill(os.getpid(), signal.SIGKILL)

    steps = Steps()
    with ap.make_trainer(workload, config) as trainer:
        Path(data.notes).write_text("")  # what was read to learn the samples' shape
        if task == "killed":
            trainer.fit(epochs=1000, callbacks=[steps], verbose=0)
        checkpoint = keras.callbacks.ModelCheckpoint(str(folder / f"rank-{rank}.keras"))
        validation = dataclasses.replace(data, notes=os.devnull)
        if task == "resumed":
            trainer.model.load_weights(folder / "half.weights.h5")
            trainer.load_state_dict(json.loads((folder / "state.json").read_text()))
        elif task == "half":
            trainer.fit(epochs=1, steps_per_epoch=2, verbose=0)
            if rank == 0:
                trainer.model.save_weights(folder / "half.weights.h5")
                (folder / "state.json").write_text(json.dumps(trainer.state_dict()))
            return {}
        initial = {"initial_epoch": 0} if task == "resumed" else {}
        settings: dict[str, Any] = {"epochs": EPOCHS, "callbacks": [steps, checkpoint], "verbose": 0, **initial}
        history = trainer.fit(validation=validation, **settings)
        return {
            "weights": weights(trainer.model),
            "steps": steps.count,
            "history": history.history,
            "evaluated": trainer.evaluate(validation, verbose=0),
            "local_batch": trainer.loader.batch_size,
            "tuning": error_of(lambda: trainer.fit(tune="live", verbose=0)),
            "prediction": error_of(lambda: trainer.predict(validation, verbose=0)),
        }


def error_of(action: Any) -> str:
    try:
        action()
    except ap.AutopipeError as error:
        return str(error)
    return "none"


if __name__ == "__main__":
    number, ranks = map(int, sys.argv[1:3])
    port, target, wanted = sys.argv[3], Path(sys.argv[4]), sys.argv[5]
    if ranks > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", ranks, number)
    result = run(number, target, wanted)
    (target / f"result-{number}.json").write_text(json.dumps(result))
