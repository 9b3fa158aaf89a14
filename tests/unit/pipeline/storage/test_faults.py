"""A set, or a .npy file, that is damaged while it is read: one sentence that names it, and the process goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import BadSampleError, DataError
from autopipe.pipeline.assembly import conversion_of, recipe_of
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.loader import Recipe
from autopipe.pipeline.storage.convert import convert
from autopipe.workload.ops.planner import make_plan
from tests.fakes import damage
from tests.fakes.reference import by_python
from tests.fakes.sources import Failing, Made

COUNT = 32
Damage = Callable[[Path], object]


def encoded(index: int) -> tuple[bytes, int]:
    pixels = np.random.default_rng(index).integers(0, 256, (16, 16, 3), np.uint8)
    return bytes(cv2.imencode(".png", pixels)[1]), index


def cut(folder: Path) -> None:
    for file in [*folder.glob("x-*.npy"), *folder.glob("*.tfrecord")]:
        os.truncate(file, 300)


def fail(folder: Path) -> None:
    """Have reads of open files fail as of a broken disk: the memory at the first addresses gives EIO."""
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another thread has closed it meanwhile
            if (opened := each.readlink()).is_relative_to(folder) and opened.suffix != ".json":
                os.dup2(memory, int(each.name))
    os.close(memory)


@pytest.fixture(params=["array", "array:1", "tfrecord"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ap.Workload, ap.PipelineConfig, Path]:
    """`array:1` is read image by image, `array` a batch at a time."""
    form, _, cut = request.param.partition(":")
    ops: list[Any] = [ap.Decode(), ap.RandomFlip()] if cut or form == "tfrecord" else [ap.Decode()]
    data = Made(COUNT, encoded)
    workload = ap.Workload(data=data, ops=ops, batch_size=8, converted=str(tmp_path / "kept"))
    convert(conversion_of(workload, make_plan(workload), STORAGES[form]), STORAGES[form], tmp_path / "kept")
    return workload, ap.PipelineConfig(loader=ap.Threads(workers=2), keep=form), tmp_path / "kept"


@pytest.mark.parametrize("maker", [contextlib.nullcontext, by_python])
@pytest.mark.parametrize(
    ("befalls", "said"), [(cut, "is cut short: it ends before byte"), (fail, "cannot be read: Input/output error")]
)
def test_an_open_set_that_is_cut_short_or_on_a_broken_disk_is_told(
    kept: Any, befalls: Damage, said: str, maker: Callable[[], contextlib.AbstractContextManager[None]]
) -> None:
    workload, config, folder = kept
    with maker(), ap.build_loader(workload, config) as loader:
        assert sum(len(batch[0]) for batch in loader.epoch(0)) == COUNT
        befalls(folder)
        with pytest.raises(BadSampleError, match=rf"`{folder}/[a-z]+-\d+\.[a-z]+` {said}"):
            list(chain.from_iterable(map(loader.epoch, range(1, 100))))  # the first ones may have been read before


def test_a_set_is_opened_again_where_two_threads_parse_headers_at_once(
    kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, config, _ = kept
    loading = Failing(np.load)
    monkeypatch.setattr(np, "load", loading)
    with ap.build_loader(workload, config) as loader:
        assert sum(len(batch[0]) for batch in loader.epoch(0)) == COUNT
    assert loading.calls < 0


def test_a_set_that_vanishes_is_read_on_while_it_is_open_and_else_told(kept: Any) -> None:
    workload, config, folder = kept
    with ap.build_loader(workload, config) as loader, ap.build_loader(workload, config) as later:
        first = [batch[0].copy() for batch in loader.epoch(0)]
        shutil.rmtree(folder)
        np.testing.assert_array_equal(first, [batch[0] for batch in loader.epoch(0)])
        with pytest.raises(BadSampleError, match=rf"set in `{folder}` cannot be read: No such file or directory\."):
            list(later.epoch(0))


def test_a_process_that_cannot_open_another_file_is_told_and_no_sample_is_bad(kept: Any) -> None:
    workload, config, _ = kept
    source = recipe_of(workload, config, make_plan(workload)).source
    with damage.no_other_file(), pytest.raises(DataError, match="cannot be read: Too many open files") as caught:
        source.read(0)
    assert not isinstance(caught.value, BadSampleError)


LARGE = (64, 64, 3)
OPS: Any = (ap.RandomCrop(8, 8), ap.Map(np.flipud))


@pytest.mark.parametrize(("row", "ops"), [(LARGE, ()), ((28, 28), ()), ((5,), ()), (LARGE, OPS[:1]), (LARGE, OPS[1:])])
def test_arrays_in_a_file_that_is_cut_short_are_told(tmp_path: Path, row: tuple[int, ...], ops: Any) -> None:
    np.save(tmp_path / "x.npy", np.ones((COUNT, *row), np.uint8))
    arrays = ap.Arrays(str(tmp_path / "x.npy"))
    workload = ap.Workload(data=arrays, ops=ops, batch_size=8)
    recipe = Recipe.of(workload, make_plan(workload))
    kernel, indices, batch = Kernel(recipe), np.arange(COUNT), recipe.spec.empty(COUNT)
    kernel.fill(0, indices, batch)
    os.truncate(tmp_path / "x.npy", 130)
    with pytest.raises(BadSampleError, match=rf"`{tmp_path}/x\.npy` is cut short: it ends before byte"):
        kernel.fill(1, indices, batch)
    with pytest.raises(BadSampleError, match="is cut short"):
        arrays.digest()
