"""`ap.watch` round loops of any kind: the batches that come, and the report. How long anything takes is not tested."""

import contextlib
import functools
import itertools
import json
import os
import re
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe import frameworks
from autopipe.extensions.diagnose import child, loop, samples, steps
from autopipe.extensions.diagnose.data import begins_anew
from autopipe.extensions.diagnose.loop import Loop, Reads
from autopipe.extensions.diagnose.steps import Look
from autopipe.extensions.diagnose.watched import Verdict, Watched, rows, sentence, to_paste
from autopipe.hardware import machine
from autopipe.measure import epochs
from autopipe.measure.outcome import Resources
from tests.extensions.diagnose.conftest import only
from tests.fakes.loader import Clock


@pytest.fixture(autouse=True)
def _all_samples_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those alone for which a small share of the time is left, which is none on a busy machine."""
    monkeypatch.setattr(samples, "_TIME_SHARE", 1e9)
    monkeypatch.setattr(samples, "_FIRST_SHARE", 1e9)


Has = types.SimpleNamespace  # an object of which a test says all that is looked at
BATCHES = [(np.full((4, 2), number), np.arange(4)) for number in range(6)]


def samples_from(first: int, y: int = 0) -> list[Any]:
    return [(np.full((4, 2), first) + np.arange(n, n + 4)[:, None], np.arange(y + n, y + n + 4)) for n in (0, 4, 8, 12)]


TRAINING, OTHERS = samples_from(0), samples_from(100)
CHANGED = [samples_from(first, 100) for first in (200, 300, 400)]


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
    assert [len(watched), *(len(list(watched)) for _ in range(3))] == [6] * 4
    del watched
    said = capsys.readouterr().out
    assert said.count("verdict") == 1
    assert re.search(rf"^loop +(\S*/)?{re.escape(Path(__file__).name)}:\d", said, re.M)


def test_a_loop_that_ends_first_is_told_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in ap.watch(BATCHES):
        assert "verdict" not in capsys.readouterr().out
    assert "verdict" in capsys.readouterr().out
    for count, said in ((2, "a loop of 2 steps is too short"), (1, "a loop of 1 step is too short"), (0, "")):
        assert list(ap.watch(BATCHES[:count])) == BATCHES[:count]
        out = capsys.readouterr().out
        assert (said in out, bool(out)) == (True, count > 0)


def test_a_loop_that_is_left_or_fails_keeps_its_own_error() -> None:
    def broken() -> Iterator[Any]:
        yield BATCHES[0]
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(ap.watch(broken()))
    with pytest.raises(ZeroDivisionError):
        list(map(lambda _: 1 / 0, ap.watch(BATCHES)))
    for _ in ap.watch(BATCHES):
        break


def test_the_loops_of_the_docs_train_on_each_batch(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(loop.__file__).parent / "README.md").read_text()
    trained: list[Any] = []
    for name, dataset, passes, told in (("ap.watch", BATCHES, 1, 1), ("ap.live", Indexed(), 2, 0)):
        (code,) = (each for each in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.M) if name in each)
        exec(code, {"ap": ap, "dataset": dataset, "train_step": lambda x, y: trained.append(int(x[0, 0]))})
        assert trained == passes * list(range(len(BATCHES)))
        assert capsys.readouterr().out.count("verdict") == told
        trained.clear()


@pytest.mark.parametrize(
    ("dataset", "seconds", "said"),
    [
        (3, 10.0, "iterable of batches, but got int"),
        (object(), 10.0, "iterable of batches, but got object"),
        *((BATCHES, seconds, "`seconds` must be above 0") for seconds in (0.0, -1.0, float("nan"))),
    ],
)
def test_what_cannot_be_watched_is_refused(dataset: Any, seconds: float, said: str) -> None:
    with pytest.raises(ap.ConfigError, match=said):
        ap.watch(dataset, seconds=seconds)


@pytest.mark.parametrize("fed", [ap.watch, ap.live])
def test_a_loop_that_is_traced_is_refused(fed: Any) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    with pytest.raises(ap.ConfigError, match=rf"`ap\.{fed.__name__}` feeds a loop of Python, but"):
        tensorflow.function(lambda: next(iter(fed(Indexed()))), autograph=False)()


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
    assert (waits.verdict, dict(rows(waits))["loop"], to_paste(waits)) == (Verdict.DATA, "train.py:7", None)
    assert waits.possible_gain == pytest.approx(30 / 9.0, rel=0.1)
    assert waits.images_per_second == pytest.approx(1.0)
    assert looped(clock, 0.01, 1.0).verdict is Verdict.MODEL


DataLoader = type("DataLoader", (), {"__module__": "torch.utils.data.dataloader", "num_workers": 0})


@pytest.mark.parametrize(
    ("module", "data", "option"),
    [
        ("transformers.trainer", DataLoader(), "dataloader_num_workers= of TrainingArguments, 0 now"),
        ("ultralytics.engine.trainer", DataLoader(), "workers= of `train`, 0 now"),
        ("mine", DataLoader(), "its num_workers=, 0 now"),
        ("transformers.trainer", iter(BATCHES), "a loader that reads ahead"),
    ],
)
def test_the_next_step_is_the_option_of_what_makes_the_loader(
    module: str, data: Any, option: str, clock: Clock
) -> None:
    names: dict[str, Any] = {"__name__": module, "looped": looped}
    exec("def train(*given): return looped(*given)", names)
    found = names["train"](clock, 3.0, 1.0, 0.0, data)
    assert f"The next step is {option}" in sentence(found.model_copy(update={"cores": 2.0}))


def test_batches_without_a_sample_are_counted(clock: Clock) -> None:
    found = looped(clock, 1.0, 1.0, batches=[*BATCHES, (np.zeros((0, 2)), np.zeros(0))])
    assert any(said.startswith("3 of 21 batches had no sample") for said in found.warnings)


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


def test_a_loop_is_told_where_it_ends_even_if_its_frame_is_held(capsys: pytest.CaptureFixture[str]) -> None:
    batches: Any = iter(ap.watch([np.zeros((2, 2))] * 8))
    next(batches)
    frame = batches.gi_frame  # as the thread has it that looks for lines
    assert (len(list(batches)), frame is not None) == (7, True)
    assert "verdict" in capsys.readouterr().out


def test_devices_are_waited_for_only_where_a_framework_runs() -> None:
    frameworks.wait_for_devices()
    import jax

    made = jax.numpy.ones((64, 64)) @ jax.numpy.ones((64, 64))
    frameworks.wait_for_devices()
    assert made.is_ready()


# -------------------- loops that `diagnose` finds


class Trains:
    def __init__(self, steps: int = 3, *, is_training: bool = True, **look: Any) -> None:
        self.told: list[Watched] = []
        self.reads = Reads(Look(steps=steps, **look), self.told.append, lambda: is_training)

    def epoch(self, data: Any, count: int = 6) -> list[Any]:
        return [self.reads.read(Indexed.__getitem__, data, index) for index in range(count)]

    def whole(self, data: Any, *, steps: int = 99) -> None:
        """Read data to their end, with so many steps of a training that are seen."""
        with contextlib.suppress(StopIteration):
            for number in itertools.count():
                self.reads.read(next, data)
                if number < steps:
                    self.reads.trained("torch")

    def end(self) -> Watched:
        """End the script, and return its one report."""
        self.reads.end()
        (told,) = self.told
        return told


class WithWorkers(Indexed):
    workers, use_multiprocessing = 4, True


def test_a_loop_that_trains_is_told_of_by_its_line_with_what_nobody_reads() -> None:
    script = Trains()
    assert [id(batch) for batch in script.epoch(WithWorkers())] == [id(batch) for batch in BATCHES]
    script.epoch(WithWorkers())
    told = script.end()
    assert re.fullmatch(r".*test_loop\.py:\d+", str(told.loop))
    assert "Nobody reads workers=4, use_multiprocessing=True here: only `fit` does." in told.warnings


class Child:
    """What the script's process writes while `fit` reads some data."""

    def __init__(self, folder: Path, *given: Any) -> None:
        self.told = (folder / "told").open("w+")
        self.watch = child._Watch(Has(fd=self.told.fileno(), seconds=10.0, steps=None))
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


