"""What every loader shares and each configuration says, and loaders that take each other's place."""

import contextlib
import dataclasses
import functools
import itertools
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autopipe as ap
from autopipe.measure import costs
from autopipe.pipeline.config import Kept, PipelineConfig, SettingValue
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.pipeline.switching import SwitchingLoader, check_tune
from autopipe.search import feasible
from autopipe.workload.sample import Batch
from tests.fakes.facts import DESCRIBED, facts
from tests.fakes.loader import ArrayLoader, Clock, blobs
from tests.fakes.reports import Approved, refusal


def three() -> ArrayLoader:
    """Return a loader of three batches, which are their numbers."""
    return ArrayLoader(np.arange(3), None, 1, shuffle=False)


def numbers(batches: Iterator[tuple[Any, Any]]) -> list[int]:
    return [int(x[0]) for x, _ in batches]


def place(loader: ap.Loader) -> tuple[int, int]:
    return loader.state_dict()["epoch"], loader.state_dict()["batch"]


def test_a_state_names_the_next_batch() -> None:
    loader = three()
    epoch = loader.epoch(np.int64(4))  # type: ignore[arg-type]  # as of np.arange
    places = [place(loader)] + [(numbers(itertools.islice(epoch, count)), place(loader)) for count in (2, 1)]
    assert places == [(0, 0), ([0, 1], (4, 2)), ([2], (5, 0))]


def test_a_loader_that_is_looped_over_without_an_epoch_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"loader\.epoch\(number\)"):
        iter(three())


STATE = {"schema_version": 1, "epoch": 2, "batch": 1, "identity": "arrays"}


def test_a_loaded_state_holds_for_its_own_epoch_once() -> None:
    loader = three()
    loader.load_state_dict(STATE)
    assert loader.state_dict()["batch"] == 1
    assert [numbers(loader.epoch(2)) for _ in range(2)] == [[1, 2], [0, 1, 2]]
    assert [asked[:2] for asked in loader.asked] == [(2, 1), (2, 0)]


NO_STATES: list[Any] = [3, None, "model.keras", {}]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({**STATE, "identity": "four"}, "another workload"),
        ({**STATE, "batch": 3}, "has 3 batches"),
        ({**STATE, "batch": -1}, r"must be what `state_dict\(\)` returned, but got .*'batch': -1"),
        ({**STATE, "extra": 1}, r"must be what `state_dict\(\)` returned, but got"),
        *((state, rf"returned, but got {re.escape(repr(state))}\.") for state in NO_STATES),
    ],
)
def test_a_state_that_does_not_fit_is_refused(state: Any, message: str) -> None:
    with pytest.raises(ap.ConfigError, match=message):
        three().load_state_dict(state)


SMALL, LARGE = (4, 4, 3), (1024, 512, 3)
BATCH = 4


@pytest.mark.usefixtures("forked_nurseries")
@pytest.mark.parametrize(
    ("loader", "shape", "steps", "held"),
    [
        (ap.Threads(workers=3, queue_size=8), SMALL, 1, (8 + 3 * 8, 8)),
        (ap.Threads(workers=3, queue_size=8), SMALL, 3, (6 + 3 * 3, 3)),
        (ap.Threads(workers=1, queue_size=2), SMALL, 16, (32 + 16, 16)),
        (ap.Threads(workers=3, queue_size=8), LARGE, 3, (8 + 3, 1)),
        (ap.Threads(workers=3, queue_size=8, read_ahead=4), SMALL, 3, (8 + 3, 1)),
        (ap.Processes(workers=1, queue_size=8), SMALL, 3, (6 + 3, 3)),
        (ap.TfData(num_parallel_calls=9, prefetch=5), SMALL, 1, (None, 6 + 9 + 1)),
        (ap.TfData(), SMALL, 1, (None, 16 + 2 + 1)),  # "auto": as many as the loader makes sure that there is room for
        (ap.TfData(num_parallel_calls=3, prefetch=5, read_ahead=2), SMALL, 1, (None, 6 + 3 + 1)),
    ],
    ids=str,
)
def test_batches_made_at_once_are_counted(this_machine: Any, loader: Any, shape: Any, steps: int, held: Any) -> None:
    this_machine(cores=2)
    data = ap.Arrays(np.zeros((8, *shape), np.uint8))
    config = ap.PipelineConfig(loader=loader, steps_per_execution=steps)
    buffered, others = held
    if buffered is not None:
        with ap.make_loader(ap.Workload(data=data, ops=[], batch_size=BATCH), config) as opened:
            assert opened.buffered_batches == buffered
    size = int(np.prod(shape))
    known = DESCRIBED.model_copy(update={"batch_size": BATCH, "compact_bytes": size, "mean_bytes": 0.0})
    assert costs.memory_bytes(config, known) == ((buffered or 0) + others) * BATCH * size


