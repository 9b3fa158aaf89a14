"""Train in this process on DEVICES of one strategy; write what came of it as JSON to FOLDER. Usage: DEVICES FOLDER"""

import contextlib
import functools
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

import autopipe as ap
from autopipe.measure.bench import ResidentLoader
from autopipe.pipeline.batching.cache import RowLayout, SlotPool
from autopipe.pipeline.devices import model as models
from autopipe.pipeline.devices import strategy as strategies
from autopipe.pipeline.loader import Finish
from autopipe.workload.sample import Batch, Source
from tests.fakes.loader import ArrayLoader, blobs
from tests.unit.pipeline.devices.models import Ends, KilledError

SIDE = 48  # a batch of 8 is then larger than what is copied for being small
X, Y = blobs(64, side=SIDE)
FINISHED = (X * np.float32(1 / 255)).astype(np.float32), np.eye(3, dtype=np.float32)[Y]


class Counting(keras.Sequential):
    traced = 0

    def train_step(self, *arguments: Any) -> Any:
        Counting.traced += 1
        return super().train_step(*arguments)


def build(*, momentum: float = 0.9, accumulated: int | None = None, **compiled: Any) -> keras.Model:
    keras.utils.set_random_seed(3)
    first = keras.Input((SIDE, SIDE, 3)), keras.layers.AveragePooling2D(12), keras.layers.Flatten()
    last = keras.layers.Dense(3, activation="softmax")
    model = Counting([*first, last])
    optimizer = keras.optimizers.SGD(0.05, momentum=momentum, gradient_accumulation_steps=accumulated)
    model.compile(optimizer, "categorical_crossentropy", metrics=["accuracy"], **compiled)
    return model


by_xla = functools.partial(build, jit_compile=True)
accumulating = functools.partial(build, accumulated=2)