def test_workers_of_a_dataset_are_told_of_once_if_another_one_reads_it_and_neither_fit_nor_itself(
    tmp_path: Path,
) -> None:
    data, other, told = OfItself(), WithWorkers(), Child(tmp_path, object())
    data.read(told)
    told.watch._given = [data]
    told.taken(data, 0)
    assert [id(told.taken(other, index)) for index in range(3)] == [id(batch) for batch in BATCHES[:3]]
    (said,) = told.said()
    assert re.search("`WithWorkers` is read by its index.*workers=4", said)


def test_what_a_thread_reads_is_no_loop(tmp_path: Path) -> None:
    told = Child(tmp_path)
    told.watch.reads._off = False
    thread = threading.Thread(target=lambda: told.watch.read(next, iter(BATCHES)))
    thread.start()
    thread.join()
    assert (told.watch.reads._loops, told.said()) == ({}, [])


def test_a_loop_without_a_training_waits_for_a_fit_after_which_none_is_looked_at_and_is_told_at_the_end() -> None:
    statistics, then_fits = Trains(is_training=False), Trains(is_training=False)
    statistics.epoch(Indexed())
    assert statistics.told == []
    statistics.end()
    then_fits.epoch(Indexed(), count=4)
    assert any(each.name == "autopipe-lines" for each in threading.enumerate())
    then_fits.reads.leave()
    assert not any(each.name == "autopipe-lines" for each in threading.enumerate())
    then_fits.epoch(Indexed())
    then_fits.reads.end()
    assert then_fits.told == []


