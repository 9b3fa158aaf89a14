"""How a workload and a configuration are put together into a job; the loaders themselves are in tests/contract."""

import dataclasses
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import ConfigError, StorageError, WorkloadError, called
from autopipe.pipeline import wrap
from autopipe.pipeline.assembly import CacheWarning, batches_digest, conversion_of, evaluation_loader
from autopipe.pipeline.batching.datasets import batch_at
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.loader import LoadJob
from autopipe.pipeline.storage.convert import convert
from autopipe.search.feasible import why_not
from autopipe.workload.ops.planner import make_plan
from tests.fakes.facts import facts
from tests.fakes.sources import Failing, Made

PLAIN = ap.PipelineConfig(loader=ap.Threads(workers=1))
CACHED, STORED = (PLAIN.model_copy(update={"keep": keep}) for keep in ("memory", "array"))
ARRAY = STORAGES["array"]


def workload(photos: Path, **changes: Any) -> ap.Workload:
    ops = [ap.Decode(), ap.Resize(8, 8), ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=ap.Table(photos / "labels.csv"), **{"ops": ops, "batch_size": 4, **changes})


def job(photos: Path, **settings: Any) -> LoadJob:
    return revealed(lambda: ap.make_loader(workload(photos), PLAIN.model_copy(update=settings)))


def revealed(build: Callable[[], object]) -> LoadJob:
    """Return what a loader is given to do."""
    with patch.object(ap.Threads, "open", side_effect=InterruptedError) as opened, pytest.raises(InterruptedError):
        build()
    found: LoadJob = opened.call_args.args[-1]
    return found


def test_what_is_no_workload_no_configuration_and_no_part_is_refused_in_words(photos: Path) -> None:
    made: Any = workload(photos)
    for given, said in (((None, PLAIN), "workload"), ((made, ap.Threads(workers=1)), "config")):
        with pytest.raises(ConfigError, match=rf"`{said}` must be an ap\.\w+, but got"):
            ap.make_loader(*given)
    parts: tuple[Any, ...] = (None, 1, (1,), (2, 2), ("0", "2"))
    for part in parts:
        for name in ("shard", "rank"):
            with pytest.raises(ConfigError, match=rf"`{name}` must be \(i, n\) with 0 <= i < n, but got"):
                ap.make_loader(made, PLAIN, **{name: part})
    data = ap.Arrays(np.zeros((8, 4, 4, 3), np.uint8), np.zeros(8, np.int64))
    mixed = ap.Workload(data=data, ops=[ap.OneHot(2), ap.MixUp()], batch_size=4)
    wrap.require_feedable(mixed, PLAIN, (0, 1))
    with pytest.raises(ConfigError, match="`MixUp` mixes the samples of a whole batch"):
        wrap.require_feedable(mixed, PLAIN, (0, 2))


def names(steps: Any) -> list[str]:
    return [type(getattr(step, "op", step)).__name__ for step in steps]


def test_finish_leaves_the_cheap_end_to_the_device_or_nothing(photos: Path) -> None:
    ops = ["Decode", "Resize", "RandomFlip", "Rescale"]
    for finish, left, dtype in (("device", 1, "uint8"), ("host", 0, "float32")):
        found = job(photos, finish=finish)
        assert (names(found.recipe.steps), names(found.finish.ops)) == (ops[: 4 - left], ops[4 - left :])
        assert (found.finish.is_identity, str(found.recipe.spec.x.dtype)) == (left == 0, dtype)


def test_the_cache_holds_what_comes_before_the_first_random_op(photos: Path) -> None:
    found = job(photos, keep="memory").recipe
    assert (found.cached, found.fixed_steps, found.fixed_spec.x.shape) == (1.0, 2, (8, 8, 3))
    assert [job(photos, keep=keep).recipe.cached for keep in ("memory:50%", "none")] == [0.5, 0.0]


def test_a_cut_that_the_form_cannot_hold_is_refused(photos: Path) -> None:
    made = workload(photos)
    plan = make_plan(made)
    assert [conversion_of(made, plan, ARRAY, *cut).cut for cut in ((), (1,))] == [2, 1]
    for form, cut, said in (("array", 0, "1 or 2 of the first ops, but got 0"), ("tfrecord", 2, "0 of .*, but got 2")):
        with pytest.raises(ConfigError, match=f"after {said}"):
            conversion_of(made, plan, STORAGES[form], cut)


