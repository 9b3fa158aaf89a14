import contextlib
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe.pipeline.config import ModelSetup
from autopipe.pipeline.devices.callbacks import EpochMonitor
from autopipe.workload.mode import Mode
from tests.fakes.loader import ArrayLoader, blobs
from tests.fakes.sources import Made
from tests.unit.pipeline.devices.models import Ends, classifier, same_weights
from tests.unit.pipeline.devices.test_feed import Host

IMAGES, Y = blobs(24)
X = IMAGES.astype(np.float32) / 255


def unread(count: int = 24) -> Made:
    """Samples that are not read: what would make them is missing."""
    return Made(count, None)  # type: ignore[arg-type]


class Four(Host):
    devices = 4

    def scope(self) -> Any:
        return contextlib.nullcontext()


def loader(batch_size: int = 4, **arguments: Any) -> ArrayLoader:
    return ArrayLoader(X, Y, batch_size, **arguments)


class Makes(list[ArrayLoader]):
    """Makes loaders over the first samples, as many as there are to evaluate, and keeps them."""

    def __init__(self, batch_size: int = 4) -> None:
        super().__init__()
        self.batch_size, self.passes = batch_size, list[int]()

    def __call__(self, data: Any, passes: int) -> ap.Loader:
        count = len(data)
        self.append(ArrayLoader(X[:count], Y[:count], min(self.batch_size, count), shuffle=False))
        self.passes.append(passes)
        return self[-1]


THREAD = ap.Threads(workers=1)


def trainer_of(data: Any = None, loader: ap.LoaderConfig = THREAD, **named: Any) -> ap.Trainer:
    """Return a trainer of the classifier on samples, by default X and Y."""
    settings = {"data": data or ap.Arrays(X, Y), "ops": [], "batch_size": 4, "model": classifier, **named}
    return ap.make_trainer(ap.Workload(**settings), ap.PipelineConfig(loader=loader))


@functools.cache
def by_keras(epochs: int, batch_size: int = 4) -> keras.Model:
    """Train on the same batches by `train_on_batch`, to compare with."""
    model, source = classifier(), loader(batch_size)
    for epoch in range(epochs):
        for x, y in source.batches(epoch):
            model.train_on_batch(x, y)
    return model


@pytest.mark.parametrize("batch_size", [4, 7])
def test_fit_trains_each_epochs_batches_in_order_and_returns_keras_history(batch_size: int) -> None:
    trainer = ap.Trainer(classifier(run_eagerly=batch_size == 4), loader(batch_size))
    history = trainer.fit(epochs=np.int64(3), verbose=0)  # type: ignore[arg-type]  # NumPy's counts, too
    assert isinstance(history, keras.callbacks.History)
    assert history.epoch == [0, 1, 2]
    assert same_weights(trainer.model, by_keras(3, batch_size))
    trainer.fit(epochs=1, verbose=0)  # goes on with the next epoch
    assert same_weights(trainer.model, by_keras(4, batch_size))


def test_initial_epoch_says_which_epoch_of_the_data_comes_next() -> None:
    source = loader()
    with ap.Trainer(classifier(), source) as trainer:
        history = trainer.fit(epochs=5, initial_epoch=3, verbose=0)
    assert [epoch for epoch, *_ in source.asked] == history.epoch == [3, 4]
    assert source.closed
    trainer.close()  # may be repeated


def test_steps_per_epoch_cuts_epochs_shorter_without_losing_a_batch() -> None:
    source = loader()
    ap.Trainer(classifier(), source).fit(epochs=3, steps_per_epoch=4, verbose=0)
    assert source.asked == [(0, 0, False), (1, 0, True)]
    assert len(source.handed) == 12


def test_class_weights_count_as_in_keras() -> None:
    weights = {0: 5.0, 1: 0.5}
    trainer = ap.Trainer(classifier(), loader(24, shuffle=False))
    trainer.fit(epochs=2, class_weight=weights, verbose=0)
    expected = classifier()
    expected.fit(X, Y, batch_size=24, epochs=2, shuffle=False, class_weight=weights, verbose=0)
    assert same_weights(trainer.model, expected)


@pytest.mark.parametrize(("kind", "passes"), [("loader", []), ("source", [2]), ("arrays", [])])
def test_validation_may_be_samples_a_loader_or_what_keras_takes(kind: str, passes: list[int]) -> None:
    made = Makes()
    trainer = ap.Trainer(classifier(), loader(), evaluation_loader=made)
    validation: Any = {"loader": loader(), "source": unread(), "arrays": (X, Y)}[kind]
    history = trainer.fit(epochs=2, validation=validation, verbose=0)
    assert history.history["val_loss"][-1] == pytest.approx(trainer.model.evaluate(X, Y, verbose=0), rel=1e-5)
    assert (made.passes, [source.closed for source in made]) == (passes, [True] * len(passes))


