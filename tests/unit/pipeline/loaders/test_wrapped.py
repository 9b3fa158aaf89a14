"""What is set around a user's dataset: the batches stay, the process and its workers get it, what cannot be is said."""

import collections
import contextlib
import functools
import inspect
import itertools
import multiprocessing
import os
import re
import threading
import types
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
import tensorflow as tf
import threadpoolctl

import autopipe as ap
from autopipe import frameworks
from autopipe.hardware import processes
from autopipe.measure import description
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.loaders.wrapped import Foreign, Wrapped
from autopipe.pipeline.wrap import WrappedData
from autopipe.search import feasible
from autopipe.search.space import from_config, of_wrapped, to_config
from autopipe.workload.ops.planner import make_plan
from tests.fakes.facts import facts, known
from tests.unit.pipeline.datasets import Items, X, Y, as_it_is, choices, make_tensors, opened, rows, wrapped
from tests.unit.pipeline.devices.models import classifier

build_model = functools.partial(classifier, shape=(2,), classes=10)


def py_dataset() -> Items:
    return Items(3, rows)


def with_model(function: Callable[..., Any], **more: Any) -> ap.Workload:
    parameters = {"calls": [1, 2]} if function is make_tensors else None
    return wrap.wrap(function, model=build_model, parameters=parameters, **more)


def config(**settings: Any) -> ap.PipelineConfig:
    return ap.PipelineConfig(loader=Wrapped.model_validate(settings), finish="host", device_prefetch=0)


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """What would have the process of the tests keep freed memory: noted, and not done."""
    found: list[None] = []
    monkeypatch.setattr(processes, "keep_freed_memory", lambda: found.append(None))
    monkeypatch.setattr(processes, "_keeps", False)
    for name in processes.KEEPING:
        monkeypatch.setenv(name, "")  # as it was, after the test
        monkeypatch.delenv(name)
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {"freed_memory": "kept", "library_threads": 1},
        *({"tf_cache": "memory"}, {"tf_threads": 3}, {"tf_autotune": False}, {"tf_prefetch": 2}),
        {"tf_cache": "memory", "tf_threads": 1, "tf_autotune": False, "tf_prefetch": 4},
    ],
    ids=str,
)
def test_no_setting_changes_a_batch(settings: dict[str, Any]) -> None:
    workload = with_model(make_tensors)
    with assembly.make_loader(workload, config(calls=2, **settings)) as loader:
        for epoch in range(3):
            np.testing.assert_array_equal(X, np.concatenate([x for x, _ in loader.batches(epoch)]))
        elements = list(loader.native_dataset(0, 2))
    assert [x.shape for x, _ in elements] == [(4, 2), (4, 2), (2, 2)] * 2
    np.testing.assert_array_equal(np.concatenate([x for x, _ in elements]), np.concatenate([X, X]))


def test_options_that_the_function_has_set_stay() -> None:
    def make() -> Any:
        options = tf.data.Options()
        options.deterministic, options.experimental_slack = False, True
        return make_tensors().with_options(options)

    dataset = WrappedData(make, {}).make({})
    Wrapped(tf_threads=3, tf_autotune=False).begin(dataset)
    found = dataset.dataset.options()
    assert (found.threading.private_threadpool_size, found.autotune.enabled) == (3, False)
    assert (found.deterministic, found.experimental_slack) == (False, True)


def threads_of_libraries() -> set[int]:
    # An old wheel of OpenCV brings a BLAS that has one thread, and no more.
    pools = [each for each in threadpoolctl.threadpool_info() if each.get("threading_layer") != "disabled"]
    return {cv2.getNumThreads(), *(each["num_threads"] for each in pools if each["user_api"] == "blas")}


@pytest.fixture
def _three_threads() -> Iterator[None]:
    """OpenCV and BLAS have three threads each, as nothing else sets."""
    before = cv2.getNumThreads()
    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        cv2.setNumThreads(3)
        yield
        cv2.setNumThreads(before)


