"""`ap.watch` round loops of any kind: the batches that come, and the report. How long anything takes is not tested."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import multiprocessing
import os
import re
import sqlite3
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe import frameworks
from autopipe.errors import ConfigError
from autopipe.extensions.diagnose import child, fit_call, loop, samples, steps
from autopipe.extensions.diagnose.data import begins_anew, shared
from autopipe.extensions.diagnose.loop import Loop, Reads
from autopipe.extensions.diagnose.steps import Look
from autopipe.extensions.diagnose.watched import Verdict, Watched, rows, sentence, to_paste
from autopipe.hardware import machine
from autopipe.measure import epochs
from autopipe.measure.outcome import Resources
from tests.fakes.loader import Clock


@pytest.fixture(autouse=True)
def _all_samples_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those alone for which a small share of the time is left, which is none on a busy machine."""
    monkeypatch.setattr(samples, "_TIME_SHARE", 1e9)
    monkeypatch.setattr(samples, "_FIRST_SHARE", 1e9)


BATCHES = [(np.full((4, 2), number), np.arange(4)) for number in range(6)]


class Indexed:
    """A dataset as a PyDataset is: an index, a length, and no end of its own."""

    def __len__(self) -> int:
        return len(BATCHES)

    def __getitem__(self, index: int) -> Any:
        return BATCHES[index % len(BATCHES)]


@pytest.mark.parametrize("dataset", [BATCHES, Indexed(), iter(BATCHES), (batch for batch in BATCHES)])
def test_a_loop_gets_the_datasets_own_batches_in_their_order(dataset: Any) -> None:
    assert [id(batch) for batch in ap.watch(dataset)] == [id(batch) for batch in BATCHES]


def test_a_loop_over_all_epochs_is_told_once_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    watched = ap.watch(BATCHES, seconds=1e-9)
    assert len(watched) == 6
    assert sum(len(list(watched)) for _ in range(3)) == 18
    del watched
    said = capsys.readouterr().out
    assert said.count("verdict") == 1
    assert f"loop {Path(__file__).name}" in " ".join(said.split()).replace(
        f"{Path(__file__).parent.relative_to(Path.cwd())}/", ""
    )


def test_a_loop_that_ends_first_is_told_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in ap.watch(BATCHES):
        assert "verdict" not in capsys.readouterr().out
    assert "verdict" in capsys.readouterr().out
    for _ in ap.watch(BATCHES[:2]):
        pass
    assert "a loop of 2 steps is too short" in capsys.readouterr().out
    for _ in ap.watch(BATCHES[:1]):
        pass
    assert "a loop of 1 step is too short" in capsys.readouterr().out
    for _ in ap.watch([]):
        pass
    assert capsys.readouterr().out == ""


def test_a_loop_that_is_left_or_fails_keeps_its_own_error() -> None:
    def fail(batch: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(map(fail, ap.watch(BATCHES)))
    for _ in ap.watch(BATCHES):
        break

    def broken() -> Iterator[Any]:
        yield BATCHES[0]
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(ap.watch(broken()))


def test_the_loop_of_the_docs_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(loop.__file__).parent / "README.md").read_text()
    (code,) = (each for each in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.M) if "ap.watch" in each)
    steps: list[Any] = []
    exec(code, {"dataset": BATCHES, "train_step": lambda x, y: steps.append((x, y))})
    assert steps == BATCHES
    assert capsys.readouterr().out.count("verdict") == 1


def test_the_loop_of_the_docs_that_is_fed_reads_each_epoch() -> None:
    text = (Path(loop.__file__).parent / "README.md").read_text()
    (code,) = (each for each in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.M) if "ap.live" in each)
    steps: list[int] = []
    exec(code, {"ap": ap, "dataset": Indexed(), "train_step": lambda x, y: steps.append(int(x[0, 0]))})
    assert steps == 2 * list(range(len(BATCHES)))


@pytest.mark.parametrize("dataset", [3, object()])
def test_what_cannot_be_looped_over_is_refused(dataset: Any) -> None:
    with pytest.raises(ConfigError, match=f"iterable of batches, but got {type(dataset).__name__}"):
        ap.watch(dataset)