def test_it_predicts_by_the_loader_for_predictions_and_evaluates_by_the_usual_one() -> None:
    usual, predicting = Makes(), Makes()
    trainer = ap.Trainer(classifier(), loader(), evaluation_loader=usual)
    trainer.serving = {Mode.PREDICT: predicting}
    trainer.predict(unread(), verbose=0)
    assert (len(predicting), len(usual)) == (1, 0)
    trainer.evaluate(unread(), verbose=0)
    assert (len(predicting), len(usual)) == (1, 1)


def test_a_trainer_validates_on_what_its_workload_names_unless_it_is_told_others() -> None:
    with trainer_of(validation=ap.Arrays(X[:8], Y[:8])) as trainer:
        (own,) = trainer.fit(verbose=0).history["val_loss"]
        assert own == pytest.approx(trainer.evaluate(ap.Arrays(X[:8], Y[:8]), verbose=0))
        (other,) = trainer.fit(validation=ap.Arrays(X, Y), verbose=0).history["val_loss"]
        assert other == pytest.approx(trainer.evaluate(ap.Arrays(X, Y), verbose=0))


LARGER = ap.Arrays(np.zeros((6, 6, 6, 3), np.float32), np.arange(6) % 3)


def test_a_training_that_was_interrupted_goes_on_with_the_next_batch_of_its_own_loader() -> None:
    trainer = ap.Trainer(classifier(), source := loader())
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(epochs=2, callbacks=[EpochMonitor(lambda *_: None), Ends(3, KeyboardInterrupt())], verbose=0)
    assert trainer.loader is source  # not the one by which the monitor times it
    trainer.fit(epochs=1, verbose=0)
    assert [asked[:2] for asked in source.asked] == [(0, 0), (0, 3)]
    assert trainer.state_dict()["epoch"] == 1


@pytest.mark.parametrize(("where", "together"), [("training", 1), ("training", 4), ("validation", 1)])
def test_a_loaders_error_comes_out_as_itself(where: str, together: int) -> None:
    good, bad = loader(), loader()
    bad.fails_at, bad.error = (0, 2), ap.OpError("`Crop` failed at sample 7", hint="Make it smaller.")
    bad.error.__cause__ = cause = ZeroDivisionError()
    trainer = ap.Trainer(classifier(run_eagerly=together == 1), bad if where == "training" else good)
    trainer.setup = ModelSetup(steps_per_execution=together)
    with pytest.raises(ap.OpError, match="sample 7") as caught:
        trainer.fit(epochs=2, validation=None if where == "training" else bad, verbose=0)
    assert caught.value is bad.error
    assert caught.value.__cause__ is cause


def test_callbacks_see_keras_epochs_and_batches() -> None:
    seen: list[Any] = []
    recorder: Any = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: seen.append((recorder.params["epochs"], recorder.params["steps"])),
        on_train_batch_end=lambda batch, logs: seen.append(batch),
        on_epoch_end=lambda epoch, logs: seen.append(f"epoch {epoch}"),
        on_train_end=lambda logs: seen.append("end"),
    )
    for form in ([recorder], recorder, keras.callbacks.CallbackList([recorder])):  # as Keras takes them
        seen.clear()
        ap.Trainer(classifier(), loader(12)).fit(epochs=2, callbacks=form, verbose=0)
        assert seen == [(2, 2), 0, 1, "epoch 0", 0, 1, "epoch 1", "end"]


@pytest.mark.parametrize("given_to", ["trainer", "loader"])
def test_a_state_is_continued_with_the_next_batch_once(given_to: str) -> None:
    source = loader()
    trainer = ap.Trainer(classifier(), source)
    state = {"schema_version": 1, "epoch": 4, "batch": 2, "identity": "arrays"}
    (trainer if given_to == "trainer" else source).load_state_dict(state)
    history = trainer.fit(epochs=2, verbose=0)
    assert source.asked == [(4, 2, False), (5, 0, True)]
    assert history.epoch == [0, 1]
    assert trainer.state_dict()["epoch"] == 6
    trainer.fit(epochs=1, verbose=0)
    assert source.asked[2][:2] == (6, 0)


