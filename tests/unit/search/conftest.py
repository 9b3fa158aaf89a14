"""A small space and its surface: every loader, 2 to 4 cores, some eighty configurations."""

import dataclasses
import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from autopipe.measure.facts import Facts
from autopipe.measure.outcome import FailureKind, Phase, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.search import record, study
from autopipe.search import space as spaces
from autopipe.search.conclusion import Searched
from autopipe.search.measurer import Baseline
from autopipe.search.result import Event
from autopipe.search.settings import Settings
from autopipe.search.space import Space
from tests.fakes.facts import known
from tests.fakes.surface import Surface

some = known
PARAMETERS: Mapping[str, Any] = {
    "loader": ["threads", "processes", "tfdata", "keras"],
    "threads.workers": {"range": [1, "cores*2"], "log": True, "when": {"loader": "threads"}},
    "threads.queue_size": {"choices": [2, 8], "when": {"loader": "threads"}},
    "processes.workers": {"range": [1, "cores+1"], "when": {"loader": "processes"}},
    "processes.queue_size": {"choices": [8], "when": {"loader": "processes"}},
    "tfdata.num_parallel_calls": {"choices": ["auto", "cores"], "when": {"loader": "tfdata"}},
    "tfdata.prefetch": {"choices": ["auto"], "when": {"loader": "tfdata"}},
    "keras.workers": {"choices": [1, "cores"], "when": {"loader": "keras"}},
    "keras.use_multiprocessing": {"choices": [False], "when": {"loader": "keras"}},
    "keras.max_queue_size": {"choices": [10], "when": {"loader": "keras"}},
    "keep": ["none", "memory"],
    "finish": ["device", "host"],
    "device_prefetch": [0, 2],
    "devices": [1, 2],
}


def space_of(parameters: Mapping[str, Any], *, cores: int = 4, gpus: int = 0) -> Space:
    text = json.dumps({"schema_version": 1, "parameters": {**parameters}})
    return spaces.parse(text)({"cores": cores, "gpus": gpus})


@pytest.fixture(scope="session")
def space() -> Space:
    return space_of(PARAMETERS)


@pytest.fixture(scope="session")
def empty_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with Optuna's tables, which take half a second to make."""
    file = tmp_path_factory.mktemp("study") / "study.db"
    with record.opened(record.url_of(file)):
        return file


@pytest.fixture
def url(tmp_path: Path, empty_study: Path) -> Iterator[str]:
    """A storage without a study, whose writes are not waited for. One made where none is: see test_record.py."""

    def hasten(connection: sqlite3.Connection, _: object) -> None:
        connection.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", hasten)
    yield f"sqlite:///{shutil.copy(empty_study, tmp_path / 'study.db')}"
    sqlalchemy.event.remove(sqlalchemy.Engine, "connect", hasten)


def loader_bound(**known: Any) -> Surface:
    """Return a surface whose model is so fast that the loader is what counts."""
    return Surface(model_rate=60_000.0, **known)


def foreign(code: str) -> PipelineConfig:
    return PipelineConfig(loader=Foreign(code=code), finish="host", device_prefetch=0)


UNABLE = TrialFailure(kind=FailureKind.NOT_PLAIN, phase=Phase.BUILD, message="no arrays")


@dataclass(kw_only=True)
class Theirs(Surface):
    """A machine on which somebody else's code is as fast as the model alone, or has a share of its speed."""

    model_rate: float = 60_000.0
    share: float = 1.0
    compared: Sequence[Baseline] | None = (
        Baseline(name="theirs", config=foreign("theirs")),
        Baseline(name="unable", config=foreign("unable"), unable=UNABLE),
    )

    def true_rate(self, config: PipelineConfig) -> float:
        return self.share * self.model_rate if config.loader.is_foreign else super().true_rate(config)


def run(
    space: Space, surface: Surface, url: str | None = None, *, told: list[Event] | None = None,
    facts: Facts | None = None, accelerator: bool = True, beyond: bool = False, **chosen: Any,
) -> Searched:  # fmt: skip
    """Search a space over a surface; `told` gets the events, and `chosen` are settings.

    Without an accelerator, trainings race, and not loaders without the model. `beyond` names the space otherwise: in
    the default one, nothing is left to try after a race.
    """
    hears = (lambda event: None) if told is None else told.append
    here = dataclasses.replace(facts or surface.facts(), accelerator=accelerator)
    asked = Settings(clock=surface.clock, space="mine.yaml" if beyond else "default", storage=url)
    return study.run(space, surface, here, dataclasses.replace(asked, **chosen), hears)


@dataclass(kw_only=True)
class Changing(Surface):
    """A machine that is slower from the confirmation run on: others have taken some of it."""

    later: Mapping[str, Any]

    def before(self, config: PipelineConfig, proof: bool) -> None:
        if proof:
            vars(self).update(self.later)