@pytest.mark.usefixtures("_three_threads")
def test_libraries_have_their_threads_again_once_the_last_loader_that_took_them_is_closed() -> None:
    threads = ap.PipelineConfig(loader=ap.Threads(workers=2), finish="host")
    with assembly.make_loader(with_model(py_dataset), config(library_threads=2)):
        assert threads_of_libraries() == {2}
    assert threads_of_libraries() == {3}
    for other in (config(), config(library_threads=2)):
        with assembly.make_trainer(with_model(py_dataset), threads):
            with assembly.make_loader(with_model(py_dataset), other):
                assert threads_of_libraries() == {1}
            assert threads_of_libraries() == {1}
        assert threads_of_libraries() == {3}


def test_only_a_configuration_that_says_so_keeps_the_memory_that_a_users_dataset_frees(told: list[None]) -> None:
    workload, threads = with_model(py_dataset), cv2.getNumThreads()
    with assembly.make_trainer(workload, config()) as trainer:
        trainer.fit(epochs=1, verbose=0)
    assert (told, cv2.getNumThreads()) == ([], threads)
    assert not processes.KEEPING.keys() & os.environ.keys()
    with assembly.make_loader(workload, config(freed_memory="kept")):
        assert told != []
    assert processes.KEEPING.items() <= os.environ.items()  # of workers that are no forks


def shuffled() -> Any:
    return make_tensors().unbatch().shuffle(10).batch(4)  # of three batches, every sixth pass has the same order


def flipped() -> Any:
    def moved(x: Any) -> Any:
        return (x + np.random.random_sample()).astype(np.float32)

    return make_tensors().map(lambda x, y: (tf.ensure_shape(tf.numpy_function(moved, [x], tf.float32), (None, 2)), y))


def against(function: Callable[..., Any], **more: Any) -> str | None:
    _, found = WrappedData(function, {}, **more).tried()
    return next((reason for name, value, reason in found if (name, value) == ("wrapped.tf_cache", "memory")), None)


def test_batches_are_kept_only_if_each_pass_gives_the_same(monkeypatch: pytest.MonkeyPatch, this_machine: Any) -> None:
    assert against(make_tensors) is None
    for random in (shuffled, flipped):  # of numbers that a seed repeats in each pass, none differ
        assert "two passes over the dataset differ" in str(against(random))
    assert against(lambda: make_tensors().repeat(), steps=3) == "the dataset has no end"
    monkeypatch.setattr(wrap, "_FIRST_BATCHES", 1)
    monkeypatch.setattr(wrap, "_LOOK_SECONDS", 0.0)
    assert "take over 0 s" in str(against(make_tensors))
    this_machine(free_bytes=100)
    assert str(against(make_tensors)).startswith("needs ")


def test_a_search_tries_what_can_be_set_and_says_why_batches_cannot_be_kept(this_machine: Callable[..., None]) -> None:
    this_machine(cores=2)
    workload = with_model(shuffled)
    described = description.describe(workload, make_plan(workload), build_model())
    space = of_wrapped(known(described.wrapped).choices)
    of_here = facts(impossible=described.impossible, accelerator=False)
    loaders = [config.loader for config in feasible.candidates(space, of_here).values()]
    assert wrap.as_it_is(workload) == to_config(next(space.grid()))
    assert len(loaders) == 2 * 3 * 2 * 2 * 2
    tried = {(each.model_dump()["tf_threads"], each.model_dump()["tf_autotune"]) for each in loaders}
    assert tried == {*itertools.product((0, 2, 32), (True, False))}
    assert {(each.keeps_freed_memory, each.fills_cache) for each in loaders} == {(False, False), (True, False)}
    assert any("wrapped.tf_cache memory: two passes" in reason for reason in feasible.trim(space, of_here).left_out)
    others = [ap.Threads(workers=1), Foreign(code="keras")]
    assert [each.keeps_freed_memory for each in others] == [True, False]