@pytest.mark.parametrize("fed", [ap.watch, ap.live])
def test_a_loop_that_is_traced_is_refused(fed: Any) -> None:
    tensorflow = pytest.importorskip("tensorflow")

    @tensorflow.function(autograph=False)
    def epoch() -> Any:
        return next(iter(fed(Indexed())))

    with pytest.raises(ConfigError, match=rf"`ap\.{fed.__name__}` feeds a loop of Python, but"):
        epoch()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_look_takes_time(seconds: float) -> None:
    with pytest.raises(ConfigError, match="`seconds` must be above 0"):
        ap.watch(BATCHES, seconds=seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(loop, "StepClock", lambda: steps.StepClock(made))
    return made


def looped(
    clock: Clock, waits: float, works: float, between: float = 0.0, data: Any = None, batches: Any = 10 * BATCHES[:1]
) -> Watched:
    seen = Loop(Look(), iter(BATCHES) if data is None else data, "train.py:7")
    for _ in range(3):
        seen.pass_began()
        for batch in batches:
            seen.asked()
            clock.now += waits
            seen.came(batch)
            clock.now += works
        seen.asked()
        clock.now += between
    found = seen.ended()
    assert found is not None
    return found.model_copy(update={"resources": Resources()})  # whatever else this machine does


def test_waiting_is_told_from_the_loops_own_work(clock: Clock) -> None:
    waits = looped(clock, 3.0, 1.0)
    assert waits.verdict is Verdict.DATA
    assert waits.possible_gain == pytest.approx(30 / 9.0, rel=0.1)
    assert waits.images_per_second == pytest.approx(1.0)
    assert dict(rows(waits))["loop"] == "train.py:7"
    assert to_paste(waits) is None
    works = looped(clock, 0.01, 1.0)
    assert works.verdict is Verdict.MODEL


def test_no_samples_are_dropped_by_a_loader_whose_every_second_batch_is_its_last(clock: Clock) -> None:
    data = types.SimpleNamespace(collate_fn=None, batch_size=4, dataset=range(6))
    found = looped(
        clock, 1.0, 1.0, data=data, batches=[(x[:rows], y[:rows]) for x, y in BATCHES[:1] for rows in (4, 2)]
    )
    assert not any("thrown away" in each for each in found.warnings)


def test_batches_without_a_sample_are_counted(clock: Clock) -> None:
    found = looped(clock, 1.0, 1.0, batches=[*BATCHES, (np.zeros((0, 2)), np.zeros(0))])
    assert any(said.startswith("3 of 21 batches had no sample") for said in found.warnings)


def test_what_lies_between_epochs_is_a_part_of_them(clock: Clock) -> None:
    seen = looped(clock, 0.01, 1.0, between=90.0)
    assert seen.verdict is Verdict.PAUSES
    assert "90% of an epoch" in sentence(seen)
    assert "what the loop does there, such as a validation" in sentence(seen)


@pytest.mark.parametrize(
    ("framework", "often", "verdict"),
    [
        ("JAX", 1, Verdict.COMPILING),
        ("JAX", 2, Verdict.COMPILING),
        (None, 1, Verdict.MODEL),
        ("JAX", 99, Verdict.MODEL),
        ("JAX", 15, Verdict.MODEL),  # a last, smaller batch, once
    ],
)
def test_steps_that_compile_for_new_shapes_are_not_called_the_model(
    framework: str | None, often: int, verdict: Verdict, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frameworks, "running_framework", lambda: framework)
    seen = Loop(Look(), (each for each in BATCHES), "train.py:7")
    for number in range(30):
        seen.asked()
        seen.came(np.zeros((4, 2 + number // often)))
        clock.now += 9.0 if number % often == 0 else 1.0
    seen.asked()
    found = seen.ended()
    assert found is not None
    assert found.verdict is verdict


def test_a_wait_behind_which_a_device_computes_is_none(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_BUSY_SECONDS", 0.0)  # as if the devices always had something left
    seen = looped(clock, 3.0, 1.0)
    assert (seen.verdict, seen.waiting_seconds) == (Verdict.MODEL, 0.0)


# -------------------- loops as frameworks have them


def gradient_tape() -> tuple[Any, Callable[[Any], Any]]:
    import tensorflow as tf

    weights = tf.Variable(tf.zeros((2, 1)))

    def step(batch: Any) -> Any:
        x, y = tf.cast(batch[0], tf.float32), tf.cast(batch[1], tf.float32)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - y[:, None]) ** 2)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return [array.numpy() for array in batch]

    x, y = (np.concatenate(each) for each in zip(*BATCHES, strict=True))
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(4), step


def jax_loop() -> tuple[Any, Callable[[Any], Any]]:
    import jax

    weights = [jax.numpy.zeros((2, 1))]
    slope = jax.jit(jax.grad(lambda weights, x, y: ((x @ weights - y[:, None]) ** 2).mean()))

    def step(batch: Any) -> Any:
        weights[0] = weights[0] - 0.01 * slope(weights[0], *batch)
        return batch

    return BATCHES, step


@pytest.mark.parametrize("made", [gradient_tape, jax_loop])
def test_a_loop_of_a_framework_has_the_batches_of_the_plain_one(
    made: Callable[[], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    dataset, step = made()
    plain = [step(batch) for batch in dataset]
    watched = [step(batch) for batch in ap.watch(dataset)]
    assert "verdict" in capsys.readouterr().out
    for ours, theirs in zip(watched, plain, strict=True):
        np.testing.assert_equal(ours, theirs)


def test_a_loop_is_told_where_it_ends_even_if_its_frame_is_held(capsys: pytest.CaptureFixture[str]) -> None:
    batches: Any = iter(ap.watch([np.zeros((2, 2))] * 8))
    next(batches)
    frame = batches.gi_frame  # as the thread has it that looks for lines
    assert len(list(batches)) == 7
    assert "verdict" in capsys.readouterr().out
    assert frame is not None


def test_devices_are_waited_for_only_where_a_framework_runs() -> None:
    frameworks.wait_for_devices()
    import jax

    made = jax.numpy.ones((64, 64)) @ jax.numpy.ones((64, 64))
    frameworks.wait_for_devices()
    assert made.is_ready()


# -------------------- loops that `diagnose` finds


class Trains:
    def __init__(self, steps: int = 3, *, is_training: bool = True) -> None:
        self.told: list[Watched] = []
        self.reads = Reads(Look(steps=steps), self.told.append, lambda: is_training)

    def epoch(self, data: Any, count: int = 6) -> list[Any]:
        return [self.reads.read(Indexed.__getitem__, data, index) for index in range(count)]


class WithWorkers(Indexed):
    workers, use_multiprocessing = 4, True


def test_a_loop_that_trains_is_told_of_by_its_line_with_what_nobody_reads() -> None:
    script = Trains()
    assert [id(batch) for batch in script.epoch(WithWorkers())] == [id(batch) for batch in BATCHES]
    (told,) = script.told
    assert told.loop is not None
    assert re.fullmatch(r".*test_loop\.py:\d+", told.loop)
    assert "Nobody reads workers=4, use_multiprocessing=True here: only `fit` does." in told.warnings
    script.epoch(WithWorkers())
    script.reads.end()
    assert len(script.told) == 1


@pytest.mark.parametrize(
    ("package", "traced", "said"),
    [
        ("tensorflow", "never", "@tf.function above"),
        ("tensorflow", "once", None),
        ("tensorflow", "always", "@tf.function traced and compiled the step anew in"),
        ("torch", "never", None),
    ],
)
def test_a_loop_whose_steps_run_eagerly_or_are_traced_anew_is_told_so(
    package: str, traced: str, said: str | None
) -> None:
    tf, keras = pytest.importorskip("tensorflow"), pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("its steps are compiled")
    script, data = Trains(), Indexed()

    def step() -> Any:
        script.reads.trained(package)
        return tf.constant(1)

    make = {"never": step, "once": tf.function(step), "always": lambda: tf.function(step)()}[traced]
    for index in range(6):
        script.reads.read(Indexed.__getitem__, data, index)
        make()
    (told,) = script.told
    assert [str(said) in each for each in told.warnings if "@tf.function" in each] == [True] * (said is not None)


class Child:
    """What the script's process writes while `fit` reads some data."""

    def __init__(self, told: Path, *given: Any) -> None:
        self.told = told.open("w+")
        self.watch = child._Watch(types.SimpleNamespace(fd=self.told.fileno(), seconds=10.0, steps=None))
        self.watch._given = list(given)
        self.watch.reads.leave()  # as `fit` has it

    def taken(self, *arguments: Any) -> Any:
        """Stand for `__getitem__`, as the function does that watches it."""
        return self.watch.read(Indexed.__getitem__, *arguments)

    def said(self) -> list[str]:
        with self.told as told:
            told.seek(0)
            return [json.loads(line)["message"] for line in told]


class OfItself(WithWorkers):
    def read(self, told: Child) -> None:
        told.taken(self, 0)


def test_workers_of_a_dataset_that_another_one_reads_are_told_of_once(tmp_path: Path) -> None:
    data, told = WithWorkers(), Child(tmp_path / "told", object())
    batches = [told.taken(data, index) for index in range(3)]
    assert [id(batch) for batch in batches] == [id(batch) for batch in BATCHES[:3]]
    (said,) = told.said()
    assert "`WithWorkers` is read by its index" in said
    assert "workers=4" in said


def test_a_dataset_that_fit_reads_or_that_reads_itself_may_have_workers(tmp_path: Path) -> None:
    data, told = OfItself(), Child(tmp_path / "told", object())
    data.read(told)
    told.watch._given = [data]
    told.taken(data, 0)
    assert told.said() == []


@pytest.mark.parametrize(
    ("count", "steps", "epochs", "said"),
    [
        (14, 13, 50, "1 of 2 epochs has 1."),
        (250, 100, 3, "1 of 3 epochs has 50."),
        (250, 100, 2, None),
        (200, 100, 9, None),
        (14, 14, 9, None),
        (14, None, 9, None),
    ],
)
def test_epochs_that_come_to_the_end_of_the_data_in_their_middle_are_told_of(
    count: int, steps: int | None, epochs: int, said: str | None
) -> None:
    given = {"x": types.SimpleNamespace(num_batches=count), "steps_per_epoch": steps, "epochs": epochs}
    told = list(fit_call.faults(given))
    assert [str(said) in each for each in told] == [True] * (said is not None)


@pytest.mark.parametrize(
    ("text", "shuffle", "is_told"),
    [
        ("model.fit(x, validation_data = val)\ny = model.predict(val)", True, True),
        ("model.fit(x, validation_data=val)\ny = model.predict(val)", False, False),
        ("model.fit(x, validation_data=val)\ny = model.predict(test)", True, False),
        ("model.fit(x, validation_data=val)", True, False),
    ],
)
def test_predictions_on_data_in_another_order_are_told_of(text: str, shuffle: bool, is_told: bool) -> None:
    flow = types.SimpleNamespace(class_indices={}, shuffle=shuffle)
    told = [*fit_call.predicted(flow, text, shuffles=False), *fit_call.predicted(None, text, shuffles=shuffle)]
    assert ["shuffle=False" in each for each in told] == [True, True] * is_told


@pytest.mark.parametrize("name", ["x", "validation_data"])
def test_data_without_a_batch_are_named(name: str) -> None:
    given = {name: types.SimpleNamespace(num_batches=0)}
    (told,) = fit_call.faults(given)
    assert told.startswith(f"`{name}` has no batches")


def _fitted_to_a_list(tf: Any) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(loss="mse")
    model.fit([np.ones(3)] * 2, [0] * 2)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda tf: tf.data.Dataset.range(2).map(lambda x: x.numpy()), "tf.numpy_function"),
        (
            lambda tf: tf.data.Dataset.from_tensors(b"").map(lambda x: tf.image.resize(tf.io.decode_image(x), (8, 8))),
            "expand_animations=False",
        ),
        (_fitted_to_a_list, "np.stack"),
    ],
)
def test_what_a_framework_does_not_take_has_a_hint(function: Callable[[Any], Any], said: str) -> None:
    tf = pytest.importorskip("tensorflow")
    with pytest.raises((AttributeError, ValueError)) as error:
        function(tf)
    assert [said in hint for text, hint in fit_call.HINTS.items() if re.search(text, str(error.value))] == [True]


def test_where_a_fit_is_seen_no_loop_is_looked_at_any_more() -> None:
    script = Trains(is_training=False)
    script.epoch(Indexed(), count=4)
    assert any(each.name == "autopipe-lines" for each in threading.enumerate())
    script.reads.leave()
    assert not any(each.name == "autopipe-lines" for each in threading.enumerate())
    script.epoch(Indexed())
    script.reads.end()
    assert script.told == []


def test_a_loop_without_a_training_waits_for_a_fit_and_is_told_at_the_end() -> None:
    statistics = Trains(is_training=False)
    statistics.epoch(Indexed())
    assert statistics.told == []
    statistics.reads.end()
    assert len(statistics.told) == 1
    then_fits = Trains(is_training=False)
    then_fits.epoch(Indexed())
    then_fits.reads.leave()
    then_fits.epoch(Indexed())
    then_fits.reads.end()
    assert then_fits.told == []


@pytest.mark.parametrize("by_epoch", [True, False])
def test_of_several_loops_the_one_that_trains_is_told_of_with_its_order(*, by_epoch: bool) -> None:
    script, validation = Trains(steps=6), Indexed()
    training: Any = Indexed()
    named = {"set_epoch": print} if by_epoch else {}
    training.index_sampler = types.SimpleNamespace(sampler=types.SimpleNamespace(**named))
    for _ in range(3):
        for index in range(3):
            script.reads.read(Indexed.__getitem__, training, index)  # trains
            script.reads.trained("torch")
        script.epoch(validation)
    (told,) = script.told
    lines = Path(__file__).read_text().splitlines()
    assert lines[int((told.loop or "").rpartition(":")[2]) - 1].endswith("# trains")
    (order,) = (warning for warning in told.warnings if "nothing shuffles" in warning)
    assert ("set_epoch(epoch)" in order) == by_epoch


def test_the_workers_of_a_loader_of_grain_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = [types.SimpleNamespace(name="grain-process-prefetch-1")]
    monkeypatch.setattr(multiprocessing, "active_children", lambda: begun)
    script, data = Trains(steps=6), type("DataLoaderIterator", (Indexed,), {"__module__": "grain"})()
    data._data_loader = types.SimpleNamespace(_multiprocessing_options=types.SimpleNamespace(num_workers=7))
    for _ in range(3):
        script.epoch(data)
    (told,) = script.told
    assert told.workers == 7
    assert "Grain's worker processes begin anew" in (told.begins_anew or "")


@functools.lru_cache
def kept(index: int) -> Any:
    return BATCHES[index]


@pytest.mark.parametrize("more", [lambda x: (np.random.default_rng().random(x.shape),), lambda x: (x[:, 0], 0 * x)])
def test_what_follows_x_in_a_loop_is_a_y_only_if_it_has_another_shape_and_no_third_part_is_a_weight(more: Any) -> None:
    seen = Loop(Look(), (each for each in BATCHES), "train.py:7")
    for _ in range(3):
        seen.pass_began()
        for begin in range(0, 64, 8):
            seen.asked()
            seen.came((x := np.arange(begin, begin + 8.0)[:, None] + np.zeros(3), *more(x)))
    found = seen.ended()
    assert found is not None
    assert not any("y" in each.split() or "weights" in each for each in found.warnings)


class Drawing(Indexed):
    use_multiprocessing, workers = True, 2

    def __init__(self) -> None:
        self.order, self.held = np.random.default_rng(0), types.SimpleNamespace(rng=np.random.default_rng(0))
        self.seen, self.read = dict[int, Any](), {0: 0}

    def __getitem__(self, index: int) -> Any:
        self.seen[self.read[0]] = index
        return self.held.rng.random() + kept(index)[0]


def test_what_each_forked_worker_has_of_its_own_is_told_of() -> None:
    numbers, cache = shared(Drawing())
    assert numbers.startswith("`Drawing.held.rng`: worker processes")  # what only orders samples is none
    kept = "keeps what `kept` returns (lru_cache), what goes into `Drawing.seen` on its own, and loses it"
    assert kept in cache
    threaded = Drawing()
    threaded.use_multiprocessing = False
    assert list(shared(threaded)) == []


class Reading(Indexed):
    workers = 2
    file: Any

    def __init__(self, **held: Any) -> None:
        self.__dict__ |= held

    def __getitem__(self, index: int) -> Any:
        return self.file.read(index)


def test_a_file_that_threads_read_at_once_is_told_of() -> None:
    with open(__file__) as file:
        (said,) = shared(Reading(file=file))
        sound = [Reading(file=file, lock=threading.Lock()), Reading(other=file), Reading(file=file, workers=1)]
        assert [list(shared(each)) for each in [*sound, Reading(file=sqlite3.connect(":memory:"))]] == [[]] * 4
    assert said.startswith("`Reading.file`: workers=2 are threads")


class Listed(Indexed):
    use_multiprocessing, workers = True, 4

    def __init__(self, items: Any, others: Any = ()) -> None:
        self.items, self.others = items, others

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def test_many_objects_that_each_forked_worker_comes_to_copy_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "detect_memory", lambda: machine.Memory(usable_bytes=2**24, available_bytes=2**24))
    rows: list[dict[str, Any]] = [{"name": f"{number:08}", "box": [number + 0.5]} for number in range(1000)]
    (said,) = shared(Listed(rows))
    size = sum(sys.getsizeof(each) for row in rows for each in (row, *row.values(), *row["box"]))
    assert said.startswith("`Listed.items` holds 1,000 objects of Python, ")
    told = float(said.partition("Python, ")[2].partition(" KiB")[0]) * 1024
    assert told == pytest.approx(size, rel=0.1)
    assert list(shared(Listed(rows[:9], rows))) == []  # few, and what no worker reads
    assert list(shared(Listed(np.zeros((2**20, 4))))) == []  # one object


def noise() -> Any:
    return np.random.normal(size=3)


def seeded_noise() -> Any:
    np.random.seed()
    return np.random.normal(size=3)


def noise_of_its_own() -> Any:
    return np.random.default_rng().random(3)


@pytest.mark.parametrize(("drawn", "told"), [(noise, True), (seeded_noise, False), (noise_of_its_own, False)])
def test_numbers_of_numpy_itself_that_forked_workers_copy_are_told_of(drawn: Any, told: bool) -> None:
    class Data(Indexed):
        use_multiprocessing, workers, draw = True, 2, staticmethod(drawn)

        def __getitem__(self, index: int) -> Any:
            return np.zeros(3) + self.draw()

    assert [said.startswith("`np.random`: worker processes") for said in shared(Data())] == [True] * told


class Dataset:
    def __init__(self, file: Any) -> None:
        self.file = file


class Compose:  # as albumentations has it
    __module__ = "albumentations.core.composition"

    def __init__(self, seed: int | None) -> None:
        self.random_generator, self._base_seed = np.random.default_rng(), seed
        self.transforms = [types.SimpleNamespace(random_generator=self.random_generator)]


@pytest.mark.parametrize("module", [__name__, "torchvision.datasets.folder"])
@pytest.mark.parametrize(("seed", "told"), [(None, 1), (3, 0)])
def test_a_transform_whose_numbers_forked_workers_copy_is_told_of_unless_it_seeds_them(
    module: str, seed: int | None, told: int
) -> None:
    def read(self: Any, index: int) -> Any:
        return self.transform(image=index)

    if module != __name__:  # a library's code, which no name is read of
        read = functools.partialmethod(read)  # type: ignore[assignment]
    Images = type("Images", (), {"__getitem__": read, "transform": Compose(seed)})
    images = Images()
    images.__dict__ |= {"transform": Compose(seed), "transforms": [Compose(seed)]}

    class Loader:
        _num_workers, _persistent_workers, _workers = 2, True, (types.SimpleNamespace(_start_method="fork"),)
        __module__ = "torch.utils.data.dataloader"
        _dataset = images

    said = list(shared(Loader()))
    assert [each.startswith("`Images.transform.random_generator`: worker processes") for each in said] == [True] * told
    assert ["worker_init_fn" in each for each in said] == [True] * told


class Subset:  # as torch has it
    __module__ = "torch.utils.data.dataset"

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset


def test_workers_of_a_data_loader_are_told_of(tmp_path: Path, clock: Clock) -> None:
    class Process:
        _start_method = "fork"

    class Iterator:  # as torch has it
        _num_workers, _persistent_workers, _workers = 64, False, (Process,)
        __module__ = "torch.utils.data.dataloader"

        def __init__(self, file: Any) -> None:
            self._dataset = Subset(Dataset(file))

    with (tmp_path / "images").open("wb") as file:
        found = looped(clock, 1.0, 1.0, data=(data := Iterator(file)))
    assert (found.workers, found.begins_anew) == (64, begins_anew(data))
    assert "persistent_workers=True" in (found.begins_anew or "")
    assert any("`Dataset.file`" in warning for warning in found.warnings)


def test_more_workers_are_no_advice_where_there_are_as_many_as_cores(clock: Clock) -> None:
    waits = looped(clock, 3.0, 1.0).model_copy(update={"data": "torch DataLoader", "cores": 2.0, "lines": None})
    assert "num_workers=" in sentence(waits.model_copy(update={"workers": 0}))
    said = sentence(waits.model_copy(update={"workers": 16}))
    assert "16 workers" in said
    assert "num_workers=" not in said
    of_tensors = waits.model_copy(update={"data": "torch DataLoader of a TensorDataset", "workers": 16})
    assert "BatchSampler(RandomSampler(dataset), 4, drop_last=False)" in sentence(of_tensors)
    of_stream = waits.model_copy(update={"data": "torch DataLoader of an IterableDataset", "workers": 0})
    assert "num_workers=, 0 now, if its `__iter__` gives each worker a part" in sentence(of_stream)
    assert "ap.live" not in sentence(of_stream)  # which needs an index
    assert "`ap.live(dataset)` reads ahead" in sentence(waits.model_copy(update={"data": "keras.utils.PyDataset"}))
    assert "workers feed this loop already" in sentence(waits.model_copy(update={"data": "autopipe"}))


def test_each_epoch_of_an_index_begins_where_the_index_does() -> None:
    script = Trains(is_training=False)
    for _ in range(3):
        script.epoch(dataset := Indexed())
    script.epoch(dataset, 2)
    script.reads.end()
    (told,) = script.told
    assert told.epochs is not None
    assert told.epochs.count == 2


@pytest.mark.parametrize(
    ("file", "took", "is_told"),
    [("train.py", 2.4, True), ("train.py", 0.1, False), ("/usr/lib/site-packages/images.py", 2.4, False)],
)
def test_a_pause_is_laid_to_a_hook_of_the_users_that_takes_it(file: str, took: float, is_told: bool) -> None:
    class Data:
        def on_epoch_end(self) -> None:
            pass

    Data.on_epoch_end.__code__ = Data.on_epoch_end.__code__.replace(co_filename=file)
    said = begins_anew(Data(), steps.Epochs(count=2, between_seconds=5.0), hooks=[took])
    assert ("`Data.on_epoch_end` runs" in str(said)) == is_told


@pytest.mark.parametrize("between", [0.0, 5.0])  # as of a validation
def test_a_shuffle_buffer_that_each_pass_fills_anew_is_told(between: float, clock: Clock) -> None:
    tf = pytest.importorskip("tensorflow")
    shuffled = tf.data.Dataset.range(64).shuffle(48).batch(8)
    several = [shuffled, iter(shuffled.take(2)), iter(shuffled.unbatch()), tf.data.Dataset.range(64).batch(8)]
    told = [looped(clock, 1.0, 0.0, between, data, 2 * [np.zeros(8)]).begins_anew for data in several]
    assert ["buffer of 48 elements" in str(each) for each in told] == [not between, not between, not between, False]
    assert begins_anew(shuffled, None) is not None
    for data in (shuffled.repeat(), tf.distribute.get_strategy().experimental_distribute_dataset(shuffled.repeat())):
        assert begins_anew(data, None) is None  # of `fit`, which keeps its iterator


@pytest.mark.parametrize(("cardinality", "said"), [(-1, "never ends"), (0, "has no batches"), (-2, None), (8, None)])
@pytest.mark.parametrize("is_distributed", [False, True])  # by a strategy of TensorFlow
def test_the_cardinality_of_data_may_be_a_number(is_distributed: bool, cardinality: int, said: str | None) -> None:
    number: Any = np.int64(cardinality)
    told = fit_call.faults({"x": types.SimpleNamespace(cardinality=number if is_distributed else lambda: number)})
    assert [str(said) in each for each in told] == [True] * (said is not None)


class Taken:
    """The iterator of a DataLoader, as torch has it."""

    _num_workers, _persistent_workers, _workers = 2, False, ()

    def __init__(self, batches: Any = BATCHES, sampler: Any = None, dataset: Any = None) -> None:
        self._index_sampler, self._batches, self._dataset = sampler, iter(batches), dataset

    def __next__(self) -> Any:
        return next(self._batches)


class Begins(Taken):
    _num_yielded = 0  # as `iter` has it


@pytest.mark.parametrize("made", [lambda: (each for each in BATCHES), Taken, functools.cache(Begins)])
def test_an_iterator_that_is_made_for_each_batch_is_told(made: Any) -> None:
    script = Trains()
    for _ in range(6):
        script.reads.read(next, made())
    (told,) = script.told
    assert "next(iter(dataset))" in (told.begins_anew or "")
    assert told.epochs is not None
    assert told.epochs.count >= 3


def test_a_loop_that_takes_the_time_between_passes_is_named(clock: Clock) -> None:
    script = Trains(steps=14)

    def slow(batches: Any) -> Any:
        clock.now += 1.0
        return next(batches, BATCHES[0])

    for _ in range(4):
        training, validation = Taken(), Taken()
        for _ in BATCHES:
            script.reads.read(slow, training)
            script.reads.trained("torch")
        for _ in 8 * BATCHES:
            script.reads.read(slow, validation)  # validates
    (told,) = script.told
    lines = Path(__file__).read_text().splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if text.endswith("# validates"))
    assert told.verdict is Verdict.PAUSES
    assert f"test_loop.py:{line}, such as a validation" in (told.begins_anew or "")


