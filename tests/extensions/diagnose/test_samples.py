"""What the samples of a training tell: leaks, targets of other samples, epochs that are all alike."""

import itertools
from typing import Any

import keras
import numpy as np
import pytest

from autopipe.extensions.diagnose.fit_call import last_weights
from autopipe.extensions.diagnose.samples import Samples
from autopipe.measure.verify import Values
from tests.extensions.diagnose.conftest import only

X = np.random.default_rng(0).integers(0, 255, (64, 40, 40, 3), np.uint8)
Y = np.arange(64)
SOFT = np.tile((np.arange(16) / 15 > 0.5).astype(np.float32), (64, 16, 1))
SOFT[:, :, 8] = 0.4
WARM = np.clip(X * 0.8 + np.array([40, 20, 0]), 0, 255).astype(np.uint8)  # as photographs are
BGR = WARM[..., ::-1]
ORDERS = [np.random.default_rng(seed).permutation(64) for seed in range(6)]
NOISY = [X ^ np.random.default_rng(seed).integers(0, 255, X.shape, np.uint8) for seed in range(3)]
ONE_HOT = np.eye(8, dtype=np.float32)[Y % 8]
NO_NUMBERS: list[Any] = [(np.array(["a", "b"], object), Y[:2]), (None, None), (3, 4), ({}, Y)]
ENDS = np.concatenate([Y[:24] % 2, np.zeros(40, int)])  # as of two datasets, of which one ends first


def batches(x: Any, y: Any) -> list[Any]:
    return [(x[begin : begin + 8], y[begin : begin + 8]) for begin in range(0, len(x), 8)]


def looked(epochs: Any, **known: Any) -> Samples:
    """Return `Samples` that have seen epochs: each a pair (x, y) in batches of 8, or a list of batches."""
    found = Samples(clock=lambda: 0.0, **known)
    for each in epochs:
        found.epoch_began()
        for batch in each if isinstance(each, list) else batches(*each):
            found.trained(batch)
    return found


def validated(found: Samples, x: Any, y: Any = None) -> None:
    found.validation_began()
    assert len(list(found.validated(iter([(x, y)])))) == 1


def mixed(beside: float) -> Any:
    return ONE_HOT * np.float32(1 - beside) + ONE_HOT[::-1] * np.float32(beside)


def padded(order: Any) -> list[Any]:
    """Return batches whose y is as wide as the longest of the batch."""
    widths = [(rows, np.arange(1 + max(Y[rows] % 5))) for rows in order.reshape(-1, 8)]
    return [(X[rows], np.where(width <= Y[rows, None] % 5, Y[rows, None] + 1, 0)) for rows, width in widths]


def in_blocks(order: Any, y: Any) -> list[Any]:
    """Return whole batches in another order."""
    return [(X[8 * at : 8 * at + 8], y[8 * at : 8 * at + 8]) for at in order[order < 8]]