def test_the_loader_of_a_training_stands_where_the_training_does() -> None:
    trainer = ap.Trainer(classifier(), loader(), device_prefetch=2)
    states: list[tuple[dict[str, Any], ...]] = []
    recorder = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: states.append((trainer.state_dict(), trainer.loader.state_dict()))
    )
    trainer.fit(epochs=2, callbacks=[EpochMonitor(lambda *_: None), recorder], verbose=0)
    assert all(own == of_loader for own, of_loader in states)
    trained = [(own["epoch"], own["batch"]) for own, _ in states[:7]]
    assert trained == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 0), (1, 1)]  # the batch after the one trained
    assert trainer.loader.state_dict() == trainer.state_dict()
    next(trainer.loader.epoch(0))  # in a loop of one's own, it is once more what that has taken
    assert (trainer.loader.state_dict()["batch"], trainer.state_dict()["epoch"]) == (1, 2)


@pytest.mark.parametrize(
    ("data", "rows"), [(unread(23), 3), (unread(2), 2), (ArrayLoader(X[:23], Y[:23], 4), 3), ((X[:23], Y[:23]), 3)]
)
def test_what_devices_cannot_evaluate_is_refused_before_training(data: Any, rows: int) -> None:
    source, made = loader(), Makes()
    trainer = ap.Trainer(classifier(), source, strategy=Four(), evaluation_loader=made)
    actions: list[Any] = [lambda: trainer.fit(validation=data)] + [lambda: trainer.predict(data)] * (type(data) is Made)
    for action in actions:
        with pytest.raises(ap.ModelError, match=f"it has {rows} samples for devices=4") as caught:
            action()
        assert caught.value.hint == f"Leave {rows} of these samples out, or add {4 - rows}."
    assert (source.asked, [each.closed for each in made]) == ([], [True] * len(made))
    if rows == 3:  # the short batch is not among so many steps
        trainer.fit(validation=data, validation_steps=5, verbose=0)
        assert type(data) is not Made or len(trainer.predict(data, steps=5, verbose=0)) == 20


def test_arrays_are_evaluated_in_the_workloads_batches_unless_told() -> None:
    seen: list[int] = []
    counts = keras.callbacks.LambdaCallback()
    counts.on_test_batch_end = counts.on_predict_batch_end = lambda batch, logs=None: seen.append(batch)
    trainer = ap.Trainer(classifier(), loader())
    watch: dict[str, Any] = {"callbacks": [counts], "verbose": 0}
    trainer.fit(validation=(X, Y), **watch)
    trainer.fit(validation=(X, Y), validation_batch_size=5, **watch)
    trainer.evaluate(X, y=Y, **watch)
    trainer.predict(X, **watch)
    trainer.predict(X, batch_size=12, **watch)
    assert seen == [*range(6), *range(5), *range(6), *range(6), *range(2)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epochs": "3"}, "`epochs` must be a whole number of at least 0, but got '3'"),
        ({"epochs": -1}, "`epochs` must be a whole number of at least 0, but got -1"),
        ({"steps_per_epoch": 0}, "`steps_per_epoch` must be a whole number of at least 1, but got 0"),
        ({"initial_epoch": "1"}, "`initial_epoch` must be a whole number of at least 0"),
        ({"class_weight": [5.0, 0.5, 1.0]}, r"map the number of a class.*dict\(enumerate\(weights\)\)"),
        ({"class_weight": np.ones(3)}, "map the number of a class"),
        ({"class_weight": {"cat": 5.0, "dog": 0.5}}, "map the number of a class"),
        ({"callbacks": [keras.callbacks.EarlyStopping]}, "must be Keras callbacks.*EarlyStopping"),
        ({"callbacks": [None]}, "must be Keras callbacks.*Leave it out"),
        *(({name: (X, Y)}, f"does not take `{name}`.* Set it in") for name in ("x", "y", "batch_size", "shuffle")),
        ({"validation_data": (X, Y)}, r"does not take `validation_data`.* validation=\.\.\."),
        ({"validation_split": 0.2}, r'does not take `validation_split`.* such as .*"photos", val.*, subset='),
        ({"sample_weight": Y}, r"does not take `sample_weight`.* samples be \(x, y, sample_weight\)"),
    ],
    ids=str,
)
def test_what_fit_cannot_take_is_named_with_its_value(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ap.ModelError) as told:
        ap.Trainer(classifier(), loader()).fit(**{"epochs": 2, "verbose": 0, **given})
    assert re.search(said, f"{told.value.message} {told.value.hint}", re.DOTALL)