class Sampler:
    """As many as there are loaders."""


class WeightedRandomSampler:
    weights = np.ones(3)


@pytest.mark.parametrize(("samples", "told"), [(3, False), (300, True)])
def test_a_sampler_with_a_weight_for_each_class_is_told_of(samples: int, *, told: bool) -> None:
    script, sampler = Trains(), types.SimpleNamespace(sampler=WeightedRandomSampler())
    whole(script, Taken(sampler=sampler, dataset=range(samples)))
    (found,) = script.told
    assert epochs.few_weights(Taken(sampler=sampler, dataset=iter(()))) is None  # it need not tell how many there are
    said = ["3 weights for 300 samples, and so draws the first 3 only" in each for each in found.warnings]
    assert sum(said) == told


def test_an_epoch_that_workers_who_stay_do_not_get_is_told_of() -> None:
    script, sampler = Trains(steps=9), Sampler()
    for _ in range(3):
        data = Taken(sampler=sampler, dataset=types.SimpleNamespace(set_epoch=print))
        data._persistent_workers = True
        whole(script, data)
    (found,) = script.told
    assert any("`set_epoch` of the dataset does not reach workers that stay" in each for each in found.warnings)


def test_what_a_thread_reads_is_no_loop(tmp_path: Path) -> None:
    told = Child(tmp_path / "told")
    told.watch.reads._off = False
    thread = threading.Thread(target=lambda: told.watch.read(next, iter(BATCHES)))
    thread.start()
    thread.join()
    assert told.watch.reads._loops == {}
    assert told.said() == []