def by_classes(*of_each: int) -> list[Any]:
    """Return batches of so many samples each of some classes, which are drawn."""
    rng = np.random.default_rng(0)
    chosen = [rng.choice(16, len(of_each), replace=False) for _ in range(24)]
    return [(X[:8] + np.uint8(number), np.repeat(each, of_each)) for number, each in enumerate(chosen)]


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        ([(X[order], Y[order]) for order in ORDERS[:3]], None),
        ([(X[order], X[order] + np.float32(n)) for n, order in enumerate(ORDERS[:3])], None),  # y is a view of x
        ([(np.zeros_like(X), Y[order]) for order in ORDERS[:2]], None),  # blank samples with several y
        ([(np.zeros_like(X), np.zeros_like(Y))] * 3, None),  # batches that are all alike
        ([(x, Y % 2) for x in NOISY], None),  # batches that y does not tell apart
        ([(x, Y * 0) for x in NOISY[:2]], None),
        ([(X[order], Y[other]) for order, other in zip(ORDERS, ORDERS[3:], strict=False)], "of 128 samples that came"),
        ([(X[ORDERS[0]], ONE_HOT[ORDERS[0]]), (X[ORDERS[1]], mixed(6e-8)[ORDERS[1]])], None),  # MixUp of nearly nothing
        ([(X[ORDERS[0]], ONE_HOT[ORDERS[0]]), (X[ORDERS[1]], mixed(0.2)[ORDERS[1]])], "had another y"),
        ([padded(order) for order in ORDERS[:3]], None),
        ([(X, Y)] * 3, "same batches in the same order"),
        ([(x, Y) for x in NOISY], "y comes in the same"),
        ([in_blocks(order, Y // 16) for order in ORDERS[:3]], "sorted by y"),
        ([in_blocks(order, Y) for order in ORDERS[:3]], None),
        ([(X[order], (Y // 16)[order]) for order in ORDERS[:3]], None),
        ([by_classes(2, 2, 2, 2)], None),
        ([by_classes(5, 1, 1, 1)], "sorted by y"),
        ([by_classes(8)], "sorted by y"),
        ([(X, ENDS)], "sorted by y"),
        *(([[each, (X, Y)]], None) for each in NO_NUMBERS),
        ([[({"image": X, "age": Y}, {"mask": y})] for y in (Y, Y[::-1])], "64 of 64 samples"),
    ],
)
def test_what_the_epochs_of_a_training_tell_is_told(epochs: Any, words: str | None) -> None:
    only(looked(epochs).said(), words)


def test_data_drawn_from_several_datasets_and_slots_that_are_no_y_are_told_apart() -> None:
    only(looked([(X, ENDS)], drawn=True).said(), "sample_from_datasets")
    # As of triplets, whose positive is drawn anew for each anchor, and of unpaired images of two kinds.
    only(looked([(X, X[order]) for order in ORDERS[:3]], has_y=False).said(), None)


@pytest.mark.parametrize(
    ("training", "validation", "words"),
    [
        (X[:56], X[:0], None),
        (X[:56], X[48:], "8 of 16 validation samples"),
        (X[:57], X[56:], None),  # a single one
        (X[:32] / 255.0, X[32:], "one of them is scaled"),
        (X[:32], X[32:] / 127.5 - 1, "one of them is scaled"),
        (X[:32], X[32:] * 0.9, None),
        (X[:32] / 255.0, X[32:] / 255.0, None),
        (WARM[:32], BGR[32:], "one is RGB and the other BGR"),
        (WARM[:32] / 255, BGR[32:] / 255, "one is RGB and the other BGR"),
        (WARM[:32], WARM[32:], None),
        (WARM[:32], X[32:, ..., ::-1], None),
        (WARM[:32, 0], BGR[32:, 0], None),
        (WARM[:32], BGR[:8], None),
        (WARM[:32], np.concatenate([BGR[:8]] * 4), None),  # the same ones, in each epoch
    ],
)
def test_what_a_validation_tells_beside_the_training_is_told(training: Any, validation: Any, words: Any) -> None:
    found = looked([(training, Y)])
    validated(found, validation)
    only(found.said(), words)


def test_validation_samples_that_an_earlier_fit_trained_the_model_on_are_counted() -> None:
    later = looked([[(X[:48], Y[:48])]], before=looked([[(X[8:], Y[8:])]]).xs)
    validated(later, X[40:])
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
    found, targets = looked([]), Y % classes
    for number in range(3):
        rows = slice(number * step, number * step + 16)
        validated(found, X[rows] + number * change, targets[rows])
    only(found.said(), words and f"Each of 3 validations {words}")


@pytest.mark.parametrize(
    ("is_sorted", "is_whole", "mixed"), [(True, True, 0), (False, True, 0), (True, False, 0), (True, True, 0.5)]
)
def test_a_validation_of_the_last_classes_of_sorted_data_is_told(is_sorted: bool, is_whole: bool, mixed: float) -> None:
    y, order = np.sort(Y % 4) if is_sorted else Y % 4, np.random.default_rng(0).permutation(48)
    now = itertools.count()
    found = Samples(clock=lambda: 0.0 if is_whole else next(now))  # else a look takes as long as all else
    for batch in batches(X[order], y[order] + mixed):
        found.trained(batch)
    found.validation_began()
    assert len(list(found.validated(iter(batches(X[48:], y[48:]))))) == 2
    only(found.said(), "The validation has 1 different y" if is_sorted and is_whole and not mixed else None)


@pytest.mark.parametrize(
    ("slot", "rows", "value", "said"),
    [
        (0, 9, np.nan, "x of 1 of 64 samples"),
        (1, 9, np.nan, None),
        (2, 9, np.nan, "the sample weight of 1 of 64 samples"),
        (2, 9, 0.0, None),
        (2, slice(None), 0.0, "all 64 samples"),
    ],
)
def test_samples_that_are_no_numbers_or_do_not_count_are_told(slot: int, rows: Any, value: float, said: Any) -> None:
    values, arrays = Values(), [X.astype("float32"), Y.astype("float32"), np.ones(64, np.float32)]
    arrays[slot][rows] = value
    values.note(arrays)
    only(values.no_numbers(), said)


@pytest.mark.parametrize(("step", "said"), [(1, "share 7 of 8 samples"), (8, None)])
def test_batches_that_share_most_of_their_samples_are_told_of(step: int, said: str | None) -> None:
    epoch = [(X[begin : begin + 8], Y[begin : begin + 8]) for begin in range(0, 57, step)]
    only(looked([epoch]).overlapping(), said)


SPARSE, BINARY = "sparse_categorical_crossentropy", "binary_crossentropy"


def own(**steps: Any) -> type[keras.Model]:
    return type("Own", (keras.Sequential,), steps)


CALLS_LOSS: Any = {"train_step": lambda self, data: {"loss": self.compute_loss(*data)}}


@pytest.mark.parametrize(
    ("x", "y", "loss", "said"),
    [
        (X / 255.0, Y % 3, SPARSE, "`scaled` multiplies it by 0.00392 once more"),
        (X * 1.0, Y % 3, SPARSE, None),
        (X, 1 + Y % 3, SPARSE, "y goes from 1 to 3, but the model's 3 outputs are classes 0"),
        (X, SOFT, BINARY, "of which 6.25% of the values lie between"),
        (X, SOFT.round(), BINARY, None),
        (X, 0.05 + 0.9 * SOFT, BINARY, None),  # smoothed
        (X, 0.9 * SOFT * (np.arange(16) > 12), BINARY, None),  # an image, as of a digit
        (X, Y % 3 / 2, SPARSE, "between whole numbers"),
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
    misfits(keras.Sequential([keras.layers.Rescaling(1 / 255, name="scaled"), keras.layers.Dense(3)]), x, y, loss, said)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (own(train_step=lambda self, data: {}), None),
        (own(**CALLS_LOSS), "between whole numbers"),
        (own(**CALLS_LOSS, compute_loss=lambda self, *given, **named: 0.0), None),
    ],
)
def test_a_loss_that_a_step_of_the_models_own_does_not_use_tells_nothing_of_y(kind: Any, said: str | None) -> None:
    misfits(kind([keras.layers.Dense(3)]), X, Y % 3 / 2, SPARSE, said)


def misfits(model: Any, x: Any, y: Any, loss: Any, said: str | None) -> None:
    """Require that this, or nothing, is told of a batch of a model."""
    if not model.built:
        model.build((None, 40, 40, 3))
    model.compile("sgd", loss)
    only(looked([[(x, y)]]).values.misfits(model), said)


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
    else:
        model = keras.Model(inputs, base(before(inputs)))
    misfits(model, X * scale, Y % 3, "mse", said if frozen else None)


def test_looking_takes_a_hundredth_of_the_time() -> None:
    now = iter(np.arange(10_000.0))  # each look takes as long as all that is between two of them
    found = Samples(clock=lambda: next(now))
    for _ in range(200):
        found.trained((X[:8], Y[:8]))
    assert next(now) < 220  # 200 questions of the time, and few looks


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
    found = looked([[(X[begin : begin + 8], Y[begin : begin + 8]) for begin in order]] * 2)
    only(found.copies(workers, whole=whole), f"each of {workers} workers" if told else None)