def test_a_set_that_changed_since_or_was_not_converted_is_refused(photos: Path, tmp_path: Path) -> None:
    copy, folder = Path(shutil.copytree(photos, tmp_path / "photos")), tmp_path / "my sets" / "array"
    made = workload(copy, converted=str(folder.parent))

    def write() -> None:
        convert(conversion_of(made, make_plan(made), ARRAY), ARRAY, folder)
        ap.make_loader(made, STORED).close()

    write()
    with pytest.raises(StorageError, match=r"has no set of .* after 1 ops") as caught:
        ap.make_loader(made, PLAIN.model_copy(update={"keep": "array:1"}))
    options = f"--to array --cut 1 --out '{folder}-1'"
    assert caught.value.hint == f"Run `autopipe convert` for this workload, with {options}"
    for change, told in (
        (lambda: os.utime(copy / "0.jpg", ns=(0, 1)), "times"),
        (lambda: (copy / "0.jpg").write_bytes((photos / "1.jpg").read_bytes()), "sizes, times"),
    ):
        change()
        with pytest.raises(StorageError, match=rf"sets/array` was made from other data \({told} differ\)") as caught:
            ap.make_loader(made, STORED)
        assert str(caught.value.hint).startswith(f"Remove `{folder}`, then run `autopipe convert`")
        shutil.rmtree(folder)
        write()


def test_what_changes_the_batches_changes_their_digest(photos: Path, tmp_path: Path) -> None:
    before = batches_digest(workload(photos))
    for alike in ({}, {"on_bad_sample": "skip", "epochs": 3}):
        assert batches_digest(workload(photos, **alike)) == before
    changes: list[dict[str, Any]] = [{"seed": 1}, {"batch_size": 5}, {"shuffle": False}, {"drop_remainder": True}]
    for change in (*changes, {"ops": []}):
        assert batches_digest(workload(photos, **change)) != before
    assert batches_digest(workload(photos), (0, 2)) != batches_digest(workload(photos), (1, 2))
    copy = tmp_path / "copy"  # whenever it was made
    shutil.copytree(photos, copy, copy_function=shutil.copyfile)
    for file in copy.iterdir():
        os.utime(file, (1, 1))
    assert batches_digest(workload(copy)) == before
    next(copy.glob("*.jpg")).write_bytes(b"another size")
    assert batches_digest(workload(copy)) != before


