"""How a workload and a configuration are put together into a job; the loaders themselves are in tests/contract."""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import ConfigError, StorageError, WorkloadError
from autopipe.pipeline.assembly import CacheWarning, batches_digest, conversion_of, evaluation_loader
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.loader import LoadJob
from autopipe.pipeline.storage.convert import convert
from autopipe.search.feasible import why_not
from autopipe.workload.op import Op
from autopipe.workload.ops.planner import make_plan
from tests.fakes.facts import facts
from tests.fakes.sources import Made

PLAIN = ap.PipelineConfig(loader=ap.Threads(workers=1))
CACHED = PLAIN.model_copy(update={"keep": "memory"})


class _Job(Exception):
    """What a loader was given to do."""


def workload(photos: Path, **changes: Any) -> ap.Workload:
    ops = [ap.Decode(), ap.Resize(8, 8), ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=ap.Table(photos / "labels.csv"), **{"ops": ops, "batch_size": 4, **changes})


def job(photos: Path, **settings: Any) -> LoadJob:
    return revealed(lambda: ap.build_loader(workload(photos), PLAIN.model_copy(update=settings)))


def revealed(build: Callable[[], object]) -> LoadJob:
    def reveal(_: ap.Threads, given: LoadJob) -> ap.Loader:
        raise _Job(given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ap.Threads, "open", reveal)
        with pytest.raises(_Job) as caught:
            build()
    found: LoadJob = caught.value.args[0]
    return found


def test_what_is_no_workload_no_configuration_and_no_part_is_refused_in_words(photos: Path) -> None:
    made: Any = workload(photos)
    for given, said in (((None, PLAIN), "workload"), ((made, ap.Threads(workers=1)), "config")):
        with pytest.raises(ConfigError, match=rf"`{said}` must be an ap\.\w+, but got"):
            ap.build_loader(*given)
    parts: tuple[Any, ...] = (None, 1, (1,), (2, 2), ("0", "2"))
    for part in parts:
        for name in ("shard", "rank"):
            with pytest.raises(ConfigError, match=rf"`{name}` must be \(i, n\) with 0 <= i < n, but got"):
                ap.build_loader(made, PLAIN, **{name: part})


def names(steps: Any) -> list[str]:
    return [type(getattr(step, "op", step)).__name__ for step in steps]


@pytest.mark.parametrize(("finish", "left", "dtype"), [("device", 1, "uint8"), ("host", 0, "float32")])
def test_finish_leaves_the_cheap_end_to_the_device_or_nothing(photos: Path, finish: str, left: int, dtype: str) -> None:
    found, ops = job(photos, finish=finish), ["Decode", "Resize", "RandomFlip", "Rescale"]
    assert names(found.recipe.steps) == ops[: 4 - left]
    assert names(found.finish.ops) == ops[4 - left :]
    assert (found.finish.is_identity, str(found.recipe.spec.x.dtype)) == (left == 0, dtype)


def test_the_cache_holds_what_comes_before_the_first_random_op(photos: Path) -> None:
    found = job(photos, keep="memory")
    assert (found.recipe.cached, found.recipe.fixed_steps, found.recipe.fixed_spec.x.shape) == (1.0, 2, (8, 8, 3))
    assert [job(photos, keep=keep).recipe.cached for keep in ("memory:50%", "none")] == [0.5, 0.0]


def test_a_cut_that_the_form_cannot_hold_is_refused(photos: Path) -> None:
    made = workload(photos)
    plan = make_plan(made)
    assert conversion_of(made, plan, STORAGES["array"]).cut == 2
    assert conversion_of(made, plan, STORAGES["array"], 1).cut == 1
    with pytest.raises(ConfigError, match="after 1 or 2 of the first ops, but got 0"):
        conversion_of(made, plan, STORAGES["array"], 0)
    with pytest.raises(ConfigError, match="after 0 of the first ops, but got 2"):
        conversion_of(made, plan, STORAGES["tfrecord"], 2)