X, Y = blobs(24)
EXPECTED = [y.tolist() for _, y in ArrayLoader(X, Y, 4).batches(0)]


def arrays(fails_at: int | None = None) -> ArrayLoader:
    made = ArrayLoader(X, Y, 4)
    made.fails_at, made.error = None if fails_at is None else (0, fails_at), ap.LoaderError("it cannot")
    return made


class Waiting(ArrayLoader):
    def __init__(self) -> None:
        super().__init__(X, Y, 4)
        self.told = threading.Event()

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        self.told.wait()
        yield from super().batches(epoch, start, last=last)

    def close(self) -> None:
        super().close()
        self.told.set()


class Watched:
    replacements: list[ArrayLoader]

    def __init__(self) -> None:
        self.took_batches, self.ended, self.failures, self.is_closed = 0, list[int](), list[tuple[Any, str]](), False

    def took(self, waited: float, stepped: float) -> None:
        assert min(waited, stepped) >= 0
        self.took_batches += 1

    def epoch_ended(self, epoch: int) -> None:
        self.ended.append(epoch)

    def failed(self, loader: Any, error: Exception) -> None:
        self.failures.append((loader, str(error)))

    def instead(self, error: Exception) -> ArrayLoader | None:
        return self.replacements.pop() if self.replacements else None

    def closed(self) -> None:
        self.is_closed = True


def switching(loader: ArrayLoader, *replacements: ArrayLoader, **settings: Any) -> tuple[SwitchingLoader, Watched]:
    made, watch = SwitchingLoader(loader, **settings), Watched()
    watch.replacements = [*replacements]
    made.watch = watch
    return made, watch


def labels(loader: SwitchingLoader, switch_at: dict[int, ArrayLoader]) -> list[list[int]]:
    """Return the labels of an epoch's batches; loaders are switched to before batches of these numbers."""
    found, batches = list[list[int]](), loader.batches(0)
    for number in range(len(loader)):
        if number in switch_at:
            loader.switch(switch_at[number])
        found.append(next(batches)[1].tolist())
    batches.close()  # type: ignore[attr-defined]  # a generator
    return found


def test_the_loader_before_stays_open_until_it_is_no_longer_needed() -> None:
    one, other = arrays(), arrays()
    loader, watch = switching(one)
    assert labels(loader, {2: other}) == EXPECTED
    assert (loader.loader, loader.spare, one.closed) == (other, one, False)
    loader.keep()
    loader.close()
    assert (one.closed, other.closed, loader.changes) == (True, True, 1)
    assert (watch.took_batches, watch.ended, watch.is_closed) == (5, [0], True)


@pytest.mark.parametrize("fails_at", [3, 4, 5])
def test_a_loader_that_fails_is_replaced_by_the_one_before(fails_at: int) -> None:
    one, other = arrays(), arrays(fails_at)
    loader, watch = switching(one)
    assert labels(loader, {1: other}) == EXPECTED
    assert (loader.loader, loader.spare, watch.failures) == (one, None, [(other, "it cannot")])
    loader.close()
    assert other.closed


@pytest.mark.parametrize("closed", [False, True])
def test_an_error_of_the_only_loader_is_raised_and_nothing_is_opened_again_once_it_is_closed(*, closed: bool) -> None:
    loader, watch = switching(arrays(3), *[arrays()] * closed)
    if closed:
        loader.close()
    with pytest.raises(ap.LoaderError, match="it cannot"):
        list(loader.batches(0))
    assert watch.failures == []


def test_a_loader_without_a_spare_is_replaced_by_one_that_is_opened_then() -> None:
    one, other = arrays(3), arrays()
    loader, watch = switching(one, other)
    assert labels(loader, {}) == EXPECTED
    assert (loader.loader, watch.failures) == (other, [(one, "it cannot")])


def test_an_error_that_both_loaders_have_is_raised_once() -> None:
    other = arrays(4)
    loader, watch = switching(arrays(4))
    with pytest.raises(ap.LoaderError, match="it cannot"):
        labels(loader, {1: other})
    assert watch.failures == [(other, "it cannot")]


def test_a_loader_that_is_late_takes_over_once_its_batch_is_there() -> None:
    one, other = arrays(), Waiting()
    loader, watch = switching(one, clock=Clock())
    batches, found = loader.batches(0), list[list[int]]()
    for number in range(6):
        if number == 1:
            loader.switch(other)
        if number == 4:
            assert (loader.loader, loader.is_switching) == (one, True)
            other.told.set()
            while not loader._upcoming.is_there(0.1):  # type: ignore[union-attr]  # it waits for that thread
                pass
        found.append(next(batches)[1].tolist())
    assert found == EXPECTED
    assert (loader.loader, loader.is_switching, watch.failures) == (other, False, [])


