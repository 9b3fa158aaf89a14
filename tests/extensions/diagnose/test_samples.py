"""What the samples of a training tell: leaks, targets of other samples, epochs that are all alike."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import pytest

from autopipe.extensions.diagnose.fit_call import last_weights
from autopipe.extensions.diagnose.samples import Samples
from autopipe.measure.verify import Values

X = np.random.default_rng(0).integers(0, 255, (64, 40, 40, 3), np.uint8)
Y = np.arange(64)
SOFT = np.tile((np.arange(16) / 15 > 0.5).astype(np.float32), (64, 16, 1))
SOFT[:, :, 8] = 0.4


def seen(epochs: Iterable[tuple[Any, Any]], validation: Any = None, **known: Any) -> list[str]:
    """Return the findings on epochs, in batches of 8, each followed by a validation on some x."""
    found = Samples(clock=lambda: 0.0, **known)
    for x, y in epochs:
        found.epoch_began()
        for begin in range(0, len(x), 8):
            found.trained((x[begin : begin + 8], y[begin : begin + 8]))
        if validation is not None:
            found.validation_began()
            assert len(list(found.validated(iter([(validation, None)])))) == 1
    return list(found.said())


def orders(count: int) -> list[Any]:
    return [np.random.default_rng(seed).permutation(len(X)) for seed in range(count)]


def noisy() -> Any:
    rng = np.random.default_rng(0)
    return (X ^ rng.integers(0, 255, X.shape, np.uint8) for _ in itertools.count())


@pytest.mark.parametrize(
    "epochs",
    [
        pytest.param([(X[order], Y[order]) for order in orders(3)], id="shuffled"),
        pytest.param(
            [(X[order], X[order] + np.float32(n)) for n, order in enumerate(orders(3))], id="y is a view of x"
        ),
        pytest.param([(np.zeros_like(X), Y[order]) for order in orders(2)], id="blank samples with several y"),
        pytest.param([(np.zeros_like(X), np.zeros_like(Y))] * 3, id="batches that are all alike"),
        pytest.param([*zip(noisy(), [Y % 2] * 3, strict=False)], id="batches that y does not tell apart"),
        pytest.param([*zip(noisy(), [Y * 0] * 2, strict=False)], id="random changes and one y"),
    ],
)
def test_of_epochs_as_they_should_be_nothing_is_said(epochs: list[tuple[Any, Any]]) -> None:
    assert seen(epochs, X[:0]) == []


def test_validation_samples_that_are_trained_on_are_counted_but_for_a_single_one() -> None:
    (said,) = seen([(X[:56], Y[:56])], X[48:])
    assert said.startswith("8 of 16 validation samples")
    assert seen([(X[:57], Y[:57])], X[56:]) == []


def test_validation_samples_that_an_earlier_fit_trained_the_model_on_are_counted() -> None:
    before = Samples(clock=lambda: 0.0)
    before.trained((X[8:], Y[8:]))
    later = Samples(clock=lambda: 0.0, before=before.xs)
    later.trained((X[:48], Y[:48]))
    later.validation_began()
    assert len(list(later.validated([(X[40:], None)]))) == 1
    told = [said.partition(" validation")[0] for said in later.leaks()]
    assert told == ["8 of 24", "16 of 24"]  # of this fit, of the one before


def test_weights_that_were_set_back_are_of_no_earlier_fit() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    begun, weights = last_weights(model), model.get_weights()
    model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    assert last_weights(model) == last_weights(model) != begun
    model.set_weights(weights)
    assert last_weights(model) == begun


@pytest.mark.parametrize(
    ("step", "change", "classes", "words"),
    [
        (16, 0.0, 64, "had other samples"),
        (15, 0.0, 64, None),
        (0, 1.0, 64, "had the y of the one before, and none of its x: random changes"),
        (0, 1.0, 1, None),
    ],
)
def test_validations_that_share_no_sample_are_told(step: int, change: float, classes: int, words: str | None) -> None:
    found, targets = Samples(clock=lambda: 0.0), np.arange(len(X)) % classes
    for number in range(3):
        found.validation_began()
        rows = slice(number * step, number * step + 16)
        assert len(list(found.validated([(X[rows] + number * change, targets[rows])]))) == 1
    assert [f"Each of 3 validations {words}" in each for each in found.said()] == [True] * (words is not None)


@pytest.mark.parametrize(
    ("slot", "said"), [(0, ["x of 1 of 64 samples"]), (1, []), (2, ["the sample weight of 1 of 64 samples"])]
)
def test_samples_that_are_no_numbers_are_counted(slot: int, said: list[str]) -> None:
    values, arrays = Values(), [X.astype("float32"), Y.astype("float32"), np.ones(64, np.float32)]
    arrays[slot][9] = np.nan
    values.note(arrays)
    assert [each.partition(" that were")[0] for each in values.no_numbers()] == said


@pytest.mark.parametrize("step", [1, 8])
def test_batches_that_share_most_of_their_samples_are_told_of(step: int) -> None:
    found = Samples(clock=lambda: 0.0)
    for begin in range(0, 57, step):
        found.trained((X[begin : begin + 8], Y[begin : begin + 8]))
    assert ["share 7 of 8 samples" in each for each in found.overlapping()] == [True] * (step == 1)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_weights_of_which_none_counts_are_told(weight: float) -> None:
    values = Values()
    values.note([X, Y, np.full(64, weight)])
    assert ["all 64 samples" in each for each in values.no_numbers()] == [True] * (weight == 0)


@pytest.mark.parametrize(
    ("training", "validation", "is_told"),
    [(X / 255.0, X, True), (X, X / 127.5 - 1, True), (X, X * 0.9, False), (X / 255.0, X / 255.0, False)],
)
def test_a_validation_that_is_not_scaled_as_the_training_is_told(training: Any, validation: Any, is_told: bool) -> None:
    told = seen([(training[:32], Y[:32])], validation[32:])
    assert ["one of them is scaled" in each for each in told] == [True] * is_told


WARM = np.clip(X * 0.8 + np.array([40, 20, 0]), 0, 255).astype(np.uint8)  # as photographs are


@pytest.mark.parametrize(
    ("training", "validation", "is_told"),
    [
        (WARM, WARM[..., ::-1], True),
        (WARM / 255, WARM[..., ::-1] / 255, True),
        (WARM, WARM, False),
        (WARM, X[..., ::-1], False),
        (WARM[:, 0], WARM[:, 0, :, ::-1], False),
        (WARM, WARM[:8, ..., ::-1], False),
        (WARM, np.concatenate([WARM[:8, ..., ::-1]] * 4), False),  # the same ones, in each epoch
    ],
)
def test_a_validation_whose_colours_are_in_another_order_is_told(training: Any, validation: Any, is_told: bool) -> None:
    told = seen([(training[:32], Y[:32])], validation[-32:])
    assert ["one is RGB and the other BGR" in each for each in told] == [True] * is_told


@pytest.mark.parametrize(
    ("x", "y", "loss", "said"),
    [
        (X / 255.0, Y % 3, "sparse_categorical_crossentropy", "`scaled` multiplies it by 0.00392 once more"),
        (X * 1.0, Y % 3, "sparse_categorical_crossentropy", None),
        (
            X,
            1 + Y % 3,
            "sparse_categorical_crossentropy",
            "y goes from 1 to 3, but the model's 3 outputs are classes 0",
        ),
        (X, SOFT, "binary_crossentropy", "of which 6.25% of the values lie between"),
        (X, SOFT.round(), "binary_crossentropy", None),
        (X, 0.05 + 0.9 * SOFT, "binary_crossentropy", None),  # smoothed
        (X, 0.9 * SOFT * (np.arange(16) > 12), "binary_crossentropy", None),  # an image, as of a digit
        (X, Y % 3 / 2, "sparse_categorical_crossentropy", "between whole numbers"),
        (X, Y % 3, keras.losses.SparseCategoricalCrossentropy(), None),
        (X, 1 + Y % 3, keras.losses.SparseCategoricalCrossentropy(ignore_class=3), None),
        (X, 1 + Y % 5, keras.losses.SparseCategoricalCrossentropy(ignore_class=3), "such as 4, 5, but"),
        (X, Y % 2 * 255, "bce", "y goes from 0 to 255, but binary_crossentropy takes 0 to 1"),
        (X, Y % 2 * 255, "bce", "Divide masks"),
        (X, Y % 3, "bce", "as many outputs"),
        (X, Y % 2 * 2 - 1, "bce", "number them 0 and 1"),
        (X, Y % 2, keras.losses.BinaryCrossentropy(), None),
        (X, Y % 2 * 255, "mse", None),
        (X, Y % 2 * 255, None, None),
    ],
)
def test_values_that_the_model_is_not_made_for_are_told(x: Any, y: Any, loss: Any, said: str | None) -> None:
    model = keras.Sequential([keras.layers.Rescaling(1 / 255, name="scaled"), keras.layers.Dense(3)])
    model.build((None, 40, 40, 3))
    model.compile("sgd", loss)
    found = Samples(clock=lambda: 0.0)
    found.trained((x, y))
    assert [str(said) in each for each in found.values.misfits(model)] == [True] * (said is not None)


class OwnStep(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        raise NotImplementedError


class CallsLoss(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        return {"loss": self.compute_loss(*data)}


class OwnLoss(CallsLoss):
    def compute_loss(self, *given: Any, **named: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(("kind", "is_told"), [(OwnStep, False), (CallsLoss, True), (OwnLoss, False)])
def test_a_loss_that_a_step_of_the_models_own_does_not_use_tells_nothing_of_y(*, kind: Any, is_told: bool) -> None:
    model = kind([keras.layers.Dense(3)])
    model.build((None, 40, 40, 3))
    model.compile("sgd", "sparse_categorical_crossentropy")
    found = Samples(clock=lambda: 0.0)
    found.trained((X, Y % 3 / 2))
    assert ["between whole numbers" in each for each in found.values.misfits(model)] == [True] * is_told


@pytest.mark.parametrize(
    ("name", "scale", "before", "said"),
    [
        ("mobilenetv2_1.00_40", 1, None, "`keras.applications.mobilenet_v2.preprocess_input`"),
        ("mobilenetv2_1.00_40", 1 / 255, None, None),
        ("resnet50", 1 / 255, keras.layers.RandomFlip(), "`keras.applications.resnet.preprocess_input`"),
        ("resnet50", 1, None, None),
        ("resnet101v2", 1, None, "`keras.applications.resnet_v2.preprocess_input`"),
        ("vgg16", 1 / 255, keras.layers.Rescaling(255), None),
        ("xception", 1, keras.applications.xception.preprocess_input, None),
        ("xception", 1, lambda x: x, "`keras.applications.xception.preprocess_input`"),
        ("efficientnetb0", 1 / 255, None, None),
        ("of_my_own", 1, None, None),
    ],
)
@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_network_that_gets_what_it_was_not_trained_on_is_told(
    name: str, scale: float, before: Any, said: str | None, frozen: bool
) -> None:
    inputs = keras.Input((40, 40, 3))
    base = keras.Model(inputs, keras.layers.Conv2D(2, 3)(inputs), name=name)
    base.trainable = not frozen
    if before is None or isinstance(before, keras.Layer):
        model: Any = keras.Sequential([*([before] if before else []), base, keras.layers.Flatten()])
        model.build((None, 40, 40, 3))
    else:
        model = keras.Model(inputs, base(before(inputs)))
    model.compile("sgd", "mse")
    found = Samples(clock=lambda: 0.0)
    found.trained((X * scale, Y % 3))
    assert [str(said) in each for each in found.values.misfits(model)] == [True] * (frozen and said is not None)


@pytest.mark.parametrize(
    ("is_sorted", "is_whole", "mixed"), [(True, True, 0), (False, True, 0), (True, False, 0), (True, True, 0.5)]
)
def test_a_validation_of_the_last_classes_of_sorted_data_is_told(is_sorted: bool, is_whole: bool, mixed: float) -> None:
    y, order = np.sort(Y % 4) if is_sorted else Y % 4, np.random.default_rng(0).permutation(48)
    now = itertools.count()
    found = Samples(clock=lambda: 0.0 if is_whole else next(now))  # else a look takes as long as all else
    found.epoch_began()
    for begin in range(0, 48, 8):
        rows = order[begin : begin + 8]
        found.trained((X[rows], y[rows] + mixed))
    found.validation_began()
    assert len(list(found.validated(iter([(X[48:56], y[48:56]), (X[56:], y[56:])])))) == 2
    is_told = is_sorted and is_whole and not mixed
    assert ["The validation has 1 different y" in each for each in found.said()] == [True] * is_told


def test_targets_that_are_shuffled_apart_are_told() -> None:
    (said,) = seen((X[order], Y[other]) for order, other in zip(orders(3), orders(6)[3:], strict=True))
    assert "of 128 samples that came again had another y" in said


@pytest.mark.parametrize(("beside", "is_told"), [(6e-8, False), (0.2, True)])
def test_a_y_that_mixup_by_nearly_nothing_made_is_the_same(*, beside: float, is_told: bool) -> None:
    one_hot = np.eye(8, dtype=np.float32)[Y % 8]
    mixed = one_hot * np.float32(1 - beside) + one_hot[::-1] * np.float32(beside)
    said = seen((X[order], y[order]) for order, y in zip(orders(2), (one_hot, mixed), strict=True))
    assert ["had another y" in each for each in said] == [True] * is_told


def test_of_slots_that_are_no_y_nothing_is_told() -> None:
    """As of triplets, whose positive is drawn anew for each anchor, and of unpaired images of two kinds."""
    assert seen(((X, X[order]) for order in orders(3)), has_y=False) == []


def test_targets_that_are_padded_as_far_as_their_batch_needs_are_the_same() -> None:
    found = Samples(clock=lambda: 0.0)
    for order in orders(3):
        found.epoch_began()
        for rows in order.reshape(-1, 8):
            values = np.arange(1 + max(Y[rows] % 5))
            found.trained((X[rows], np.where(values <= Y[rows, None] % 5, Y[rows, None] + 1, 0)))
    assert list(found.said()) == []


@pytest.mark.parametrize(
    ("changes", "words"), [(False, "same batches in the same order"), (True, "y comes in the same")]
)
def test_epochs_in_one_order_are_told(changes: bool, words: str) -> None:
    (said,) = seen(zip(noisy() if changes else [X] * 3, [Y] * 3, strict=False))
    assert words in said


@pytest.mark.parametrize(("classes", "is_told"), [(4, True), (64, False)])
def test_data_that_are_sorted_by_y_are_told(classes: int, is_told: bool) -> None:
    batches = [np.random.default_rng(seed).permutation(8) for seed in range(3)]
    epochs = [(X.reshape(8, 8, *X.shape[1:])[order], (Y * classes // 64).reshape(8, 8)[order]) for order in batches]
    said = seen((x.reshape(X.shape), y.reshape(Y.shape)) for x, y in epochs)
    assert ["sorted by y" in each for each in said] == [True] * is_told
    assert seen((X[order], (Y * classes // 64)[order]) for order in orders(3)) == []


@pytest.mark.parametrize(("of_each", "is_told"), [((2, 2, 2, 2), False), ((5, 1, 1, 1), True), ((8,), True)])
def test_batches_of_several_classes_with_as_many_samples_each_are_no_sorted_data(
    of_each: tuple[int, ...], is_told: bool
) -> None:
    rng, found = np.random.default_rng(0), Samples(clock=lambda: 0.0)
    for number in range(24):
        chosen = rng.choice(16, len(of_each), replace=False)
        found.trained((X[:8] + np.uint8(number), np.repeat(chosen, of_each)))
    assert ["sorted by y" in said for said in found.said()] == [True] * is_told


def test_data_drawn_from_several_datasets_of_which_one_ends_first_are_told_so() -> None:
    ends = np.concatenate([Y[:24] % 2, np.zeros(40, int)])
    for drawn, words in ((True, "sample_from_datasets"), (False, "sorted by y")):
        (said,) = seen([(X, ends)], drawn=drawn)
        assert words in said


@pytest.mark.parametrize("batch", [(np.array(["a", "b"], object), Y[:2]), (None, None), (3, 4), ({}, Y[:2])])
def test_batches_without_numbers_are_left_alone(batch: Any) -> None:
    found = Samples()
    found.trained(batch)
    found.trained((X, Y))
    assert list(found.said()) == []


def test_looking_takes_a_hundredth_of_the_time() -> None:
    now = iter(np.arange(10_000.0))  # each look takes as long as all that is between two of them
    found = Samples(clock=lambda: next(now))
    for _ in range(200):
        found.trained((X[:8], Y[:8]))
    assert next(now) < 220  # 200 questions of the time, and few looks


def test_nested_inputs_count_as_one_x() -> None:
    first = Samples(clock=lambda: 0.0)
    for y in (Y, Y[::-1]):
        first.epoch_began()
        first.trained(({"image": X, "age": Y}, {"mask": y}))
    (said,) = first.said()
    assert said.startswith("64 of 64 samples")


IN_TURN, APART = [0, 0, 8, 8], [0, 8, 16, 24, 24, 16, 8, 0]  # the beginnings of two workers' batches
DRAWN = [0, 8, 16, 24, 0, 8, 0, 8]


@pytest.mark.parametrize(
    ("order", "workers", "whole", "told"),
    [
        (IN_TURN, 2, True, True),
        (APART, 2, True, True),
        (APART, 2, False, False),  # of a stream without an end, which comes to have all again
        (DRAWN, 2, True, False),
        (IN_TURN, 1, True, False),
        (IN_TURN, 0, True, False),
    ],
)
def test_samples_that_each_worker_reads_are_told_of(order: list[int], workers: int, *, whole: bool, told: bool) -> None:
    found = Samples(clock=lambda: 0.0)
    for _ in range(2):
        found.epoch_began()
        for begin in order:
            found.trained((X[begin : begin + 8], Y[begin : begin + 8]))
    assert [f"each of {workers} workers" in said for said in found.copies(workers, whole=whole)] == [True] * told