def whole(script: Trains, data: Any, *, steps: int = 99) -> None:
    """Read data to their end, with so many steps of a training that are seen."""
    with contextlib.suppress(StopIteration):
        for number in itertools.count():
            script.reads.read(next, data)
            if number < steps:
                script.reads.trained("torch")


@pytest.mark.parametrize("anew", [True, False])
def test_a_loader_that_each_pass_makes_is_told_of(*, anew: bool) -> None:
    script, kept = Trains(steps=20), Sampler()
    for _ in range(4):
        whole(script, Taken(sampler=Sampler() if anew else kept))
    (told,) = script.told
    assert ("each pass makes a DataLoader of its own" in (told.begins_anew or "")) is anew
    assert "persistent_workers=True" in (told.begins_anew or "")


@pytest.mark.parametrize("validates", [True, False])
def test_another_loader_that_the_same_line_reads_is_a_loop_of_its_own_unless_it_trains(
    monkeypatch: pytest.MonkeyPatch, *, validates: bool
) -> None:
    reads_take_alike = functools.partial(steps.StepClock, itertools.count(1.0).__next__)
    monkeypatch.setattr(loop, "StepClock", reads_take_alike)
    script, loaders = Trains(steps=99), [Sampler(), Sampler()]
    whole(script, Taken(OTHERS[:2], loaders[1]), steps=0)  # to see that it runs
    for _ in range(3):
        whole(script, Taken(TRAINING, loaders[0]))
        whole(script, Taken(OTHERS, loaders[1]), steps=0 if validates else 9)
    places = list(script.reads._loops)
    script.reads.end()
    (told,) = script.told
    assert ["(another loader)" in place for place in places] == [False, True]
    assert any("nothing shuffles" in each for each in told.warnings) is validates
    assert (told.steps > 6) is not validates


