"""A study that an early version wrote, of seven trials and a confirmation in two blocks: gone on with, or refused.

`tests/assets/studies/early.sql` is the SQLite database as that version left it, as text, but for the digest of its
space, which that version made of Python's `repr`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from autopipe.core.outcome import Measurement
from autopipe.core.space import Space
from autopipe.errors import TrialError
from autopipe.search import library, studies, study
from autopipe.search.origin import Asker
from autopipe.search.settings import Settings
from autopipe.tuned.schema import Hardware
from tests.fakes.surface import Surface

EARLY = Path(__file__).parents[2] / "assets" / "studies" / "early.sql"
SPACE = """
schema_version: 1
parameters:
  loader: [threads, processes]
  threads.workers: {range: [1, 2*cores], log: true, when: {loader: threads}}
  threads.queue_size: {choices: [2, 8], when: {loader: threads}}
  processes.workers: {choices: [2, 4], when: {loader: processes}}
  processes.queue_size: {choices: [8], when: {loader: processes}}
  cache: [none, memory]
  finish: [device, host]
"""
MACHINE = Hardware(
    cpu_model="Imaginary 9000",
    cores=4,
    memory_bytes=2**34,
    storage="ext4",
    system="Linux 6.8",
    python="3.11.7",
    packages={"keras": "3.12.0"},
)
WORKLOAD = "0123456789abcdef/32/fedcba9876543210"
TRIALS, BLOCKS = 7, 2


@pytest.fixture
def url(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.executescript(EARLY.read_text())
    database.close()
    return f"sqlite:///{tmp_path}/study.db"


@pytest.fixture
def space() -> Space:
    return library.parse(SPACE, {"cores": 4, "gpus": 0})


def settings(url: str, surface: Surface, *, hardware: Hardware = MACHINE, trials: int = TRIALS) -> Settings:
    return Settings(
        storage=url,
        trials=trials,
        clock=surface.clock,
        blocks=(BLOCKS, BLOCKS),
        finalists=2,
        patience=99,
        digests={
            "workload": WORKLOAD,
            "data": "files=70 names=abc",
            "hardware": hardware.model_dump_json(),
        },
    )


def machine() -> Surface:
    return Surface(quirks=1, model_rate=60_000.0)


def test_a_study_of_an_early_version_is_gone_on_with(url: str, space: Space) -> None:
    surface = machine()
    result = study.run(space, surface, surface.facts(), settings(url, surface, trials=TRIALS + 2))
    searched = [row for row in result.trials if row.block is None]
    assert len(searched) == len({row.key for row in searched}) == TRIALS + 2
    assert all(isinstance(row.outcome, Measurement) and row.value is not None for row in result.trials[:TRIALS])
    assert [row.origin.asker for row in result.trials[:2]] == [Asker.BASELINE, Asker.BASELINE]
    measured = {key for key, _ in surface.measured}
    assert not {row.key for row in searched[2:TRIALS]} & measured - {row.key for row in result.trials if row.block}
    assert result.proved
    assert result.ceiling is not None


def test_one_that_was_over_is_not_run_again(url: str, space: Space) -> None:
    surface = machine()
    result = study.run(space, surface, surface.facts(), settings(url, surface))
    assert len([row for row in result.trials if row.block is None]) == TRIALS
    assert result.best_config is not None


def test_its_best_is_known_to_other_machines(url: str) -> None:
    (kept,) = studies.every(url, WORKLOAD)
    assert (kept.hardware, kept.best is not None) == (MACHINE.model_dump_json(), True)
    assert len(studies.best_elsewhere(url, WORKLOAD)) == 1


@pytest.mark.parametrize(
    ("other", "said"),
    [("space", "it has changed since the study began"), ("hardware", "packages {'keras': '3.12.0'} ")],
)
def test_one_of_another_space_or_machine_says_so_and_what_to_do(url: str, space: Space, other: str, said: str) -> None:
    surface = machine()
    newer = MACHINE.model_copy(update={"packages": {"keras": "3.15.0"}} if other == "hardware" else {})
    shipped = library.load("default", {"cores": 4, "gpus": 0}) if other == "space" else space
    with pytest.raises(TrialError, match=f"cannot be gone on with, because it is of another {other}") as refused:
        study.run(shipped, surface, surface.facts(), settings(url, surface, hardware=newer))
    assert f" ({other}: {said}" in refused.value.message
    assert refused.value.hint == "Use --fresh to begin anew, or another --out or --storage to keep both."
    assert surface.measured == []
