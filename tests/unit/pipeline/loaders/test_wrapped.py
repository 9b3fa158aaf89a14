"""What is set around a user's dataset: the batches stay, the process gets it, and what cannot be is said."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import keras
import numpy as np
import pytest
import tensorflow as tf
import threadpoolctl

import autopipe as ap
from autopipe.artifact import factory
from autopipe.errors import ConfigError, WorkloadError
from autopipe.hardware import processes
from autopipe.measure import description, fingerprint
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.loaders.wrapped import Foreign, Wrapped
from autopipe.pipeline.wrap import WrappedData
from autopipe.search import feasible
from autopipe.search.space import from_config, of_wrapped, to_config
from autopipe.workload.ops.planner import make_plan
from tests.fakes import profiles
from tests.fakes.facts import facts, known
from tests.unit.pipeline.devices.models import classifier

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = np.arange(10)


def in_order(calls: int = 1) -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (x, y), num_parallel_calls=calls).batch(4)


class Rows(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return X[4 * index :][:4], Y[4 * index :][:4]


build_model = functools.partial(classifier, shape=(2,), classes=10)


def wrapped(function: Callable[..., Any], **more: Any) -> ap.Workload:
    parameters = {"calls": [1, 2]} if function is in_order else None
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
    workload = wrapped(in_order)
    with assembly.build_loader(workload, config(calls=2, **settings)) as loader:
        for epoch in range(3):
            np.testing.assert_array_equal(X, np.concatenate([x for x, _ in loader.batches(epoch)]))
        elements = list(loader.native_dataset(0, 2))
    assert [x.shape for x, _ in elements] == [(4, 2), (4, 2), (2, 2)] * 2
    np.testing.assert_array_equal(np.concatenate([x for x, _ in elements]), np.concatenate([X, X]))


def test_options_that_the_function_has_set_stay() -> None:
    def make() -> Any:
        options = tf.data.Options()
        options.deterministic, options.experimental_slack = False, True
        return in_order().with_options(options)

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
    with assembly.build_loader(wrapped(Rows), config(library_threads=2)):
        assert threads_of_libraries() == {2}
    assert threads_of_libraries() == {3}
    for other in (config(), config(library_threads=2)):
        with assembly.build_trainer(wrapped(Rows), ap.PipelineConfig(loader=ap.Threads(workers=2), finish="host")):
            assert threads_of_libraries() == {1}
            with assembly.build_loader(wrapped(Rows), other):
                assert threads_of_libraries() == {1}
            assert threads_of_libraries() == {1}
        assert threads_of_libraries() == {3}


# -------------------- freed memory


def test_only_a_configuration_that_says_so_keeps_the_memory_that_a_users_dataset_frees(told: list[None]) -> None:
    workload, threads = wrapped(Rows), cv2.getNumThreads()
    with assembly.build_trainer(workload, config()) as trainer:
        trainer.fit(epochs=1, verbose=0)
    assert (told, cv2.getNumThreads()) == ([], threads)
    assert not processes.KEEPING.keys() & os.environ.keys()
    with assembly.build_loader(workload, config(freed_memory="kept")):
        assert told != []
    assert processes.KEEPING.items() <= os.environ.items()  # of workers that are no forks


@pytest.mark.usefixtures("_three_threads")
def test_a_tuned_pipeline_sets_what_its_configuration_says(told: list[None]) -> None:
    workload = wrapped(in_order)
    best = config(calls=2, freed_memory="kept", library_threads=1).model_dump(mode="json")
    tuned = factory.of_profile(profiles.profile(workload=fingerprint.workload_digest(workload), config=best), workload)
    with tuned.make_trainer() as trainer:
        assert (len(told), threads_of_libraries()) == (1, {1})
        trainer.fit(epochs=1, verbose=0)


# -------------------- what a search tries


def shuffled() -> Any:
    return in_order().unbatch().shuffle(10).batch(4)  # of three batches, every sixth pass has the same order


def flipped() -> Any:
    def moved(x: Any) -> Any:
        return (x + np.random.random_sample()).astype(np.float32)

    return in_order().map(lambda x, y: (tf.ensure_shape(tf.numpy_function(moved, [x], tf.float32), (None, 2)), y))


def against(function: Callable[..., Any], **more: Any) -> str | None:
    _, found = WrappedData(function, {}, **more).tried()
    return next((reason for name, value, reason in found if (name, value) == ("wrapped.tf_cache", "memory")), None)


def test_batches_are_kept_only_if_each_pass_gives_the_same(
    monkeypatch: pytest.MonkeyPatch, this_machine: Callable[..., None]
) -> None:
    assert against(in_order) is None
    for random in (shuffled, flipped):  # of numbers that a seed repeats in each pass, none differ
        assert "two passes over the dataset differ" in str(against(random))
    assert against(lambda: in_order().repeat(), steps=3) == "the dataset has no end"
    monkeypatch.setattr(wrap, "_FIRST_BATCHES", 1)
    monkeypatch.setattr(wrap, "_LOOK_SECONDS", 0.0)
    assert "take over 0 s" in str(against(in_order))
    this_machine(free_bytes=100)
    assert str(against(in_order)).startswith("needs ")


def test_a_search_tries_what_can_be_set_and_says_why_batches_cannot_be_kept(this_machine: Callable[..., None]) -> None:
    this_machine(cores=2)
    workload = wrapped(shuffled)
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


def test_of_a_py_dataset_tf_datas_settings_are_not_tried(this_machine: Callable[..., None]) -> None:
    this_machine(cores=1)
    data = WrappedData(Rows, {})
    assert data.tried() == ({**data.choices, "freed_memory": ("returned", "kept")}, [])
    this_machine(cores=2)
    assert WrappedData(Rows, {}).tried()[0]["library_threads"] == (0, 1)  # this module has imported OpenCV


def test_the_threads_of_libraries_are_tried_if_others_than_the_datasets_own_make_a_batch(
    monkeypatch: pytest.MonkeyPatch, this_machine: Callable[..., None]
) -> None:
    class Shared(Rows):
        def __getitem__(self, index: int) -> Any:
            with ThreadPoolExecutor(1) as helper:
                helper.submit(sum, range(10**6))
            return super().__getitem__(index)

    this_machine(cores=2)
    monkeypatch.setattr(wrap, "_is_opencv_used", lambda: False)
    tried = ["library_threads" in WrappedData(kind, {}).tried()[0] for kind in (Rows, Shared)]
    assert tried == [False, True]


# -------------------- what cannot be


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"freed_memory": "keep"}, "`freed_memory` of `Wrapped` is wrong: .*'returned' or 'kept'"),
        ({"tf_threads": -1}, "`tf_threads` of `Wrapped` is wrong: .*greater than or equal to 0, but got tf_threads=-1"),
        ({"library_threads": 1.5}, "`library_threads` of `Wrapped` is wrong"),
        ({"tf_autotune": "off"}, "`tf_autotune` of `Wrapped` is wrong"),
    ],
)
def test_a_value_that_cannot_be_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Wrapped.model_validate(settings)


def test_a_setting_of_another_kind_of_dataset_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tf_prefetch=2 needs a tf\.data\.Dataset, but it is .*Rows"):
        assembly.build_loader(wrapped(Rows), config(tf_prefetch=2))
    endless = wrapped(lambda: in_order().repeat(), steps=3)
    with pytest.raises(ConfigError, match="without an end cannot be kept in memory"):
        assembly.build_loader(endless, config(tf_cache="memory"))


def test_a_parameter_of_the_function_may_not_have_the_name_of_a_setting() -> None:
    for name in ("kind", *Wrapped().around(), "tf_prefetch", "freed_memory"):
        with pytest.raises(WorkloadError, match=f"`{name}` is autopipe's own setting"):
            wrap.wrap(lambda **named: in_order(), model=None, parameters={name: [0]})


def test_a_search_tries_the_values_around_a_dataset_that_the_user_names() -> None:
    named: dict[str, list[int]] = {"calls": [1, 2], "tf_autotune": [False], "tf_threads": [4, 8]}
    workload = wrap.wrap(in_order, model=build_model, parameters=named)
    tried = known(description.describe(workload, make_plan(workload), build_model()).wrapped).choices
    assert (tried["tf_autotune"], tried["tf_threads"], tried["tf_prefetch"]) == ((False,), (4, 8), (0, 4))
    with pytest.raises(ConfigError, match="tf_prefetch=-3"):
        wrap.wrap(in_order, model=build_model, parameters={"tf_prefetch": [-3]})


def test_a_configuration_is_one_like_any_other_and_names_only_what_is_set() -> None:
    kept = config(calls=2, cache=True, freed_memory="kept")
    assert config(calls=2).short() == "wrapped(calls=2) finish=host device_prefetch=0"
    assert kept.short().startswith("wrapped(freed_memory=kept, cache=True, calls=2)")
    assert kept == config(freed_memory="kept", cache=True, calls=2)
    assert kept == ap.PipelineConfig.model_validate_json(kept.model_dump_json()) == to_config(from_config(kept))
    assert from_config(kept)["wrapped.cache"] is True
    assert len({each.key() for each in (config(calls=2), kept, config(calls=2, tf_prefetch=2))}) == 3
    assert dict(kept.loader.around()) == {"freed_memory": "kept"}  # type: ignore[attr-defined]  # of this loader