def test_threads_of_libraries_are_tried_if_others_make_a_batch(monkeypatch: Any, this_machine: Any) -> None:
    class Shared(Items):
        def __getitem__(self, index: int) -> Any:
            with ThreadPoolExecutor(1) as helper:
                helper.submit(sum, range(10**6))
            return super().__getitem__(index)

    this_machine(cores=1)
    data = WrappedData(py_dataset, {})
    assert data.tried() == ({**data.choices, "freed_memory": ("returned", "kept")}, [])  # nothing of tf.data
    this_machine(cores=2)
    assert data.tried()[0]["library_threads"] == (0, 1)  # this module has imported OpenCV
    monkeypatch.setattr(wrap, "_is_opencv_used", lambda: False)
    tried = ["library_threads" in WrappedData(kind, {}).tried()[0] for kind in (py_dataset, lambda: Shared(3, rows))]
    assert tried == [False, True]


SETTINGS = ("kind", *Wrapped().around(), "tf_prefetch", "freed_memory")
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: config(freed_memory="keep"), "`freed_memory` of `Wrapped` is wrong: .*'returned' or 'kept'"),
    (lambda: config(tf_threads=-1), "`tf_threads` of `Wrapped` is wrong: .*equal to 0, but got tf_threads=-1"),
    (lambda: config(library_threads=1.5), "`library_threads` of `Wrapped` is wrong"),
    (lambda: config(tf_autotune="off"), "`tf_autotune` of `Wrapped` is wrong"),
    (lambda: assembly.make_loader(with_model(py_dataset), config(tf_prefetch=2)),
     r"tf_prefetch=2 needs a tf\.data\.Dataset, but it is .*Items"),
    (lambda: assembly.make_loader(with_model(lambda: make_tensors().repeat(), steps=3), config(tf_cache="memory")),
     "without an end cannot be kept in memory"),
    (lambda: wrapped(make_tensors, tf_prefetch=[-3]), "tf_prefetch=-3"),
    *((lambda name=name: wrap.wrap(lambda **named: make_tensors(), model=None, parameters={name: [0]}),
       f"`{name}` is autopipe's own setting") for name in SETTINGS),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), REFUSED)
def test_what_cannot_be_set_is_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises((ap.ConfigError, ap.WorkloadError), match=said):
        call()


def test_a_search_tries_the_values_around_a_dataset_that_the_user_names() -> None:
    named: dict[str, list[int]] = {"calls": [1, 2], "tf_autotune": [False], "tf_threads": [4, 8]}
    workload = wrap.wrap(make_tensors, model=build_model, parameters=named)
    tried = known(description.describe(workload, make_plan(workload), build_model()).wrapped).choices
    assert (tried["tf_autotune"], tried["tf_threads"], tried["tf_prefetch"]) == ((False,), (4, 8), (0, 4))


def test_a_configuration_is_one_like_any_other_and_names_only_what_is_set() -> None:
    kept = config(calls=2, cache=True, freed_memory="kept")
    assert config(calls=2).short() == "wrapped(calls=2) finish=host device_prefetch=0"
    assert kept.short().startswith("wrapped(freed_memory=kept, cache=True, calls=2)")
    assert kept == config(freed_memory="kept", cache=True, calls=2)
    assert kept == ap.PipelineConfig.model_validate_json(kept.model_dump_json()) == to_config(from_config(kept))
    assert from_config(kept)["wrapped.cache"] is True
    assert len({each.key() for each in (config(calls=2), kept, config(calls=2, tf_prefetch=2))}) == 3
    assert dict(kept.loader.around()) == {"freed_memory": "kept"}  # type: ignore[attr-defined]  # of this loader


class DataLoader:
    """Built as torch's is, which forks its workers unless it is told otherwise."""

    __module__ = "torch.utils.data.dataloader"
    _iterator: Iterator[Any] | None = None

    def __init__(self, num_workers: int, context: Any = None) -> None:
        self.num_workers, self.multiprocessing_context = num_workers, context

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        return ((X[start : start + 4], Y[start : start + 4]) for start in range(0, 10, 4))