def line_of(end: str) -> int:
    """Return the number of the only line of this file that ends so."""
    lines = Path(__file__).read_text().splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if text.endswith(f"# {end}"))
    return line


@pytest.mark.parametrize("by_epoch", [True, False])
def test_of_several_loops_the_one_that_trains_is_told_of_with_its_order(*, by_epoch: bool) -> None:
    script, validation, training = Trains(steps=6), Indexed(), Indexed()
    training.__dict__["index_sampler"] = Has(sampler=Has(**{"set_epoch": print} if by_epoch else {}))
    for _ in range(3):
        for index in range(3):
            script.reads.read(Indexed.__getitem__, training, index)  # trains
            script.reads.trained("torch")
        script.epoch(validation)
    (told,) = script.told
    assert str(told.loop).endswith(f":{line_of('trains')}")
    (order,) = (warning for warning in told.warnings if "nothing shuffles" in warning)
    assert ("set_epoch(epoch)" in order) == by_epoch


class Subset:  # as torch has it
    __module__ = "torch.utils.data.dataset"

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset


class Dataset(Has):
    """Of torch's user."""


def test_workers_of_a_data_loader_are_told_of(tmp_path: Path, clock: Clock) -> None:
    class Iterator:  # as torch has it
        _num_workers, _persistent_workers, _workers = 64, False, (Has(_start_method="fork"),)
        __module__ = "torch.utils.data.dataloader"

        def __init__(self, file: Any) -> None:
            self._dataset = Subset(Dataset(file=file))

    with (tmp_path / "images").open("wb") as file:
        found = looped(clock, 1.0, 1.0, data=(data := Iterator(file)))
    assert (found.workers, found.begins_anew) == (64, begins_anew(data))
    assert "persistent_workers=True" in str(found.begins_anew)
    assert any("`Dataset.file`" in warning for warning in found.warnings)


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
    told = script.end()
    assert "next(iter(dataset))" in str(told.begins_anew)
    assert told.epochs is not None
    assert told.epochs.count >= 3


def slow(clock: Clock) -> Callable[[Any], Any]:
    """Return a `next` that takes a second, and gives the first batch in place of an end."""

    def read(batches: Any) -> Any:
        clock.now += 1.0
        return next(batches, BATCHES[0])

    return read


def test_a_loop_that_takes_the_time_between_passes_is_named(clock: Clock) -> None:
    script = Trains(steps=14)
    for _ in range(4):
        training, validation = Taken(), Taken()
        for _ in BATCHES:
            script.reads.read(slow(clock), training)
            script.reads.trained("torch")
        for _ in 8 * BATCHES:
            script.reads.read(slow(clock), validation)  # validates
    (told,) = script.told
    assert told.verdict is Verdict.PAUSES
    assert f"test_loop.py:{line_of('validates')}, such as a validation" in str(told.begins_anew)


@pytest.mark.parametrize("at_once", [True, False])
def test_data_that_are_read_in_turn_are_parts_of_the_same_steps(clock: Clock, *, at_once: bool) -> None:
    script = Trains(steps=15)
    for _ in range(4):
        one, other = Taken(), Taken()
        for _ in BATCHES:
            [script.reads.read(slow(clock), data) for data in ((one, other) if at_once else (one,))]
            [script.reads.read(slow(clock), other) for _ in (1,) if not at_once]
            clock.now += 2.0
            script.reads.trained("torch")
    (told,) = script.told
    assert (told.seconds / told.steps, told.waiting_seconds, told.images) == (4.0, told.seconds / 2, 4 * told.steps)
    assert "next(iter(dataset))" not in str(told.begins_anew)


class Sampler:
    """As many as there are loaders."""


class WeightedRandomSampler:
    weights = np.ones(3)


