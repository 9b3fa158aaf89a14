"""Samples that are played on a rehearsed machine: what batches hold, what a cache knows, and what it all costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

import autopipe as ap
from autopipe.hardware import rehearsal
from autopipe.hardware.rehearsal import Rehearsal
from autopipe.pipeline import assembly
from autopipe.pipeline.batching import rehearsed
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.batching.rehearsed import READ, Costs
from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.loader import Cost, Recipe
from autopipe.workload.data.source import Subset
from autopipe.workload.ops.planner import make_plan

IMAGES = np.arange(24, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 3), np.uint8)
WORKLOAD = ap.Workload(
    data=ap.Arrays(IMAGES, np.arange(24)), ops=[ap.Resize(4, 4), ap.RandomFlip(), ap.Rescale(2.0)], batch_size=12
)
COSTS = Costs({READ: Cost(1e-5, 1e-5), 0: Cost(1e-5, 0.0, 1e-6), 1: Cost(2e-5), 2: Cost(4e-5)}, storage=1e-6)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rehearsed, "_known", None)  # put back at the end
    with rehearsal.playing(Rehearsal(cores=4, step_seconds=0.001)):
        rehearsed.know(COSTS)
        yield


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize(
    "loader",
    [
        ap.Threads(workers=2),
        ap.Threads(workers=2, read_ahead=3),
        ap.Processes(workers=2),
        ap.Processes(workers=1, read_ahead=2),
        ap.TfData(),
    ],
    ids=str,
)
@pytest.mark.parametrize("keep", ["none", "memory"])
def test_every_loader_plays_batches_of_real_samples(loader: LoaderConfig, keep: str) -> None:
    config = PipelineConfig.model_validate({"loader": loader, "keep": keep, "finish": "host"})
    with assembly.build_loader(WORKLOAD, config) as opened:
        batches = [batch for epoch in range(2) for batch in opened.epoch(epoch)]
    assert len(batches) == 4
    for x, y in batches:
        assert (x.shape, x.dtype) == ((12, 4, 4, 3), np.float32)
        np.testing.assert_array_equal(x[:, 0, 0, 0], 2.0 * y)  # each row is a sample with its own label


def test_a_cache_knows_its_samples_without_their_bytes_and_the_rest_is_made_each_time(
    played: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[float] = []
    monkeypatch.setattr(rehearsal.Player, "work", lambda self, seconds, *, locked=0.0: worked.append(seconds))
    made = Recipe.of(WORKLOAD, make_plan(WORKLOAD), finish="host")
    made = dataclasses.replace(made, cached=0.5)
    made = dataclasses.replace(made, played=rehearsed.played(made, made.spec.empty(1)))
    kernel = Kernel(made, MemoryCache.of(made))
    for epoch in range(2):
        kernel.fill(epoch, np.arange(24), made.spec.empty(24))
    copied = 12 * (4 * 4 * 3 + 8) / 4e9
    # In the second epoch, a half is read and resized again.
    assert sum(worked) == pytest.approx(36 * 2e-5 + 48 * 6e-5 + copied)


def test_the_costs_of_a_recipe_are_those_of_its_steps_wherever_they_run(played: None) -> None:
    plan = make_plan(WORKLOAD)
    here = rehearsed.played(Recipe.of(WORKLOAD, plan, finish="host"), ())
    there = rehearsed.played(Recipe.of(WORKLOAD, plan, finish="device"), ())
    assert (here.read, here.fixed) == (there.read, there.fixed) == (COSTS.each[READ], COSTS.each[0])
    assert here.rest.busy == pytest.approx(6e-5)
    assert there.rest.busy == pytest.approx(2e-5)


def test_a_data_set_of_more_samples_than_there_are_has_each_several_times() -> None:
    many = Subset(WORKLOAD.data, 100, repeated=True)
    assert len(many) == 100
    assert many.read(99)[1] == 99 % 24
    assert many.digest() != Subset(WORKLOAD.data, 101, repeated=True).digest()