class Slow:
    """Samples whose digest takes as long as a test likes, and may fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.asked, self.fails, self.may_answer = 0, fails, threading.Event()

    def __len__(self) -> int:
        return 8

    def read(self, index: int) -> NDArray[np.float32]:
        return np.full(2, index, np.float32)

    def digest(self) -> str:
        self.asked += 1
        assert self.may_answer.wait(60)
        if self.fails:
            raise OSError("the share is gone")
        return "files=8"


def test_batches_do_not_wait_for_the_digest_of_the_data_which_is_found_once() -> None:
    data = Slow()
    made = ap.Workload(data=data, ops=[], batch_size=2, shuffle=False)
    with ap.make_loader(made, PLAIN) as loader:
        assert len(list(loader.epoch(0))) == 4
        data.may_answer.set()
        first = loader.state_dict()
    with ap.make_loader(made, PLAIN) as loader:
        loader.load_state_dict(first)
    assert data.asked == 1
    failing = Slow(fails=True)
    with ap.make_loader(ap.Workload(data=failing, ops=[], batch_size=2), PLAIN) as loader:
        assert len(list(loader.epoch(0))) == 4
        failing.may_answer.set()
        with pytest.raises(OSError, match="the share is gone"):
            loader.state_dict()


def few_of(photos: Path, count: int) -> Made:
    return Made(count, ap.Table(photos / "labels.csv").read)


def test_what_is_evaluated_may_be_less_than_a_batch(photos: Path) -> None:
    with pytest.raises(WorkloadError, match="at least one sample"):
        evaluation_loader(workload(photos), PLAIN, few_of(photos, 0))
    for count, sizes in ((3, [3]), (4, [4]), (6, [4, 2])):
        with evaluation_loader(workload(photos), PLAIN, few_of(photos, count)) as loader:
            batches = list(loader.batches(0))
        assert [len(x) for x, _ in batches] == sizes
        assert [label for _, y in batches if y is not None for label in y.tolist()] == list(range(count))
    many = ap.PipelineConfig(loader=ap.Threads(workers=5, queue_size=9))  # no more workers than batches
    with evaluation_loader(workload(photos), many, few_of(photos, 6)) as loader:
        assert (len(loader), loader.buffered_batches) == (2, 2 + 2)


NEAREST = ap.RandomResizedCrop(8, 6, interpolation="nearest"), ap.Resize(8, 6, "nearest")


@pytest.mark.parametrize(("op", "instead"), [(ap.RandomCrop(8, 6), ap.CenterCrop(8, 6)), NEAREST])
def test_what_is_evaluated_has_the_size_of_training_without_chance(photos: Path, op: ap.Op, instead: ap.Op) -> None:
    few, first = few_of(photos, 3), [ap.Decode(), ap.Resize(20, 20)]
    chance, plain = (workload(photos, ops=[*first, *ops]) for ops in ((op, ap.RandomFlip()), (instead,)))
    with evaluation_loader(chance, PLAIN, few) as one, evaluation_loader(plain, PLAIN, few) as other:
        ((x, _),), ((wanted, _),) = one.batches(0), other.batches(0)
    assert x.shape == (3, 8, 6, 3)
    np.testing.assert_array_equal(x, wanted)


def test_samples_of_no_common_size_without_the_random_ops_are_told_which_are_left_out(photos: Path) -> None:
    made = workload(photos, ops=[ap.Decode(), ap.Map(lambda image, rng: image[:8, :8], random=True), ap.RandomFlip()])
    with pytest.raises(WorkloadError, match=r"one size.* leave out what is random: `Map`, `RandomFlip`\.") as caught:
        evaluation_loader(made, PLAIN, few_of(photos, 6))
    assert "pass a loader of these samples" in str(caught.value.hint)


def test_samples_that_are_read_once_or_have_no_room_take_no_memory(photos: Path, this_machine: Any) -> None:
    def cached(*passes: int | None) -> float:
        made = revealed(lambda: evaluation_loader(workload(photos), CACHED, few_of(photos, 6), *passes))
        return made.recipe.cached

    assert [cached(passes) for passes in (None, 2, 1)] == [1.0, 1.0, 0.0]
    this_machine(free_bytes=1000)
    with pytest.warns(CacheWarning, match=r"^The 6 samples .* takes 1\.2 KiB, but \d+ B are free"):
        assert cached() == 0.0


LARGE = Made(100, lambda index: np.zeros(100_000, np.uint8))
IN_MEMORY = ap.PipelineConfig(loader=ap.Threads(workers=1, queue_size=1), keep="memory")


def test_what_a_training_has_yet_to_cache_is_left_to_it(this_machine: Callable[..., None]) -> None:
    made = ap.Workload(data=LARGE, ops=[], batch_size=4)
    this_machine(free_bytes=18_000_000)
    with ap.make_loader(made, IN_MEMORY) as training:
        with pytest.warns(CacheWarning, match=r"takes 9\.5 MiB, but [67]\.\d MiB are free"):
            evaluation_loader(made, IN_MEMORY, LARGE).close()
        assert len(list(training.batches(0, last=True))) == 25
        evaluation_loader(made, IN_MEMORY, LARGE).close()  # the training's cache is full: nothing is left to it


def test_where_a_search_finds_room_for_both_sets_a_training_keeps_both(this_machine: Callable[..., None]) -> None:
    made = ap.Workload(data=LARGE, ops=[], batch_size=4, validation=LARGE)
    known = facts(samples=100, validation=100, batch_size=4, fixed_bytes=10_000_000)
    room = range(10_000_000, 40_000_000, 100_000)
    least = next(size for size in room if why_not(IN_MEMORY, dataclasses.replace(known, memory_bytes=size)) is None)
    this_machine(free_bytes=least)
    with ap.make_loader(made, IN_MEMORY), evaluation_loader(made, IN_MEMORY, LARGE) as loader:
        assert sum(len(x) for x, _ in loader.batches(0)) == 100  # no CacheWarning, which would be an error here


def test_a_call_is_made_again_once_and_for_this_failure_alone() -> None:
    assert called(Failing(max), 1, 2) == 2
    for failing in (Failing(max, calls=2), Failing(max, said="error return without exception set")):
        with pytest.raises(SystemError):
            called(failing, 1, 2)


@pytest.mark.parametrize("of_source", [True, False], ids=["source", "op"])
def test_samples_and_batches_are_read_on(of_source: bool) -> None:
    read = Failing(lambda index: (np.full((2, 2, 3), index, np.uint8), index), calls=0)
    flip = Failing(np.flipud, calls=0)
    workload = ap.Workload(data=Made(8, read), ops=[ap.Map(flip)], batch_size=4)
    with ap.make_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=2))) as loader:
        failing = read if of_source else flip
        failing.calls = 1
        assert sorted(int(label) for batch in loader.epoch(0) for label in batch[1]) == list(range(8))
        assert failing.calls < 0

    class Batches:
        _read = Failing(lambda index: np.full((4, 2), index))

        def __getitem__(self, index: int) -> Any:
            return self._read(index)

    assert batch_at(Batches(), 2, 3).tolist() == np.full((4, 2), 2).tolist()