def test_a_cut_that_was_not_converted_is_named_with_the_command(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my sets"
    made = workload(photos, converted=str(folder))
    convert(conversion_of(made, make_plan(made), STORAGES["array"]), STORAGES["array"], folder / "array")
    config = PLAIN.model_copy(update={"keep": "array"})
    ap.build_loader(made, config).close()
    with pytest.raises(StorageError, match=r"has no set of .* after 1 ops") as caught:
        ap.build_loader(made, config.model_copy(update={"keep": "array:1"}))
    options = f"--to array --cut 1 --out '{tmp_path}/my sets/array-1'"
    assert caught.value.hint == f"Run `autopipe convert` for this workload, with {options}"


def test_a_set_of_files_that_changed_since_is_refused_until_converted_again(photos: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(photos, tmp_path / "photos"))
    made = workload(copy, converted=str(tmp_path / "sets"))
    config, form, folder = PLAIN.model_copy(update={"keep": "array"}), STORAGES["array"], tmp_path / "sets" / "array"

    def write() -> None:
        convert(conversion_of(made, make_plan(made), form), form, folder)

    write()
    ap.build_loader(made, config).close()
    for change, told in (
        (lambda: os.utime(copy / "0.jpg", ns=(0, 1)), "times"),
        (lambda: (copy / "0.jpg").write_bytes((photos / "1.jpg").read_bytes()), "sizes, times"),
    ):
        change()
        with pytest.raises(StorageError, match=rf"sets/array` was made from other data \({told} differ\)") as caught:
            ap.build_loader(made, config)
        assert str(caught.value.hint).startswith(f"Remove `{folder}`, then run `autopipe convert`")
        shutil.rmtree(folder)
        write()
        ap.build_loader(made, config).close()


@pytest.mark.parametrize(
    "changes", [{"seed": 1}, {"batch_size": 5}, {"shuffle": False}, {"drop_remainder": True}, {"ops": []}]
)
def test_what_changes_the_batches_changes_their_digest(photos: Path, changes: dict[str, Any]) -> None:
    assert batches_digest(workload(photos)) == batches_digest(workload(photos))
    assert batches_digest(workload(photos)) != batches_digest(workload(photos, **changes))


def test_what_does_not_change_the_batches_does_not(photos: Path) -> None:
    assert batches_digest(workload(photos)) == batches_digest(workload(photos, on_bad_sample="skip", epochs=3))
    assert batches_digest(workload(photos), (0, 2)) != batches_digest(workload(photos), (1, 2))


def test_a_copy_of_the_data_gives_the_same_batches_whenever_it_was_made(photos: Path, tmp_path: Path) -> None:
    before = batches_digest(workload(photos))
    copy = tmp_path / "copy"
    shutil.copytree(photos, copy, copy_function=shutil.copyfile)
    for file in copy.iterdir():
        os.utime(file, (1, 1))
    assert batches_digest(workload(copy)) == before
    next(copy.glob("*.jpg")).write_bytes(b"another size")
    assert batches_digest(workload(copy)) != before


class Slow:
    """Samples whose digest takes as long as a test likes."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = threading.Event()

    def __len__(self) -> int:
        return 8

    def read(self, index: int) -> NDArray[np.float32]:
        return np.full(2, index, np.float32)

    def digest(self) -> str:
        self.asked += 1
        assert self.may_answer.wait(60)
        return "files=8"


def test_batches_do_not_wait_for_the_digest_of_the_data_which_is_found_once() -> None:
    data = Slow()
    made = ap.Workload(data=data, ops=[], batch_size=2, shuffle=False)
    with ap.build_loader(made, PLAIN) as loader:
        assert len(list(loader.epoch(0))) == 4
        data.may_answer.set()
        first = loader.state_dict()
    with ap.build_loader(made, PLAIN) as loader:
        loader.load_state_dict(first)
    assert data.asked == 1


def test_a_digest_that_fails_is_raised_where_it_is_asked_for() -> None:
    class Failing(Slow):
        def digest(self) -> str:
            raise OSError("the share is gone")

    with ap.build_loader(ap.Workload(data=Failing(), ops=[], batch_size=2), PLAIN) as loader:
        assert len(list(loader.epoch(0))) == 4
        with pytest.raises(OSError, match="the share is gone"):
            loader.state_dict()


def few_of(photos: Path, count: int) -> Made:
    return Made(count, ap.Table(photos / "labels.csv").read)


@pytest.mark.parametrize(("count", "sizes"), [(3, [3]), (4, [4]), (6, [4, 2])])
def test_what_is_evaluated_may_be_less_than_a_batch(photos: Path, count: int, sizes: list[int]) -> None:
    with pytest.raises(WorkloadError, match="at least one sample"):
        evaluation_loader(workload(photos), PLAIN, few_of(photos, 0))
    with evaluation_loader(workload(photos), PLAIN, few_of(photos, count)) as loader:
        batches = list(loader.batches(0))
    assert [len(x) for x, _ in batches] == sizes
    assert [label for _, y in batches if y is not None for label in y.tolist()] == list(range(count))


@pytest.mark.parametrize(
    ("op", "instead"),
    [
        (ap.RandomCrop(8, 6), ap.CenterCrop(8, 6)),
        (ap.RandomResizedCrop(8, 6, interpolation="nearest"), ap.Resize(8, 6, "nearest")),
    ],
)
def test_what_is_evaluated_has_the_size_of_training_without_chance(photos: Path, op: Op, instead: Op) -> None:
    few = few_of(photos, 3)
    chance = workload(photos, ops=[ap.Decode(), ap.Resize(20, 20), op, ap.RandomFlip()])
    plain = workload(photos, ops=[ap.Decode(), ap.Resize(20, 20), instead])
    with evaluation_loader(chance, PLAIN, few) as one, evaluation_loader(plain, PLAIN, few) as other:
        ((x, _),), ((wanted, _),) = one.batches(0), other.batches(0)
    assert x.shape == (3, 8, 6, 3)
    np.testing.assert_array_equal(x, wanted)


def test_samples_of_no_common_size_without_the_random_ops_are_told_which_are_left_out(photos: Path) -> None:
    made = workload(photos, ops=[ap.Decode(), ap.Map(lambda image, rng: image[:8, :8], random=True), ap.RandomFlip()])
    with pytest.raises(WorkloadError, match=r"one size.* leave out what is random: `Map`, `RandomFlip`\.") as caught:
        evaluation_loader(made, PLAIN, few_of(photos, 6))
    assert "pass a loader of these samples" in str(caught.value.hint)


@pytest.mark.parametrize(("passes", "cached"), [(None, 1.0), (2, 1.0), (1, 0.0)])
def test_samples_that_are_read_once_take_no_memory(photos: Path, passes: int | None, cached: float) -> None:
    made = revealed(lambda: evaluation_loader(workload(photos), CACHED, few_of(photos, 6), passes))
    assert made.recipe.cached == cached


def test_samples_that_memory_has_no_room_for_are_read_again(photos: Path, this_machine: Callable[..., None]) -> None:
    this_machine(free_bytes=1000)
    with pytest.warns(CacheWarning, match=r"^The 6 samples .* takes 1\.2 KiB, but \d+ B are free"):
        made = revealed(lambda: evaluation_loader(workload(photos), CACHED, few_of(photos, 6)))
    assert made.recipe.cached == 0.0


def test_what_a_training_has_yet_to_cache_is_left_to_it(this_machine: Callable[..., None]) -> None:
    large = Made(100, lambda index: np.zeros(100_000, np.uint8))
    made = ap.Workload(data=large, ops=[], batch_size=4)
    config = ap.PipelineConfig(loader=ap.Threads(workers=1, queue_size=1), keep="memory")
    this_machine(free_bytes=18_000_000)
    with ap.build_loader(made, config) as training:
        with pytest.warns(CacheWarning, match=r"takes 9\.5 MiB, but [67]\.\d MiB are free"):
            evaluation_loader(made, config, large).close()
        assert len(list(training.batches(0, last=True))) == 25
        evaluation_loader(made, config, large).close()  # the training's cache is full: nothing is left to it any more


def test_where_a_search_finds_room_for_both_sets_a_training_keeps_both(this_machine: Callable[..., None]) -> None:
    large = Made(100, lambda index: np.zeros(100_000, np.uint8))
    made = ap.Workload(data=large, ops=[], batch_size=4, validation=large)
    config = ap.PipelineConfig(loader=ap.Threads(workers=1, queue_size=1), keep="memory")
    known = facts(samples=100, validation=100, batch_size=4, fixed_bytes=10_000_000)
    room = range(10_000_000, 40_000_000, 100_000)
    least = next(size for size in room if why_not(config, dataclasses.replace(known, memory_bytes=size)) is None)
    this_machine(free_bytes=least)
    with ap.build_loader(made, config), evaluation_loader(made, config, large) as loader:
        assert sum(len(x) for x, _ in loader.batches(0)) == 100  # no CacheWarning, which would be an error here


@pytest.mark.usefixtures("forked_nurseries")
@pytest.mark.parametrize("kind", [ap.Threads, ap.Processes])
def test_no_more_workers_than_batches_serve_what_is_evaluated(photos: Path, kind: Any) -> None:
    config = ap.PipelineConfig(loader=kind(workers=5, queue_size=9))
    with evaluation_loader(workload(photos), config, few_of(photos, 6)) as loader:
        assert (len(loader), loader.buffered_batches) == (2, 2 + 2)


def test_several_processes_cannot_share_an_op_that_mixes_a_batch() -> None:
    from autopipe.pipeline import wrap
    from autopipe.workload.ops.mix import MixUp
    from autopipe.workload.ops.values import OneHot

    images, labels = np.zeros((8, 4, 4, 3), np.uint8), np.zeros(8, np.int64)
    workload = ap.Workload(data=ap.Arrays(images, labels), ops=[OneHot(2), MixUp()], batch_size=4)
    wrap.require_feedable(workload, PLAIN, (0, 1))
    with pytest.raises(ConfigError, match="`MixUp` mixes the samples of a whole batch"):
        wrap.require_feedable(workload, PLAIN, (0, 2))