@pytest.mark.parametrize("is_traced", [True, False])
def test_of_a_training_by_jax_the_loop_in_which_a_gradient_was_taken_is_told_of(*, is_traced: bool) -> None:
    script, data, line = Trains(steps=3), Taken(3 * TRAINING), sys._getframe().f_lineno
    for number in range(len(3 * TRAINING)):
        script.reads.read(next, data)
        if number == 0 and is_traced:
            script.reads.traced()
        if number == 0:
            whole(script, Taken(2 * OTHERS), steps=0)  # looks at a validation after the first step
    (told,) = script.told
    assert (told.loop or "").endswith(f"test_loop.py:{line + 2}") is is_traced


@pytest.mark.parametrize(("sampler", "count"), [("SequentialSampler", 1), ("RandomSampler", 0)])
def test_a_loader_that_shuffles_nothing_is_told_of_before_a_second_epoch(sampler: str, count: int) -> None:
    script = Trains(steps=99)
    whole(script, Taken(TRAINING, types.SimpleNamespace(sampler=type(sampler, (), {})())))
    script.reads.end()
    (told,) = script.told
    assert ["shuffle=True mixes them" in each for each in told.warnings].count(True) == count


def test_a_step_on_a_batch_that_was_read_ahead_of_the_end_is_one_of_the_epochs(clock: Clock) -> None:
    script = Trains(steps=99)

    def ahead(data: Any) -> Iterator[Any]:  # as accelerate and Lightning read
        with contextlib.suppress(StopIteration):
            while True:
                yield script.reads.read(next, data)

    for _ in range(3):
        batches = ahead(Taken(BATCHES[:3]))
        next(batches)
        for _ in range(3):
            next(batches, None)
            script.reads.trained("torch")
            clock.now += 1.0
    script.reads.end()
    (told,) = script.told
    assert told.epochs is not None
    assert (told.epochs.steps_seconds / told.epochs.count, told.epochs.between_seconds) == (3.0, 0.0)


