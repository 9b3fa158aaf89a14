import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from autopipe.measure.outcome import VerifyOptions
from autopipe.measure.verify import Values, _compare, _Epoch, repeats, verify
from autopipe.pipeline import wrap
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.workers import Threads
from autopipe.reports import tables
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.data.images import ImageFolder
from autopipe.workload.ops.decode import Decode
from autopipe.workload.workload import Workload
from tests.fakes.damage import in_classes
from tests.fakes.facts import known
from tests.fakes.reports import Told
from tests.unit.pipeline.devices.models import classifier

CONFIG = PipelineConfig(loader=Threads(workers=2), finish="host")


def test_values_that_lack_are_the_same_where_they_lack_everywhere() -> None:
    x = np.random.default_rng(0).random((12, 3, 3, 1), np.float32)
    x[3, 1, 1], x[5, 0, 0] = np.nan, np.inf
    y = np.where(np.arange(12) % 4 == 0, np.nan, np.arange(12.0))
    found = verify(Workload(data=Arrays(x, y), ops=[], batch_size=5), [CONFIG], samples=12, report=Told()).agreements
    assert [(each.message, each.largest_difference, each.samples) for each in found] == [(None, 0.0, 12)]
    assert 0.9 < found[0].largest_value < 1


def epoch(x: NDArray[np.float32]) -> _Epoch:
    return _Epoch((x,), (np.arange(len(x)),), np.arange(len(x)))


def test_a_value_that_lacks_on_one_side_only_is_told() -> None:
    for value, in_the_reference in itertools.product((np.nan, np.inf), (False, True)):
        sides = epoch(np.full((4, 2), 0.5, np.float32)), epoch(np.full((4, 2), 0.5, np.float32))
        sides[0].x[0][2, 1] = value
        found = _compare(CONFIG, *(sides if in_the_reference else sides[::-1]))
        assert found.message == "NaN or infinite values stand where others should"
        assert not tables.agrees(Mock(agreements=[found]))


DATA = np.arange(24, dtype=np.float32).reshape(12, 2)


def forked(workers: int = 1) -> Iterator[Any]:
    """Give each batch once for each worker, as forks of one random generator do."""
    for start in range(0, 12 // workers, 4):
        for _ in range(workers):
            yield DATA[start : start + 4], np.arange(start, start + 4)


def both(workload: Workload, **changed: Any) -> list[PipelineConfig]:
    """Return the configuration of a wrapped dataset as it is, and one with other arguments."""
    as_it_is = known(wrap.as_it_is(workload))
    return [as_it_is, as_it_is.model_copy(update={"loader": as_it_is.loader.model_copy(update=changed)})]


def look(workload: Workload, samples: int = 256) -> list[tuple[int, int]]:
    found = repeats(workload, both(workload, workers=2), VerifyOptions(samples=samples), Told())
    assert not found.compared
    return [(each.samples, each.repeated) for each in found.agreements]


WORKLOAD = wrap.wrap(forked, model=None, parameters={"workers": [1, 2]}, steps=2)


def one_image(workers: int = 1) -> Iterator[Any]:  # with different targets: different samples
    yield np.zeros((4, 2), np.float32), np.arange(4)


def test_samples_that_workers_give_once_more_are_counted_among_those_that_are_asked_for() -> None:
    assert (look(WORKLOAD), look(WORKLOAD, samples=6)) == ([(8, 0), (8, 4)], [(6, 0), (6, 2)])
    assert look(wrap.wrap(one_image, model=None, parameters={"workers": [1]}))[0] == (4, 0)


def test_unless_a_number_is_given_all_samples_of_an_epoch_are_counted() -> None:
    def late(workers: int = 1) -> Iterator[Any]:  # one more worker begins after 300 samples
        for at in [*range(30), *range(20, 30)]:
            yield np.full((10, 1), at, np.float32), np.arange(10)

    workload = wrap.wrap(late, model=None)
    (found,) = repeats(workload, both(workload)[:1], VerifyOptions(), Told()).agreements
    assert (found.samples, found.repeated, found.random) == (400, 100, None)


def test_random_numbers_that_repeat_are_looked_for_if_asked() -> None:
    def seeded(scale: int = 1) -> Iterator[Any]:
        rng = np.random.default_rng(0)
        for at in range(6):
            yield scale * rng.random((4, 2)), np.arange(4 * at, 4 * at + 4)

    workload = wrap.wrap(seeded, model=None, parameters={"scale": [1, 2]})
    for options in (VerifyOptions(), VerifyOptions(random=True)):
        first, second = repeats(workload, both(workload, scale=2), options, Told()).agreements
        assert (first.random is not None, second.random) == (options.random, None)


def test_a_dataset_that_raises_is_told_and_the_others_are_looked_at() -> None:
    def raises(workers: int = 1) -> Iterator[Any]:
        if workers == 2:
            raise ValueError("no more than one")
        return forked()

    workload = wrap.wrap(raises, model=None, parameters={"workers": [1, 2]})
    found = repeats(workload, both(workload, workers=2)[::-1], VerifyOptions(samples=9), Told()).agreements
    assert "no more than one" in str(found[0].message)
    assert (found[1].samples, found[1].message) == (9, None)


def test_of_slow_data_the_configurations_that_were_not_looked_at_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[repeats.__module__], "_PATIENCE", 0.0)
    configs = [each for workers in (2, 3) for each in both(WORKLOAD, workers=workers)[workers - 2 :]]
    looked_at = repeats(WORKLOAD, configs, VerifyOptions(random=True), Told())
    assert len(looked_at.agreements) == 1
    said = r"not looked at, as reading took more than 0 s: .*workers=2.*workers=3"
    assert re.match(said, looked_at.notes[-1], re.DOTALL)
    assert len(repeats(WORKLOAD, configs, VerifyOptions(samples=4), Told()).agreements) == 3