class SlotLoader(ArrayLoader):
    """Hands over slots that are written again as soon as nobody refers to them."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(X, Y, 8, **arguments)
        self.finish = Finish((ap.Rescale(1 / 255), ap.OneHot(3)), (self.spec, self.spec))
        self.pool = SlotPool(RowLayout(self.spec, 8), keep=1)

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for x, y in super().batches(epoch, start, last=last):
            slot = self.pool.acquire()
            slot_x, slot_y = slot.layout.arrays(slot.block)
            assert slot_y is not None
            slot_x[: len(x)], slot_y[: len(x)] = x, y
            del slot_x, slot_y
            yield self.pool.lend(slot, len(x))


def in_order(data: Source, passes: int) -> ap.Loader:
    """Return a loader over the first samples, as many as `data` holds."""
    loader = ArrayLoader(X[: len(data)], Y[: len(data)], 8, shuffle=False)
    loader.finish = SlotLoader().finish
    return loader


def weights(model: keras.Model) -> list[float]:
    return [float(value) for array in model.get_weights() for value in array.ravel()]


def error_of(action: Callable[[], Any]) -> str:
    try:
        action()
    except ap.AutopipeError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def refusals(trainer: Callable[..., ap.Trainer], strategy: Any, devices: int) -> dict[str, Any]:
    """Return the errors of a failing loader, and of trainings that several devices cannot do."""
    failing, sevens = SlotLoader(), ArrayLoader(X, Y, 7)
    failing.fails_at, failing.error = (0, 3), ap.OpError("the op failed")
    sevens.finish = failing.finish
    found: dict[str, Any] = {"loader_error": error_of(lambda: trainer(failing).fit(epochs=1, verbose=0))}
    found["uneven_batch_error"] = error_of(lambda: trainer(sevens))
    if devices > 1:
        found["too_many_devices_error"] = error_of(lambda: strategies.chosen(4096))
        found["other_count_error"] = error_of(lambda: type(strategy)(devices - 1))
        found["model_errors"] = [error_of(functools.partial(trainer, model=make)) for make in (by_xla, accumulating)]
    return found


def of_parts() -> keras.Model:
    keras.utils.set_random_seed(1)
    photo, numbers = keras.Input((6, 6, 3), name="photo"), keras.Input((3,), name="numbers")
    both = keras.layers.concatenate([keras.layers.Flatten()(photo), numbers])
    kind = keras.layers.Dense(3, activation="softmax", name="kind")(both)
    model = keras.Model([photo, numbers], {"depth": keras.layers.Dense(1, name="depth")(both), "kind": kind})
    model.compile(optimizer="sgd", loss={"depth": "mse", "kind": "sparse_categorical_crossentropy"})
    return model


def parts_trained() -> dict[str, Any]:
    """Return weights and the validation's loss of such a model: by Keras's `fit` on the arrays, and by autopipe."""
    generator, rows = np.random.default_rng(0), 22
    photos, numbers = generator.integers(0, 256, (rows, 6, 6, 3), np.uint8), generator.random((rows, 3), np.float32)
    y: dict[str, Any] = {"depth": generator.random((rows, 1), np.float32), "kind": generator.integers(0, 3, rows)}
    weight = generator.random(rows, np.float32)
    finished = {"numbers": numbers, "photo": photos.astype(np.float32) / 255}
    told: dict[str, Any] = {"batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0}
    made = {}
    for name, each in (("unweighted", None), ("keras", weight)):
        model = of_parts()
        history = model.fit(finished, y, sample_weight=each, validation_data=(finished, y, weight), **told)
        made[name] = [*weights(model), history.history["val_loss"][-1]]
    data = ap.Arrays({"numbers": numbers, "photo": photos}, y, sample_weight=weight)
    workload = ap.Workload(data=data, ops=[ap.Rescale(1 / 255)], batch_size=4, model=of_parts, shuffle=False)
    threads, of_tf_data = ap.Threads(workers=2, queue_size=2), ap.TfData(num_parallel_calls=1, prefetch=1)
    ways = [ap.PipelineConfig(loader=threads)]
    if keras.backend.backend() == "tensorflow":
        ways += [ap.PipelineConfig(loader=threads, steps_per_execution=3)]
        ways += [ap.PipelineConfig(loader=of_tf_data, finish="host")]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for config in ways:
            with ap.make_trainer(workload, config) as trainer:
                history = trainer.fit(2, validation=data, verbose=0)
                made[str(config)] = [*weights(trainer.model), history.history["val_loss"][-1]]
    return made


def run(devices: int, folder: Path) -> dict[str, Any]:
    strategy = strategies.chosen(devices)

    def trainer(loader: ap.Loader | None = None, model: Any = build) -> ap.Trainer:
        built, loader = models.build(model, strategy=strategy), loader or SlotLoader()
        return ap.Trainer(built, loader, strategy=strategy, device_prefetch=2, evaluation_loader=in_order)

    def losses(made: ap.Trainer, **how: Any) -> Any:
        return made.fit(**how, verbose=0).history["loss"]

    out, first = dict[str, Any](), trainer()
    history = first.fit(epochs=3, validation=SlotLoader(shuffle=False), verbose=0)
    out["history"] = history.history
    out["weights"] = weights(first.model)
    out["evaluated"] = first.evaluate(SlotLoader(shuffle=False), verbose=0)
    out["predicted"] = np.asarray(first.predict(SlotLoader(shuffle=False), verbose=0)).tolist()
    traced = Counting.traced
    first.fit(epochs=2, validation=SlotLoader(shuffle=False), verbose=0)
    out["traced_again"] = Counting.traced - traced
    shadowed = {"train_step", "test_step", "predict_step", "evaluate", "_symbolic_build", "_maybe_symbolic_build"}
    out["leftover_attributes"] = sorted(shadowed & set(vars(first.model)))

    def backup() -> keras.callbacks.Callback:
        return keras.callbacks.BackupAndRestore(str(folder / "backup"), save_freq=2)

    with contextlib.suppress(KilledError):
        trainer().fit(epochs=3, callbacks=[backup(), Ends(13)], verbose=0)
    rest = SlotLoader()
    resumed = trainer(rest)
    resumed.fit(epochs=3, callbacks=[backup()], verbose=0)
    out["resumed_at"] = rest.asked[0][:2]
    out["resumed_weights"] = weights(resumed.model)

    out |= refusals(trainer, strategy, devices)
    for name, batch in (("resident", (strategy.place(X[:8]), strategy.place(Y[:8]))), ("repeated", (X[:8], Y[:8]))):
        out[name] = losses(trainer(ResidentLoader(batch, rest.spec, rest.finish, 8)), steps_per_epoch=3)
    out["parts"] = parts_trained() if devices == 1 else {}
    return out


if __name__ == "__main__":
    target = Path(sys.argv[2])
    (target / "result.json").write_text(json.dumps(run(int(sys.argv[1]), target)))