def test_what_another_loader_gives_before_the_training_is_no_epoch_of_it() -> None:
    script = Trains(steps=99, is_training=False)
    whole(script, Taken(OTHERS[:3], Sampler()), steps=0)  # Lightning's look at a validation
    whole(script, Taken(TRAINING, Sampler()))
    script.reads.end()
    (told,) = script.told
    assert told.epochs is None


@pytest.mark.parametrize("is_alone", [True, False])
def test_the_order_of_steps_that_are_not_seen_is_told_of_if_their_loop_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, *, is_alone: bool
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    script = Trains()
    script.reads = Reads(Look(steps=16), script.told.append, lambda: True)
    for _ in range(5):
        whole(script, Taken(TRAINING), steps=0)
        [script.reads.read(next, Taken(OTHERS)) for _ in OTHERS if not is_alone]
    script.reads.end()
    (told,) = script.told
    assert any("nothing shuffles" in each for each in told.warnings) is is_alone
    assert told.resources.others_cpu_percent is None  # the other rank's
    assert told.cores == machine.core_time() / (2 if len(machine.allowed()) == os.cpu_count() else 1)


@pytest.mark.parametrize("at_once", [True, False])
def test_data_that_are_read_in_turn_are_parts_of_the_same_steps(clock: Clock, *, at_once: bool) -> None:
    script = Trains(steps=15)

    def slow(data: Any) -> Any:
        clock.now += 1.0
        return next(data)

    for _ in range(4):
        one, other = Taken(), Taken()
        for _ in BATCHES:
            if at_once:
                [script.reads.read(slow, data) for data in (one, other)]
            else:
                script.reads.read(slow, one)
                script.reads.read(slow, other)
            clock.now += 2.0
            script.reads.trained("torch")
    (told,) = script.told
    assert told.seconds / told.steps == 4.0
    assert told.waiting_seconds == told.seconds / 2
    assert told.images == 4 * told.steps
    assert "next(iter(dataset))" not in (told.begins_anew or "")


