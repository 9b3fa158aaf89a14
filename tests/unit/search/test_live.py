"""The rules of a training that tunes itself, and trainings played on a clock of their own, with the real tuner."""

import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any

import pytest

import autopipe as ap
from autopipe.measure.facts import Impossible, Limits, OpCost
from autopipe.pipeline.config import LOADERS
from autopipe.pipeline.switching import SwitchingLoader, beside
from autopipe.search import live
from autopipe.search.live import LiveTuner, Window
from autopipe.search.race import Look
from autopipe.search.result import Learnt
from autopipe.values import Estimate
from autopipe.workload.sample import Batch
from benchmarks.machines import BATCH, Machine
from tests.fakes.ceilings import reads
from tests.fakes.facts import facts, known
from tests.fakes.loader import ArrayLoader, blobs


def window(rate: float = 10.0, waits: float = 0.5) -> Window:
    return Window(batches=10, seconds=10 / rate, waited=waits * 10 / rate)


def test_a_configuration_is_kept_only_if_it_is_proved_faster() -> None:
    cases: list[tuple[list[float], bool | None]] = [
        ([1.9], True),
        ([0.4], False),
        ([1.08], None),
        ([1.08, 1.09, 1.085], True),
        ([1.2, 0.9, 1.1], None),
        ([1.001, 1.0, 1.001], False),
        ([1.3, 0.8, 1.3, 0.8, 1.3, 0.8], False),
    ]
    for ratios, is_faster in cases:
        assert live.judged(ratios, 0.02) is is_faster