def test_a_loader_whose_batch_never_comes_is_given_up() -> None:
    one, other, clock = arrays(), Waiting(), Clock()
    loader, watch = switching(one, clock=clock, patience=30.0)
    batches = loader.batches(0)
    found = [next(batches)[1].tolist()]
    loader.switch(other)
    for _ in range(5):
        found.append(next(batches)[1].tolist())
        clock.now += 20.0
        other.told.clear()
    assert found == EXPECTED
    assert [(each, "was not there" in said) for each, said in watch.failures] == [(other, True)]
    loader.close()
    assert other.closed


def test_a_switch_that_is_taken_back_leaves_the_running_loader() -> None:
    one, other = arrays(), arrays()
    loader, _ = switching(one)
    batches = loader.batches(0)
    found = [next(batches)[1].tolist()]
    loader.switch(other)
    loader.stay()
    found += [y.tolist() for _, y in batches]
    loader.close()
    assert (found, loader.loader, other.closed) == (EXPECTED, one, True)


@pytest.mark.parametrize(("epoch", "start"), [(3, 2), (0, 0), (1, 0)])
def test_the_reader_may_jump_while_a_loader_is_about_to_take_over(epoch: int, start: int) -> None:
    one, other = arrays(), arrays()
    loader, _ = switching(one)
    batches = loader.batches(1, 2)
    next(batches)
    loader.switch(other)
    del batches
    found = [y.tolist() for _, y in loader.batches(epoch, start)]
    assert found == [y.tolist() for _, y in arrays().batches(epoch, start)]
    assert loader.loader is other


def test_an_older_reader_gets_nothing_any_more() -> None:
    loader, _ = switching(arrays())
    older = loader.batches(0)
    next(older)
    newer = loader.batches(1)
    next(newer)
    with pytest.raises(ap.LoaderError, match="one epoch at a time"):
        next(older)


@pytest.mark.parametrize("tune", ["Live", "", "auto", True])
def test_another_way_to_tune_is_refused_and_any_for_processes_that_train_together(tune: Any) -> None:
    with pytest.raises(ap.ConfigError, match="`tune` must be"):
        check_tune(tune)
    check_tune(None, (1, 2))
    with pytest.raises(ap.ConfigError, match=r"`tune` must be None .* one of 2"):
        check_tune("live", (1, 2))