def shuffled(cache: bool = False, calls: int = 1, order: str = "shuffled") -> Any:
    dataset = tf.data.Dataset.from_tensor_slices((DATA, np.arange(12)))
    dataset = dataset.shuffle(12) if order == "shuffled" else dataset
    dataset = dataset.map(lambda x, y: (x, y), num_parallel_calls=calls)
    return (dataset.cache() if cache else dataset).batch(4)


def messages(make: Callable[..., Any], samples: int = 256, seconds: float = 10.0, **changed: Any) -> list[str | None]:
    workload = wrap.wrap(make, model=None, parameters={name: [value] for name, value in changed.items()})
    found = repeats(workload, both(workload, **changed), VerifyOptions(samples=samples, seconds=seconds), Told())
    return [each.message for each in found.agreements]


def test_a_cache_behind_a_shuffle_and_another_order_are_told() -> None:
    for samples in (8, 256):
        as_it_is, frozen = messages(shuffled, samples, cache=True)
        assert (as_it_is, "every epoch is the same" in str(frozen)) == (None, True)
    assert messages(shuffled, 8, 0.0, cache=True) == [None, None]  # where an epoch takes long
    as_it_is, other = messages(lambda order="as listed": shuffled(order=order), order="shuffled")
    assert (as_it_is, "in another order" in str(other)) == (None, True)


def test_parameters_that_change_speed_alone_or_of_a_function_that_draws_its_order_are_not_complained_of() -> None:
    calls = itertools.count()

    def drawn(workers: int = 1) -> Any:
        return tf.data.Dataset.from_tensor_slices(np.roll(DATA, next(calls), axis=0)).batch(4)

    assert messages(drawn, workers=2) == [None, None]
    assert messages(shuffled, calls=2) == [None, None]
    assert messages(lambda cache=False: shuffled(cache, order="as listed"), cache=True) == [None, None]
    assert messages(lambda cache=False: shuffled(cache).unbatch().shuffle(12).batch(4), cache=True) == [None, None]


def test_files_that_are_validated_and_trained_on_are_noted(tmp_path: Path) -> None:
    in_classes(tmp_path, 10, (4, 4))

    def notes(seed: int) -> tuple[str, ...]:
        data = ImageFolder(tmp_path, validation_split=0.5, subset="training", seed=0)
        validation = ImageFolder(tmp_path, validation_split=0.5, subset="validation", seed=seed)
        workload = Workload(data=data, ops=[Decode()], batch_size=5, validation=validation)
        return verify(workload, [CONFIG], samples=5, report=Told()).notes

    assert notes(0) == ()
    assert [" files of the validation are trained on as well" in note for note in notes(1)] == [True]


@pytest.mark.parametrize("model", [functools.partial(classifier, shape=(2,), classes=11), None])
def test_values_that_a_training_does_not_stand_are_noted(model: Any) -> None:
    said = ["x of 1 of 12 samples", "y goes from 0 to 11, but the model's 11 outputs are classes 0 to 10"]
    said = said[: None if model else 1]
    x = np.arange(24, dtype=np.float32).reshape(12, 2)
    x[5, 1] = np.nan
    workload = wrap.wrap(tf.data.Dataset.from_tensor_slices((x, np.arange(12))).batch(5), model=model)
    found = repeats(workload, both(workload)[:1], VerifyOptions(random=True), Told())
    assert [each for each in said if not any(note.startswith(each) for note in found.notes)] == []
    named = Workload(data=Arrays(x, np.arange(12)), ops=[], batch_size=5, model=model)
    notes = verify(named, [CONFIG], samples=12, report=Told()).notes
    assert [note.startswith(each) for note, each in zip(notes, said, strict=True)] == [True] * len(said)


def test_samples_of_many_shapes_are_told_by_the_sizes_that_they_have() -> None:
    for most, said in ((4, ["x has 4 shapes, such as (1, 2) and (4, 2): JAX"]), (2, [])):
        values = Values()
        for length in range(8):
            x = {"text": np.zeros((3, 1 + length % most, 2)), "other": np.zeros((3, 1))}
            values.note((x, np.arange(3)))
        assert [note.partition(" compiles")[0] for note in values.notes(None)] == said
