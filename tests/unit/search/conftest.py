"""A small space and its surface: every loader, 2 to 4 cores, some eighty configurations."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import pytest
from optuna.samplers import RandomSampler

from autopipe.pipeline.config import ModelSetup
from autopipe.pipeline.space import Space
from autopipe.search import library
from autopipe.search.feasible import trim
from autopipe.search.record import open_record
from autopipe.search.session import Session
from autopipe.search.settings import Settings
from tests.fakes import keras_loader  # noqa: F401  # its knobs
from tests.fakes.surface import Surface

T = TypeVar("T")
SPACE = """
schema_version: 1
parameters:
  loader: [threads, processes, tfdata, keras]
  threads.workers: {range: [1, 2*cores], log: true, when: {loader: threads}}
  threads.queue_size: {choices: [2, 8], when: {loader: threads}}
  processes.workers: {range: [1, cores + 1], when: {loader: processes}}
  processes.queue_size: {choices: [8], when: {loader: processes}}
  tfdata.num_parallel_calls: {choices: [auto, cores], when: {loader: tfdata}}
  tfdata.prefetch: {choices: [auto], when: {loader: tfdata}}
  keras.workers: {choices: [1, cores], when: {loader: keras}}
  keras.use_multiprocessing: {choices: [false], when: {loader: keras}}
  keras.max_queue_size: {choices: [10], when: {loader: keras}}
  cache: [none, memory]
  storage: [files]
  finish: [device, host]
  device_prefetch: [0, 2]
  devices: [1, 2]
"""


@pytest.fixture
def space() -> Space:
    return library.parse(SPACE, {"cores": 4, "gpus": 0})


def some(value: T | None) -> T:
    """Return a value that is there."""
    assert value is not None
    return value


def session_of(space: Space, surface: Surface, *, ceilings: bool = True, **chosen: object) -> Session:
    """Begin a search over a surface, with its ceilings measured if it shall have predictions."""
    settings = dataclasses.replace(Settings(clock=surface.clock), **chosen)  # type: ignore[arg-type]
    facts = dataclasses.replace(surface.facts(), limits=settings.limits)
    record, _ = open_record(None, "study", sampler=RandomSampler(), digests={}, fresh=False)
    session = Session(trim(space, facts), surface, facts, settings, record, lambda event: None)
    if ceilings:
        session.know_ceilings(surface.ceilings([ModelSetup()]))
    return session
