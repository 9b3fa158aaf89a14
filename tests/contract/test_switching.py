"""Loaders take each other's place between any two batches, and the training gets the batches of one that stays."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import autopipe as ap
from autopipe.artifact import converting
from autopipe.pipeline import assembly, switching
from autopipe.pipeline.storage.layout import StoredSource
from autopipe.pipeline.switching import SwitchingLoader
from autopipe.workload.op import NUMPY
from tests.contract.test_loaders import BATCH, digest
from tests.fakes.sources import Made

pytestmark = pytest.mark.usefixtures("forked_nurseries")
CONFIGS = {
    "threads": ap.PipelineConfig(loader=ap.Threads(workers=2, queue_size=2)),
    "threads, cached": ap.PipelineConfig(loader=ap.Threads(workers=3, queue_size=1), keep="memory"),
    "threads, ahead": ap.PipelineConfig(loader=ap.Threads(workers=2, queue_size=2, read_ahead=16)),
    "processes": ap.PipelineConfig(loader=ap.Processes(workers=2, queue_size=2)),
    "processes, cached": ap.PipelineConfig(loader=ap.Processes(workers=1, queue_size=2), keep="memory"),
    "processes, encoded, ahead": ap.PipelineConfig(loader=ap.Processes(workers=2, read_ahead=8), keep="encoded"),
    "tfdata": ap.PipelineConfig(loader=ap.TfData(num_parallel_calls=2, prefetch=2)),
    "tfdata, cached, ahead": ap.PipelineConfig(loader=ap.TfData(num_parallel_calls=2, read_ahead=8), keep="memory"),
}
EPOCHS = 3


def workload(photos: Path, **changes: Any) -> ap.Workload:
    ops = [ap.Decode(), ap.CenterCrop(36, 40), ap.RandomCrop(30, 36), ap.RandomFlip(), ap.Rescale(1 / 255)]
    settings = {"data": ap.Table(photos / "labels.csv"), "ops": ops, "batch_size": BATCH, "seed": 7, **changes}
    return ap.Workload(**settings)


def read(loader: ap.Loader, between: Callable[[int], None] = lambda number: None) -> list[str]:
    """Return the digest of every batch of the epochs; `between` is called before each, with its number over all."""
    found, numbers = list[str](), itertools.count()

    def listed(batches: Iterator[Any]) -> Iterator[str]:
        while True:
            between(next(numbers))
            batch = next(batches, None)
            if batch is None:
                return
            yield digest([tuple(map(np.array, loader.finish.batch(batch, NUMPY)))])
            del batch

    for epoch in range(EPOCHS):
        found += listed(loader.batches(epoch, last=epoch == EPOCHS - 1))
    return found


@pytest.fixture(scope="module")
def expected(photos: Path) -> list[str]:
    with ap.make_loader(workload(photos), CONFIGS["threads"]) as loader:
        return read(loader)


NAMES = st.sampled_from(sorted(CONFIGS))
SWITCHES = st.dictionaries(st.integers(0, EPOCHS * 7), st.tuples(NAMES, st.booleans()), max_size=5)


@pytest.mark.slow
@hypothesis.given(first=NAMES, switches=SWITCHES)
@hypothesis.settings(max_examples=20, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_every_batch_is_that_of_a_fixed_loader_whatever_takes_over_and_when(
    photos: Path, expected: list[str], first: str, switches: dict[int, tuple[str, bool]]
) -> None:
    opened = assembly.opener(workload(photos))
    with SwitchingLoader(opened(CONFIGS[first])) as loader:

        def between(number: int) -> None:
            if number in switches:
                name, keeps = switches[number]
                if keeps:
                    loader.keep()
                loader.switch(opened(CONFIGS[name]))

        assert read(loader, between) == expected


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_loader_takes_over_in_mid_epoch_and_hands_back(
    photos: Path, expected: list[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "_BRIEF_SECONDS", (0.1, 60.0))  # on a busy machine it is not given up
    opened = assembly.opener(workload(photos))
    with SwitchingLoader(opened(CONFIGS["threads"])) as loader:
        one, other = loader.loader, opened(CONFIGS[name])
        turns = [one]

        def between(number: int) -> None:
            if loader.loader is not turns[-1]:
                turns.append(loader.loader)
            if not loader.is_switching and number % 5 == 1:
                loader.switch(other if loader.loader is one else one)

        while len(turns) < 3:
            assert read(loader, between) == expected
        assert turns[:3] == [one, other, one]


@pytest.mark.parametrize("is_converted", [False, True])
def test_loaders_share_a_cache_with_what_it_holds_also_of_a_converted_set(
    is_converted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []

    def counted(source: Made, index: int, read: Any = Made.read if not is_converted else StoredSource.read) -> Any:
        reads.append(index)
        return read(source, index)

    data, ops = Made(12, lambda index: np.full((6, 5, 3), index, np.uint8)), [ap.Resize(4, 4), ap.RandomFlip()]
    shared = ap.Workload(data=data, ops=ops, batch_size=BATCH, converted=str(tmp_path / "set"))
    if is_converted:
        converting.job(shared, "array", tmp_path / "set").run()
    monkeypatch.setattr(StoredSource if is_converted else Made, "read", counted)
    keep: Any = "array+memory" if is_converted else "memory"
    opened = assembly.opener(shared)
    kept = [ap.PipelineConfig(loader=each, keep=keep) for each in (ap.Threads(workers=1), ap.TfData(read_ahead=8))]
    with SwitchingLoader(opened(kept[0])) as loader:
        list(loader.batches(0, last=True))
        assert set(reads) == set(range(12))
        loader.switch(opened(kept[1]))
        reads.clear()
        assert [len(x) for epoch in (1, 2) for x, _ in loader.batches(epoch)] == [BATCH] * 6
    assert reads == []


@pytest.mark.parametrize("name", [name for name in sorted(CONFIGS) if "cached" in name])
def test_a_state_in_mid_epoch_is_resumed_after_switches(photos: Path, expected: list[str], name: str) -> None:
    opened = assembly.opener(workload(photos, ops=[*workload(photos).ops[:-1]]))
    with SwitchingLoader(opened(CONFIGS["threads"])) as loader:
        epoch = loader.epoch(1)
        for _ in range(2):
            next(epoch)
        loader.switch(opened(CONFIGS[name]))
        next(epoch)
        state = loader.state_dict()
    assert state["batch"] == 3
    with SwitchingLoader(opened(CONFIGS[name])) as loader, opened(CONFIGS["threads"]) as plain:
        loader.load_state_dict(state)
        found = [x.tobytes() for x, _ in loader.epoch(1)]
        assert found == [x.tobytes() for x, _ in plain.batches(1, 3)]
