"""Which study a tune with `--join` takes part in."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import optuna
import pytest

from autopipe.errors import ConfigError
from autopipe.measure import facts, fingerprint
from autopipe.search import record, searching, trials
from autopipe.search.settings import Settings
from tests.fakes.profiles import GIB, hardware


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(storage=f"sqlite:///{tmp_path}/studies.db", join=True, digests={"workload": "w", "data": "d"})


def begin(settings: Settings, machine: fingerprint.Hardware, *, ended: bool = False) -> tuple[str, list[str]]:
    """Begin the study that such a machine takes part in; return its name, and why others are not joined."""
    told: list[trials.Event] = []
    joined = searching.joined(settings, machine, told.append)
    study = optuna.create_study(storage=joined.storage, study_name=joined.study_name, load_if_exists=True)
    study.set_user_attr("digests", dict(joined.digests))
    if ended:
        study.set_user_attr(record.ENDED, "2026-01-01")
    return joined.study_name, [each for event in told if isinstance(event, trials.NotJoined) for each in event.reasons]


@pytest.mark.parametrize(
    ("storage", "got"),
    [
        (None, "none"),
        ("sqlite:////mnt/study.db", "'sqlite:////mnt/study.db'"),
        ("grpc://host:13000", "'grpc://host:13000'"),
    ],
)
def test_a_storage_without_heartbeats_cannot_be_joined(storage: str | None, got: str) -> None:
    with pytest.raises(ConfigError, match=f"database that all machines reach, but got {got}") as caught:
        searching.require_joinable(Settings(storage=storage, join=True))
    assert "--storage or AUTOPIPE_STORAGE" in str(caught.value.hint)
    searching.require_joinable(Settings(storage=storage))
    searching.require_joinable(Settings(storage="postgresql+psycopg://me@host/db", join=True))


def test_machines_that_are_alike_take_part_in_one_study_even_at_the_same_moment(settings: Settings) -> None:
    machines = (
        hardware(),
        hardware(memory_bytes=8 * GIB - 2**20, packages={"keras": "3.15.0", "tensorflow": "2.21.1"}),
    )
    at_once = {searching.joined(settings, each, lambda event: None).study_name for each in machines}
    assert at_once == {begin(settings, hardware())[0]}
    own = dataclasses.replace(settings, budget_seconds=30.0, seed=7, trials=5)  # each may have its own
    assert begin(own, machines[1]) == (*at_once, [])


def test_another_machine_begins_its_own_and_is_told_why(settings: Settings) -> None:
    name, _ = begin(settings, hardware())
    other, reasons = begin(settings, hardware(cores=4))
    assert other != name
    assert reasons == [f"`{name}` is of another hardware (cores 2 there, 4 here)"]
    assert begin(settings, hardware(memory_bytes=4 * GIB))[0] not in (name, other)
    _, reasons = begin(settings, hardware(packages={"tensorflow": "2.22.0", "keras": "3.15.0"}))
    assert "'2.21'" in reasons[0]
    assert "'2.22'" in reasons[0]


def test_what_is_asked_for_something_else_begins_its_own_and_is_told_why(settings: Settings) -> None:
    name, _ = begin(settings, hardware())
    asked = dataclasses.replace(settings, epochs=30, limits=facts.Limits(only={"keep": ("none",)}))
    other, reasons = begin(asked, hardware())
    assert other != name
    assert "epochs nothing there, 30 here" in reasons[0]
    _, reasons = begin(dataclasses.replace(settings, digests={"workload": "w", "data": "more"}), hardware())
    assert "data ('d' there, 'more' here)" in reasons[0]


def test_another_workload_has_nothing_to_do_with_it(settings: Settings) -> None:
    name, _ = begin(settings, hardware())
    other, reasons = begin(dataclasses.replace(settings, digests={"workload": "v", "data": "d"}), hardware())
    assert (other == name, reasons) == (False, [])


def test_a_study_that_has_ended_is_joined_unless_a_new_one_is_asked_for(settings: Settings) -> None:
    fresh = dataclasses.replace(settings, fresh=True)
    name, _ = begin(settings, hardware())
    assert begin(fresh, hardware())[0] == name  # it has not ended
    assert begin(settings, hardware(), ended=True)[0] == name
    new, reasons = begin(fresh, hardware())
    assert (new, reasons) == (f"{name[:-1]}2", [])
    assert begin(fresh, hardware())[0] == new  # that of two that begin anew at once
    assert begin(settings, hardware())[0] == new