WEIGHTS = "3 weights for 300 samples, and so draws the first 3 only"


KEPT = Sampler()


def stays(dataset: Any) -> Any:
    (data := Taken(sampler=KEPT, dataset=dataset))._persistent_workers = True
    return data


@pytest.mark.parametrize(
    ("make", "passes", "said", "is_told"),
    [
        (lambda: Taken(sampler=Sampler()), 4, "each pass makes a DataLoader of its own", True),
        (lambda: Taken(sampler=KEPT), 4, "each pass makes a DataLoader of its own", False),
        (lambda: Taken(sampler=KEPT), 4, "persistent_workers=True", True),
        (lambda: stays(Has(set_epoch=print)), 3, "`set_epoch` of the dataset does not reach workers that stay", True),
        (lambda: Taken(sampler=Has(sampler=WeightedRandomSampler()), dataset=range(300)), 1, WEIGHTS, True),
        (lambda: Taken(sampler=Has(sampler=WeightedRandomSampler()), dataset=range(3)), 1, WEIGHTS, False),
        (lambda: Taken(TRAINING, Has(sampler=type("SequentialSampler", (), {})())), 1, "shuffle=True mixes them", True),
        (lambda: Taken(TRAINING, Has(sampler=type("RandomSampler", (), {})())), 1, "shuffle=True mixes them", False),
    ],
)
def test_what_a_loader_of_torch_does_beside_its_batches_is_told_of(
    make: Callable[[], Any], passes: int, said: str, is_told: bool
) -> None:
    script = Trains(steps=99)
    for _ in range(passes):
        script.whole(make())
    told = script.end()
    assert [said in each for each in [*told.warnings, str(told.begins_anew)]].count(True) == is_told
    assert epochs.few_weights(Taken(sampler=Has(sampler=WeightedRandomSampler()), dataset=iter(()))) is None


@pytest.mark.parametrize("is_traced", [True, False])
def test_of_a_training_by_jax_the_loop_in_which_a_gradient_was_taken_is_told_of(*, is_traced: bool) -> None:
    script, data = Trains(steps=3), Taken(3 * TRAINING)
    for number in range(len(3 * TRAINING)):
        script.reads.read(next, data)  # takes a gradient
        if number == 0:
            if is_traced:
                script.reads.traced()
            script.whole(Taken(2 * OTHERS), steps=0)  # looks at a validation after the first step
    (told,) = script.told
    assert str(told.loop).endswith(f"test_loop.py:{line_of('takes a gradient')}") is is_traced


@pytest.mark.parametrize(("sampler", "count"), [("SequentialSampler", 1), ("RandomSampler", 0)])
def test_a_loader_that_shuffles_nothing_is_told_of_before_a_second_epoch(sampler: str, count: int) -> None:
    script = Trains(steps=99)
    script.whole(Taken(TRAINING, Has(sampler=type(sampler, (), {})())))
    assert ["shuffle=True mixes them" in each for each in script.end().warnings].count(True) == count


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
    found = script.end().epochs
    assert found is not None
    assert (found.steps_seconds / found.count, found.between_seconds) == (3.0, 0.0)


@pytest.mark.parametrize("is_alone", [True, False])
def test_the_order_of_steps_that_are_not_seen_is_told_of_if_their_loop_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, *, is_alone: bool
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    script = Trains(steps=16)
    for _ in range(5):
        script.whole(Taken(TRAINING), steps=0)
        [script.reads.read(next, Taken(OTHERS)) for _ in OTHERS if not is_alone]
    told = script.end()
    assert any("nothing shuffles" in each for each in told.warnings) is is_alone
    assert told.resources.others_cpu_percent is None  # the other rank's
    assert told.cores == machine.core_time() / (2 if len(machine.allowed()) == os.cpu_count() else 1)


@pytest.mark.parametrize(("trained", "words"), [(0, "read before, by this loop"), (99, "itertools.cycle(loader)")])
def test_a_loop_that_has_come_to_read_no_more_is_told_of(
    trained: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_UNREAD", 9)
    script = Trains(steps=99, seconds=0.0)
    script.whole(Taken(), steps=trained)
    for _ in range(9):
        script.reads.trained("torch")
    only((each for each in script.told[0].warnings if "steps" in each and "read" in each), words)


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
        script.whole(Taken(each, loaders[1]), steps=0)
    for each in after:
        script.whole(Taken(TRAINING, loaders[0]), steps=steps)
        script.whole(Taken(each, loaders[not is_own]), steps=0)
    only((each for each in script.end().warnings if "without a step of the training" in each), said)