def test_a_loop_that_has_come_to_read_no_more_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_UNREAD", 9)
    for trained, words in ((0, "read before, by this loop"), (99, "itertools.cycle(loader)")):
        script = Trains()
        script.reads = Reads(Look(seconds=0.0, steps=99), script.told.append, lambda: True)
        whole(script, Taken(), steps=trained)
        for _ in range(9):
            script.reads.trained("torch")
        (told,) = script.told
        assert [words in each for each in told.warnings if "steps" in each and "read" in each] == [True]


def samples_from(first: int, y: int = 0) -> list[Any]:
    return [(np.full((4, 2), first) + np.arange(n, n + 4)[:, None], np.arange(y + n, y + n + 4)) for n in (0, 4, 8, 12)]


TRAINING, OTHERS = samples_from(0), samples_from(100)
CHANGED = [samples_from(first, 100) for first in (200, 300, 400)]


@pytest.mark.parametrize(
    ("before", "after", "is_own", "steps", "said"),
    [
        ((), [OTHERS] * 3, False, 4, None),
        ((), [TRAINING] * 3, False, 4, "16 of 16 samples that"),
        ((), [TRAINING] * 3, True, 4, None),  # a measure of the training itself
        ((), [TRAINING] * 3, False, 1, None),  # the others are compiled
        ([TRAINING], [OTHERS] * 3, False, 4, None),  # such as its mean
        ((), CHANGED, False, 4, "random changes, such as augmentation, are made there, too"),
    ],
)
def test_a_validation_in_a_loop_of_its_own_is_looked_at(
    before: Any, after: Any, steps: int, *, is_own: bool, said: str | None
) -> None:
    script, loaders = Trains(steps=99), [Sampler(), Sampler()]
    for each in before:
        whole(script, Taken(each, loaders[1]), steps=0)
    for each in after:
        whole(script, Taken(TRAINING, loaders[0]), steps=steps)
        whole(script, Taken(each, loaders[not is_own]), steps=0)
    script.reads.end()
    (told,) = script.told
    found = [each for each in told.warnings if "without a step of the training" in each]
    assert [str(said) in each for each in found] == [True] * (said is not None)