def test_a_rate_has_fallen_once_several_windows_in_a_row_say_so_and_trials_may_cost_a_small_part() -> None:
    settled = Estimate(value=10, low=9.5, high=10.5)
    rates = [8, 8, 8], [10, 8, 8], [9.2, 9.2, 9.2]
    assert [live.has_fallen(list(map(window, each)), settled) for each in rates] == [True, False, False]
    assert [live.allowed_loss(*each) for each in ((1e3, 10.0), (1e3, 3e3), (2.0, 2.0))] == [20.0, 30.0, 1.0]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done beside a training takes none of its steps, however busy the machine is."""

    def waited_for(function: Callable[[], Any]) -> Future[Any]:
        wait([found := beside(function)])
        return found

    monkeypatch.setattr(live, "beside", waited_for)


played = pytest.mark.usefixtures("at_once")
X, Y = blobs(4000)
OURS = ("threads", "processes", "tfdata")
FIRST = ap.PipelineConfig(loader=ap.Threads(workers=2))
THREADED = ap.PipelineConfig(loader=ap.Threads(workers=16))


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.seconds

    def add(self, seconds: float) -> None:
        with self._lock:
            self.seconds += seconds


class Played(ArrayLoader):
    """Takes so many seconds of the clock for each batch; raises at the batch of a number."""

    def __init__(self, clock: Clock, seconds: Callable[[], float], fails_after: int | None = None) -> None:
        super().__init__(X, Y, 4)
        self._clock, self._seconds, self._left = clock, seconds, fails_after

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for batch in super().batches(epoch, start, last=last):
            if self._left is not None:
                self._left -= 1
                if self._left < 0:
                    raise ap.LoaderError("a worker died")
            self._clock.add(self._seconds())
            yield batch


def look() -> Look:
    costs = {"read": 1e-4, "Decode": 1e-2}
    ops = tuple(OpCost(name=name, part="fixed", seconds_per_image=at) for name, at in costs.items())
    left_out = [("keep", "memory"), ("keep", "encoded"), *(("loader", kind) for kind in LOADERS if kind not in OURS)]
    impossible = tuple(Impossible(parameter=name, value=value, reason="of the test") for name, value in left_out)
    known = facts(cores=2, memory_bytes=2**34, impossible=impossible)
    return Look(ops=ops, reads=reads(1e4, bytes_per_image=1e4), facts=known)


@functools.cache
def order(epoch: int) -> Any:
    return ArrayLoader(X, Y, 4).order.epoch(epoch)


@dataclasses.dataclass
class Training:
    """A training of many steps on the clock, whose loaders take a time by their configuration."""

    took: Callable[[ap.PipelineConfig], float]  # seconds a batch
    step: float = 0.01
    fails: Callable[[ap.PipelineConfig], int | None] = lambda config: None  # after how many batches; -1: to open
    clock: Clock = dataclasses.field(default_factory=Clock)
    first: ap.PipelineConfig = FIRST
    look: Callable[[], Look] = look
    opens: Callable[[ap.PipelineConfig], float] = lambda config: 0.0  # in seconds, in which the training stands still
    learnt: list[Learnt] = dataclasses.field(default_factory=list)
    opened: list[ap.PipelineConfig] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.loader = SwitchingLoader(self.open(self.first), clock=self.clock)
        self.tuner = LiveTuner(self.loader, self.first, self.open, self.look, keep=self.learnt.append)
        self.loader.watch = self.tuner
        self._order = self._batches()

    def open(self, config: ap.PipelineConfig) -> Played:
        self.opened.append(config)
        self.clock.add(self.opens(config))
        fails = self.fails(config)
        if fails is not None and fails < 0:
            raise ap.LoaderError("it cannot be pickled")
        return Played(self.clock, lambda: self.took(config), fails)

    def _batches(self) -> Iterator[tuple[int, list[int]]]:
        for epoch in itertools.count():
            for number, (_, y) in enumerate(self.loader.batches(epoch)):
                yield epoch * len(self.loader) + number, y.tolist()

    def train(self, until: Callable[[], bool], most: int = 200_000) -> None:
        """Train until something is so, and check each batch."""
        for number, found in itertools.islice(self._order, most):
            epoch, batch = divmod(number, len(self.loader))
            assert found == Y[order(epoch)[batch * 4 :][:4]].tolist()
            self.clock.add(self.step)
            if until():
                return
        raise AssertionError(self.tuner.changes)


@played
def test_a_faster_loader_is_found_and_kept_and_every_batch_is_the_same() -> None:
    training = Training(lambda config: 0.2 if config.loader.kind == "threads" else 0.02)
    training.train(lambda: any(each.kept for each in training.tuner.changes))
    (change, *_) = [each for each in training.tuner.changes if each.kept]
    assert (change.before, training.loader.spare) == (FIRST.short(), None)
    assert known(change.ratio) > 3
    told, tuner = training.learnt, training.tuner
    training.train(lambda: bool(told) and told[-1].config == tuner.config.model_dump(mode="json"))  # or it raises
    assert told[-1].images_per_second.value == pytest.approx(4 / 0.03, rel=0.1)


@played
def test_nothing_is_tried_while_the_model_hardly_waits_or_after_a_mistake(caplog: pytest.LogCaptureFixture) -> None:
    training = Training(lambda config: 0.0001, step=0.05)
    training.train(lambda: training.clock.seconds > 300)
    assert training.opened == [FIRST]
    mistaken = Training(lambda config: 0.2)
    mistaken.tuner.look = lambda: [][0]
    mistaken.train(lambda: mistaken.tuner._work is None)
    mistaken.train(lambda: mistaken.clock.seconds > 1000)
    assert "without tuning itself" in caplog.text


@played
def test_what_is_slower_is_taken_back_soon() -> None:
    training = Training(lambda config: 0.2 if config == FIRST else 0.5)
    training.train(lambda: {"processes", "tfdata"} <= {each.after.partition("(")[0] for each in training.tuner.changes})
    assert training.tuner.config == FIRST
    assert not any(each.kept for each in training.tuner.changes)
    epoch, slow = len(training.loader) * 0.21, 0.51  # seconds, and those of a batch, with which a switch or window ends
    most = live.allowed_loss(epoch, training.clock.seconds) + live._WINDOW_SECONDS + 2 * slow
    assert training.tuner._lost <= most
    assert len(training.opened) <= 1 + live._MOST_TRIALS


@played
@pytest.mark.parametrize("after", [-1, 0, 1, 5, 40, pytest.param(400, marks=pytest.mark.slow)])
def test_a_loader_that_fails_leaves_the_training_as_it_is(after: int, caplog: pytest.LogCaptureFixture) -> None:
    training = Training(
        lambda config: 0.2 if config.loader.kind == "threads" else 0.02,
        fails=lambda config: None if config.loader.kind == "threads" else after,
    )
    training.train(lambda: len([each for each in training.tuner.changes if each.failure]) == 2)
    failed = [each.before if each.kept else each.after for each in training.tuner.changes if each.failure]
    assert {each.partition("(")[0] for each in failed} == {"processes", "tfdata"}
    training.train(lambda: training.clock.seconds > 1000)
    assert training.tuner.config.loader.kind == "threads"
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 2


def test_a_loader_that_opens_while_the_training_ends_is_closed() -> None:
    training = Training(lambda config: 0.2)
    may_open, began, made = threading.Event(), threading.Event(), list[Played]()

    def opened(config: ap.PipelineConfig) -> Played:
        began.set()
        may_open.wait()
        made.append(Played(training.clock, lambda: 0.1))
        return made[0]

    training.tuner.opened = opened
    training.train(began.is_set)
    opening = known(training.tuner._opening)
    training.loader.close()
    may_open.set()
    assert opening.result(60).closed  # type: ignore[attr-defined]


PLAYED = Machine(
    name="live", cores=16, physical=16, model=12_000.0, native=0.2e-3, python=0.8e-3, serial=1.0, crosstalk=0.004
)


def played_look(played: Machine) -> Look:
    ops = [
        OpCost(name="read", part="fixed", seconds_per_image=2e-5, native=True),
        OpCost(name="Decode", part="fixed", seconds_per_image=played.native, native=True),
        *[OpCost(name="Map", part="fresh", seconds_per_image=played.python)] * bool(played.python),
    ]
    known = dataclasses.replace(played.facts(), limits=Limits(convert=False))
    others = tuple(Impossible(parameter="loader", value=kind, reason="no") for kind in LOADERS if kind not in OURS)
    known = dataclasses.replace(known, workload=known.workload.model_copy(update={"impossible": others}))
    costs = reads(5e4, cpu=2e-5, bytes_per_image=1e5)
    return Look(ops=tuple(ops), reads=costs, facts=known, alone=played.loader)


@played
@pytest.mark.parametrize(
    "here",
    [
        pytest.param(PLAYED, id="an op holds Python's lock"),
        pytest.param(dataclasses.replace(PLAYED, python=0.0, native=1e-3), id="all ops are native"),
        pytest.param(dataclasses.replace(PLAYED, serial=0.0, crosstalk=0.0001), id="an op releases the lock"),
    ],
)
@pytest.mark.parametrize(("seed", "begins"), [(0, None), pytest.param(1, THREADED, marks=pytest.mark.slow)])
def test_after_20_seconds_a_training_is_nearly_best(here: Machine, seed: int, begins: ap.PipelineConfig | None) -> None:
    machine = dataclasses.replace(here, seed=seed)
    look, ran = played_look(machine), list[float]()

    def alone(config: ap.PipelineConfig) -> float:
        ran.append(0.1)
        return machine.loader(config)

    def took(config: ap.PipelineConfig) -> float:
        return BATCH / machine.training(config)

    def opens(config: ap.PipelineConfig) -> float:
        return 0.2 if config.loader.shares_lock() else 1.2 + 0.02 * (config.loader.worker_count() or 1)

    first = begins or look.first(alone, lambda: sum(ran) >= 0.6)
    training = Training(took, step=0.0, first=first, look=lambda: look, opens=opens)
    training.train(lambda: training.clock.seconds >= 20)
    assert here is not PLAYED or not training.tuner.config.loader.shares_lock()
    assert machine.training(training.tuner.config) >= 0.9 * max(map(machine.training, machine.space()))