@pytest.mark.parametrize(
    ("opens", "lock", "workers", "against"),
    [
        (lambda path: path.open("rb"), None, 1, "threads would share `Items.file`, and move the position in it"),
        (lambda path: path.open("rb"), None, 2, None),  # threads of Keras share it as it is
        (lambda path: path.open("ab"), None, 1, None),
        (lambda path: path.open("rb"), threading.Lock(), 1, None),
        (lambda path: zipfile.ZipFile(path, "w"), None, 1, None),  # which lets one read at a time
    ],
)
def test_threads_share_no_place_in_a_file(tmp_path: Path, opens: Any, lock: Any, workers: int, against: Any) -> None:
    (tmp_path / "a").touch()
    dataset = Items(3, rows, workers=workers)
    dataset.file, dataset.lock = opens(tmp_path / "a"), lock
    with dataset.file:
        workload = wrap.wrap(lambda: dataset)
        said = ap.Threads.against(workload.data)
        config = ap.PipelineConfig(loader=Wrapped.model_validate({"workers": 2}))
        fails = pytest.raises(ap.LoaderError, match="`workers` above 1 are threads of Keras, and threads would share")
        with contextlib.nullcontext() if against is None else fails:
            ap.make_loader(workload, config).close()
    assert str(said).startswith(str(against))


class Careless:
    """Batches by an index that do what several threads must not do at once."""

    def __init__(self, does: str) -> None:
        self.does, self.x, self.numbers = does, np.zeros((4, 3), np.float32), list[int]()
        self.count, self.turns, self.changes = 0, 0, [types.SimpleNamespace(angle=0.0)]

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        if self.does == "opens":
            self.file = getattr(self, "file", None) or Path(__file__).open("rb")  # noqa: SIM115  # as readers do
        if self.does == "sets":
            self.index = float(index)
        if self.does == "draws":  # what an image and its mask are to be turned by
            self.changes[0].angle = float(index)
        if self.does == "counts":
            self.count += 1
        if self.does == "takes turns":
            self.turns += 1
            index += 0 * self.turns
        if self.does == "fills":
            self.x[:] = index
            return self.x
        self.numbers.append(index)  # as a cache does
        return np.full((4, 3), index, np.float32)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("opens", "threads would share `Careless.file`, and move the position in it while others read"),
        ("sets", "threads would share `Careless.index`, which each `Careless[i]` sets"),
        ("draws", "threads would share `Careless.changes[0].angle`, which each `Careless[i]` sets"),
        ("fills", "threads would fill the same arrays, those of the `Careless[i]` before"),
        ("takes turns", "threads would share `Careless.turns`, which each `Careless[i]` sets"),
        ("counts", None),
        ("keeps", None),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("forked_nurseries")
def test_threads_are_not_tried_where_asking_changes_what_they_would_share(does: str, said: str | None) -> None:
    assert ap.Threads.against(wrap.wrap(Careless(does)).data) == said
    with ap.live(Careless(does)) as batches:
        assert [x[0, 0] for x in batches] == [0, 1, 2]
        feeding: Any = batches._loader
        assert feeding.watch.config.loader.kind == ("threads" if said is None else "processes")


def test_keras_own_knobs_of_a_py_dataset_are_tried_beside_loaders_with_workers() -> None:
    workload = wrap.wrap(Items(3, rows, workers=8, use_multiprocessing=True), model=None)
    knobs = {"max_queue_size": 10, "use_multiprocessing": True, "workers": 8}
    assert as_it_is(workload).loader == Wrapped.model_validate(knobs)
    assert choices(workload)["use_multiprocessing"] == (False, True)
    assert {1, 8} <= set(choices(workload)["workers"])
    configs = [to_config(params) for params in of_wrapped(choices(workload), {"cores": 2}).grid()]
    counts = collections.Counter(each.loader.kind for each in configs if each.device_prefetch == 0)
    assert counts == {"wrapped": len(choices(workload)["workers"]) * 2, "threads": 36, "processes": 36}
    assert as_it_is(workload).key() in {config.key() for config in configs}
    given = wrap.wrap(dataset := Items(3, rows), model=None, parameters={"workers": [1, 4]}, shuffle=False)
    assert choices(given) == {"workers": (1, 4)}
    with assembly.make_loader(given, config(workers=4)) as loader:
        assert (dataset.workers, len(list(loader.batches(0)))) == (4, 3)