def trainer_to_fit() -> ap.Trainer:
    """Return a trainer that was given its loader, and cannot make one for other samples."""
    return ap.Trainer(classifier(), loader())


class Classes(ap.Arrays):
    class_numbers: ClassVar = {"a": 0, "b": 1, "c": 2}


def cut(image: Any, rng: Any) -> Any:
    return image[:4, :4]


MASKS = np.zeros((24, 6, 5))
WHOLE = ap.Workload(data=unread(), ops=[], batch_size=4)
NO_DATA: tuple[Any, ...] = ("photos/val", Path("photos"), 3)
REFUSED: list[tuple[Callable[[], ap.Trainer], Callable[[ap.Trainer], object], str]] = [
    (trainer_to_fit, lambda made: made.fit(validation=ArrayLoader(np.zeros((8, 6, 6, 3), np.float32), Y[:8], 4)),
     r"shape \(None, 4, 4, 3\), but gets \(None, 6, 6, 3\)"),
    (lambda: trainer_of(LARGER, ops=[ap.Map(cut, random=True), ap.RandomFlip()]),
     lambda made: made.fit(validation=LARGER),
     r"gets \(None, 6, 6, 3\).* leave out what is random: `Map`, `RandomFlip`"),
    (lambda: trainer_of(Classes(X, Y)), lambda made: made.fit(class_weight={1: 1.0, 2: 2.0, 3: 1.0}),
     r"of the classes 0 to 2, but has one of 3\."),
    *((trainer_of, lambda made, lacking=lacking: made.fit(validation=lacking),
       r"have none.*`predict` takes those of x alone") for lacking in (ap.Arrays(X), X, (X,))),
    (trainer_of, lambda made: made.evaluate(ap.Arrays(X)), "trained with targets"),
    (trainer_of, lambda made: made.fit(validation=ap.Arrays(X, MASKS)),
     r"of shape \(None,\), but those .* are \(None, 6, 5\)"),
    (trainer_to_fit, lambda made: made.evaluate(unread()), r"ap\.make_trainer"),
    (trainer_to_fit, lambda made: made.fit(validation=WHOLE),
     r"but got a whole Workload\. Pass its samples, `workload\.data`"),
    *((trainer_to_fit, lambda made, data=data: made.fit(validation=data),
       rf"Keras takes, but got {re.escape(repr(data))}\. Pass samples, such as") for data in NO_DATA),
    (trainer_to_fit, lambda made: made.evaluate(3), r"data that Keras takes, but got 3\. Pass samples, such as"),
    *((lambda few=few, size=size: ap.Trainer(classifier(), ArrayLoader(X[:few], Y[:few], size), strategy=Four()),
       lambda made: None, f"{left} samples for devices=4") for few, size, left in ((22, 4, 2), (23, 4, 3), (24, 6, 6))),
]  # fmt: skip


@pytest.mark.parametrize(("make", "call", "said"), REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_trained(make: Any, call: Any, said: str) -> None:
    trainers = list[ap.Trainer]()
    with pytest.raises(ap.ModelError, match=said):  # noqa: PT012  some are refused as they are made
        trainers.append(make())
        call(trainers[0])
    for made in trainers:
        assert (made.state_dict()["epoch"], made.state_dict()["batch"]) == (0, 0)
        made.close()


def test_samples_without_targets_are_predicted_and_some_other_ones_fit() -> None:
    with trainer_of() as trainer:
        assert trainer.predict(ap.Arrays(X), verbose=0).shape == (24, 3)
        assert len(trainer.fit(validation=ap.Arrays(X, Y), verbose=0).history["val_loss"]) == 1
    with trainer_of(LARGER, ops=[ap.RandomCrop(4, 4), ap.RandomFlip()]) as cropping:
        assert cropping.predict(LARGER, verbose=0).shape == (6, 3)
    with trainer_of(Classes(X, Y)) as trainer:
        for weights in ({0: 1.0, 2: 2.0}, dict.fromkeys(range(4), 1.0)):  # 3 may be a class of another fold
            trainer.fit(class_weight=weights, verbose=0)


@pytest.mark.parametrize("more", [{}, {"epochs": 3}])
def test_data_are_the_loaders_own_and_a_number_is_epochs(more: dict[str, Any]) -> None:
    with ap.Trainer(classifier(), loader()) as trainer:
        with pytest.raises(ap.ModelError, match="has its data already, but `fit` got array"):
            trainer.fit(X, **more)
        assert trainer.fit(1, verbose=0).epoch == [0]
