"""One worker process and its owner. Whole loaders of such: tests/contract and tests/integration."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from autopipe.batching.process import WorkerProcess, _ending, packed_recipe
from autopipe.batching.slots import RowLayout, Slot
from autopipe.core.job import Recipe
from autopipe.core.sample import Field, FieldKind, SampleSpec

SPEC = SampleSpec(Field(FieldKind.ARRAY, (2,), np.dtype("float32")), Field(FieldKind.LABEL, (), np.dtype("int64")))


class Forking:
    """The first read forks a child, which stays, and kills its own process."""

    def __init__(self, folder: Path) -> None:
        self.child = folder / "child"

    def __len__(self) -> int:
        return 4

    def read(self, index: int) -> tuple[object, int]:
        if not self.child.exists():
            if (child := os.fork()) == 0:
                time.sleep(60)
                os._exit(0)
            self.child.write_text(str(child))
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full(2, index, np.float32), index


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Forking]:
    made = Forking(tmp_path)
    yield made
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(made.child.read_text()), signal.SIGKILL)


def test_a_worker_that_dies_is_replaced_although_what_it_has_forked_holds_its_socket(
    source: Forking, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = Recipe(
        source=source, steps=(), fixed_steps=0, fixed_spec=SPEC, spec=SPEC, seed=0, on_bad_sample="error", cached=0.0
    )
    slot = Slot(1, RowLayout(SPEC, 4))
    worker = WorkerProcess(packed_recipe(recipe), None)
    with ThreadPoolExecutor(1) as pool:
        try:
            assert pool.submit(worker.fill, slot, 0, np.arange(4)).result(30) == []
        finally:
            worker.stop()
    x, y = slot.layout.arrays(slot.block)
    assert (x[:, 0].tolist(), y.tolist()) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert worker.lost == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "SIGKILL" in caplog.text


@pytest.mark.parametrize(("status", "words"), [(-9, "by SIGKILL"), (-40, "by signal 40"), (3, "status 3")])
def test_every_end_of_a_worker_has_words(status: int, words: str) -> None:
    assert words in _ending(status)