def test_the_functions_parameters_are_passed_to_it_by_each_loader() -> None:
    def make(add: int = 0, workers: int = 1) -> Any:
        return Items(3, lambda index: (X[4 * index :][:4] + add, Y[4 * index :][:4]), workers=workers)

    workload = wrap.wrap(make, model=None, parameters={"add": [0, 5], "workers": [1, 2]}, shuffle=False)
    configs = [to_config(params) for params in of_wrapped(choices(workload), {"cores": 1}).grid()]
    kinds = collections.Counter(each.loader.kind for each in configs if each.device_prefetch == 0)
    assert kinds == {"wrapped": 4, "threads": 2 * 36, "processes": 2 * 36}
    assert {to_config(from_config(each)).key() for each in configs} == {each.key() for each in configs}
    for loader in (
        {"loader": Wrapped.model_validate({"add": 5})},
        {"loader": ap.Threads(workers=1), "arguments": {"add": 5}},
    ):
        with assembly.make_loader(workload, ap.PipelineConfig(finish="host", **loader)) as made:
            np.testing.assert_array_equal(np.concatenate([x for x, _ in made.batches(0)]), X + 5)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_grains_workers_import_begins_no_others(workers: int, tmp_path: Path, monkeypatch: Any) -> None:
    """Which would wait for that import to end."""

    class Batches:
        multiprocessing_options = types.SimpleNamespace(num_workers=workers)

        def __iter__(self) -> Iterator[Any]:
            yield np.zeros((4, 2)), np.zeros(4)

    (file := tmp_path / "train.py").write_text("wrapped = ap.wrap(batches)")
    names = {"ap": ap, "batches": Batches(), "__name__": "train"}
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: multiprocessing.current_process())
    with pytest.raises(ap.LoaderError, match=r"def workload") if workers else contextlib.nullcontext():
        exec(compile(file.read_text(), str(file), "exec"), names)
    assert ("wrapped" in names) == (workers == 0)


def test_a_data_loader_that_forks_is_refused_when_it_begins_after_a_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    def feeder(made: DataLoader) -> Any:
        return WrappedData(lambda: made, {}).make({})

    with monkeypatch.context() as earlier:
        earlier.setattr(frameworks, "running_framework", lambda: None)
        forking = feeder(DataLoader(2))
        assert len(list(forking.epoch("arrays"))) == 3
    tf.constant(0)
    with pytest.raises(ap.LoaderError, match="forks"):
        next(forking.epoch("arrays"))
    begins_anew = DataLoader(2, multiprocessing.get_context("forkserver"))
    there_already = DataLoader(2)
    there_already._iterator = iter(())  # as of persistent workers
    for loader in (DataLoader(0), begins_anew, there_already):
        assert len(list(feeder(loader).epoch("arrays"))) == 3


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Items(2, rows, workers=2, use_multiprocessing=True), "forked after JAX.*use_multiprocessing=False"),
        (lambda: DataLoader(2), 'DataLoader with num_workers=2 forks.*JAX.*="forkserver"'),
        (lambda: type("Own", (DataLoader,), {"__module__": __name__})(2), "forks"),  # a class of one's own
    ],
)
def test_a_fork_after_a_framework_is_refused_and_no_method_settled(monkeypatch: Any, make: Any, said: str) -> None:
    method = Mock(side_effect=lambda allow_none=False: None if allow_none else "fork")
    monkeypatch.setattr(multiprocessing, "get_start_method", method)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["fork", "spawn"])
    monkeypatch.setattr(frameworks, "running_framework", lambda: "JAX")
    with pytest.raises(ap.LoaderError) as error:
        ap.wrap(make, steps=3)  # a PyDataset goes on
    assert re.search(said, f"{error.value.message} {error.value.hint}", re.DOTALL)
    method.assert_called_with(allow_none=True)


def test_a_default_that_is_no_number_is_left_to_the_function() -> None:
    make = Mock(side_effect=lambda calls=1, prefetch=None: make_tensors(calls))
    make.__signature__ = inspect.signature(make.side_effect)
    workload = wrapped(make, calls=[1, 2], prefetch=[4, 8])
    opened(workload).close()
    assert not any("prefetch" in each.kwargs for each in make.call_args_list)
    assert as_it_is(workload).loader == Wrapped.model_validate({"calls": 1})