KEY = "3324dd4e6510"
CONFIGS = [
    PipelineConfig(loader=ap.Threads(workers=2)),
    PipelineConfig(loader=ap.Processes(workers=3, queue_size=1), keep="memory", finish="host", channels="first"),
    PipelineConfig(loader=ap.TfData()),
    PipelineConfig(loader=ap.TfData(num_parallel_calls=4, prefetch=0), device_prefetch=0),
    PipelineConfig(loader=ap.TfData(), devices=2),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_configuration_is_canonical_however_it_came_to_be(config: PipelineConfig) -> None:
    again = PipelineConfig.model_validate_json(config.model_dump_json())
    assert PipelineConfig.model_validate(config.model_dump(mode="json")) == again
    copied = config.keeping(cut=1) if not config.kept.converts else config.model_copy()
    assert config == again == copied
    assert config.loader == config.loader.normalised()
    assert {config.key()} == {again.key(), copied.key()}


def test_what_means_nothing_beside_the_rest_is_at_its_default_and_no_order_counts() -> None:
    kept = PipelineConfig(loader=ap.Threads(workers=2, read_ahead=20), keep="array + memory:50.0%")
    assert kept == PipelineConfig(loader=ap.Threads(workers=2), keep="array+memory:50%")
    assert kept.keeping(in_memory=False) == PipelineConfig(loader=ap.Threads(workers=2), keep="array")
    given: list[dict[str, SettingValue]] = [{"size": 3, "fast": True}, {"fast": True, "size": 3}, {}]
    assert len({PipelineConfig(loader=ap.Threads(workers=1), arguments=each) for each in given}) == 2


def test_a_key_is_the_same_in_every_release_and_tells_apart_what_counts() -> None:
    assert len({config.key() for config in CONFIGS}) == len(CONFIGS)
    loader = ap.Threads(workers=2)
    assert PipelineConfig(loader=loader).key() == KEY
    places = ("array", "array:0", "array:1", "memory:25%", "memory:50%", "memory", "encoded")
    assert len({PipelineConfig(loader=loader, keep=keep).key() for keep in places}) == len(places)


IMPOSSIBLE = (
    "Threads(workers=0)", "Threads(workers='2')", "Threads(workers=2, queue=3)", "Threads()", "Threads(wrkers=2)",
    "TfData(num_parallel_calls='many')", "TfData(prefetch=-1)",
    "PipelineConfig(loader=Threads(workers=1)).model_copy(update={'finish': 'gpu'})",
    "PipelineConfig(loader='threads')",
    *(f"PipelineConfig(loader=Threads(workers=1), {setting})" for setting in (
        "finish='gpu'", "devices=0", "keep='array:-1'", "keep='memory:0%'", "keep='memory:110%'",
        "keep='memory+encoded'", "keep='array+tfrecord'", "keep='memroy'", "keep='array:50%'", "keep='memory:1'",
    )),
)  # fmt: skip


def test_what_cannot_be(approved: Approved) -> None:
    names = {each.__name__: each for each in (ap.Threads, ap.TfData, PipelineConfig)}
    approved({code: refusal(functools.partial(eval, code, names)) for code in IMPOSSIBLE})


def test_a_loader_that_is_none_is_named() -> None:  # and a list of loaders, of extensions, too
    loaders: list[tuple[Any, str]] = [({"kind": "thread"}, "Did you mean `threads`"), ({"workers": 1}, "loader")]
    for loader, said in loaders:
        with pytest.raises(ap.ConfigError, match=said):
            PipelineConfig(loader=loader)


PLACES = st.builds(
    Kept,
    form=st.sampled_from(["files", "array", "tfrecord"]),
    cut=st.just("deepest") | st.integers(0, 99),
    in_memory=st.booleans(),
    encoded=st.booleans(),
    part=st.integers(1, 100).map(lambda percent: percent / 100),
)


@given(PLACES)
def test_what_is_kept_is_read_as_it_is_written(kept: Kept) -> None:
    read = Kept.of(str(kept))
    assert (str(read), read.form, read.in_memory) == (str(kept), kept.form, kept.in_memory)
    assert not kept.converts or read.cut == kept.cut
    assert not kept.in_memory or (read.encoded, read.part) == (kept.encoded, kept.part)
    assert read.holds(kept.disk)
    assert read.holds(kept.memory)
    assert Kept.of(str(dataclasses.replace(read, part=1.0))).stands_for(read)


@given(st.text())
def test_any_text_is_a_place_or_is_refused_in_one_sentence(text: str) -> None:
    with contextlib.suppress(ap.ConfigError):
        assert Kept.of(str(Kept.of(text))) == Kept.of(text)


@pytest.mark.parametrize(
    "script",
    [
        "import autopipe.pipeline.batching.process",
        "from autopipe.pipeline.config import LOADERS, PipelineConfig\nfor kind in LOADERS: LOADERS[kind]\n"
        "for loader in ({'kind': 'threads', 'workers': 2}, {'kind': 'tfdata'}):\n"
        "    PipelineConfig.model_validate({'loader': loader}).key()",
    ],
    ids=["a worker process", "reading knobs"],
)
def test_no_framework_is_imported_by(script: str) -> None:
    frameworks = "{'tensorflow', 'keras', 'jax', 'torch', 'grain', 'nvidia.dali', 'pandas', 'scipy'}"
    script += f"\nimport sys\nassert not {frameworks} & set(sys.modules)\n"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_knobs_may_be_given_in_their_order_but_not_too_many_nor_twice() -> None:
    threads: Any = ap.Threads  # type checkers want them by name
    assert threads(2) == ap.Threads(workers=2)
    assert threads(2, 4) == threads(2, queue_size=4) == ap.Threads(workers=2, queue_size=4)
    with pytest.raises(ap.ConfigError, match=r"takes at most . values, workers, "):
        threads(*[1] * len(ap.Threads.model_fields))
    with pytest.raises(ap.ConfigError, match=r"`workers` .* twice"):
        threads(1, workers=2)


def test_code_of_others_is_compared_with_and_never_opened_nor_chosen() -> None:
    whose = [loader.whose for loader in (Foreign(code="keras"), Foreign(code="bench.py:make"), ap.Threads(workers=2))]
    assert whose == ["plain code: autopipe eject --to keras", "yours: bench.py:make", "autopipe's loader threads"]
    with pytest.raises(ap.ConfigError, match="foreign code"):
        Foreign(code="keras").open(None)  # type: ignore[arg-type]  # it does not come to that
    assert str(feasible.why_not(PipelineConfig(loader=Foreign(code="keras")), facts())).startswith("foreign code")
