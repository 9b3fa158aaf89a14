from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import optuna
import pytest

from autopipe.api import joint_study
from autopipe.core import digests
from autopipe.core.facts import Limits
from autopipe.errors import ConfigError, TrialError
from autopipe.search import studies
from autopipe.search.opening import open_record
from autopipe.search.record import CONCLUSION
from autopipe.search.settings import Settings
from autopipe.search.storage import open_storage
from autopipe.tuned.schema import Hardware
from tests.fakes.profiles import GIB, hardware


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(storage=f"journal:///{tmp_path}/studies.log", join=True)


def begin(settings: Settings, machine: Hardware, data: str = "d", *, over: bool = False) -> str:
    """Begin the study that such a machine would take part in, and return its name."""
    joint = joint_study.find(settings, "w", data, machine)
    study = optuna.create_study(
        storage=open_storage(settings.storage), study_name=joint.name, load_if_exists=True, direction="maximize"
    )
    request = joint_study.request_of(settings)
    study.set_user_attr("digests", {"workload": "w", "data": data, "hardware": joint.hardware, "request": request})
    if over:
        study.set_user_attr(CONCLUSION, "{}")
    return joint.name


@pytest.mark.parametrize(("storage", "got"), [(None, "none"), ("sqlite:////mnt/study.db", "'sqlite:////mnt/study.db'")])
def test_a_storage_of_ones_own_cannot_be_shared(storage: str | None, got: str) -> None:
    with pytest.raises(ConfigError, match=f"storage that all participants reach, but got {got}") as caught:
        joint_study.require_shared(Settings(storage=storage, join=True))
    assert "--storage or AUTOPIPE_STORAGE" in str(caught.value.hint)
    joint_study.require_shared(Settings(storage=storage))


def test_machines_that_are_alike_take_part_in_one_study(settings: Settings) -> None:
    name = begin(settings, hardware())
    joint = joint_study.find(settings, "w", "d", hardware(memory_bytes=8 * GIB - 2**20))
    assert joint.name == name
    assert joint.hardware == digests.canonical(hardware())
    assert joint.differing == ()


def test_another_machine_begins_its_own_and_is_told_why(settings: Settings) -> None:
    name = begin(settings, hardware())
    joint = joint_study.find(settings, "w", "d", hardware(cores=4))
    assert joint.name != name
    assert joint.differing == (f"`{name}` is of machines unlike this one: usable cores: 2 there, 4 here",)
    software = joint_study.find(settings, "w", "d", hardware(packages={"tensorflow": "2.22.0", "keras": "3.15.0"}))
    assert "tensorflow: 2.21 there, 2.22 here" in software.differing[0]


def test_a_study_of_another_version_is_left_alone_and_told_of(settings: Settings) -> None:
    name = begin(settings, hardware())
    study = optuna.load_study(storage=open_storage(settings.storage), study_name=name)
    later = {**study.user_attrs["digests"], "hardware": '{"cpu_model": "Imaginary", "sockets": 2}'}
    study.set_user_attr("digests", later)
    joint = joint_study.find(settings, "w", "d", hardware())
    assert joint.name != name
    assert joint.differing == (f"`{name}` was begun by another version of autopipe, which this one cannot read",)


def test_another_workload_has_nothing_to_do_with_it(settings: Settings) -> None:
    name = begin(settings, hardware())
    joint = joint_study.find(settings, "another", "d", hardware())
    assert (joint.name == name, joint.differing) == (False, ())


def test_a_study_that_goes_on_is_joined_by_those_who_ask_for_the_same_only(settings: Settings) -> None:
    begin(settings, hardware())
    asked = dataclasses.replace(settings, epochs=30, limits=Limits(only={"cache": ("none",)}))
    with pytest.raises(TrialError, match="epochs is None there, and 30 here; only cache is None there"):
        joint_study.find(asked, "w", "d", hardware())
    with pytest.raises(TrialError, match="data is 'd' there, and 'more' here"):
        joint_study.find(settings, "w", "more", hardware())
    own = dataclasses.replace(settings, budget_seconds=30.0, seed=7)  # each may have its own
    assert joint_study.find(own, "w", "d", hardware()).name == begin(settings, hardware())


def test_one_that_has_ended_is_joined_for_its_result_unless_something_else_or_a_new_one_is_asked_for(
    settings: Settings,
) -> None:
    name = begin(settings, hardware(), over=True)
    assert joint_study.find(settings, "w", "d", hardware()).name == name
    others = dataclasses.replace(settings, fresh=True), dataclasses.replace(settings, epochs=30)
    following = [joint_study.find(other, "w", "d", hardware()).name for other in others]
    assert following == [f"{name[:-1]}2", f"{name[:-1]}3"]
    fresh = dataclasses.replace(settings, fresh=True)
    begun = begin(fresh, hardware())
    assert joint_study.find(fresh, "w", "d", hardware()).name == begun  # that of two who begin anew at once


AtOnce: TypeAlias = Callable[[Hardware, Hardware], tuple[joint_study.Joint, joint_study.Joint]]


@pytest.fixture
def at_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AtOnce:
    """Let two machines look at the same moment, before either has made a study."""
    monkeypatch.setattr(joint_study, "_PAUSE_SECONDS", 0.0)

    def both(one: Hardware, other: Hardware) -> tuple[joint_study.Joint, joint_study.Joint]:
        first = joint_study.find(settings, "w", "d", one)
        look, looks = studies.shared, list[str]()

        def stale(url: str, workload: str) -> dict[str, studies.Shared]:
            looks.append(url)
            return look(url, workload) if len(looks) > 1 else {}

        with monkeypatch.context() as before:
            before.setattr(studies, "shared", stale)
            return first, joint_study.find(settings, "w", "d", other)

    return both


def test_of_machines_that_come_at_once_those_that_are_alike_take_part_in_one_study(at_once: AtOnce) -> None:
    later = hardware(memory_bytes=8 * GIB - 2**20, packages={"tensorflow": "2.21.1", "keras": "3.15.0"})
    first, second = at_once(hardware(), later)
    assert first == second
    assert first.hardware == digests.canonical(hardware())


def test_of_machines_that_come_at_once_another_begins_its_own(at_once: AtOnce) -> None:
    first, second = at_once(hardware(), hardware(memory_bytes=4 * GIB))
    assert first.name != second.name
    assert second.hardware == digests.canonical(hardware(memory_bytes=4 * GIB))


def test_a_study_that_nobody_opened_refuses_nobody_who_asks_for_something_else(settings: Settings) -> None:
    promised = joint_study.find(settings, "w", "d", hardware()).name
    other = joint_study.find(dataclasses.replace(settings, epochs=30), "w", "d", hardware()).name
    assert promised != other
    assert joint_study.find(settings, "w", "d", hardware()).name == promised


def test_a_study_whose_maker_died_at_once_is_passed_over(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_study, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(joint_study, "_TRIES", 2)
    made = joint_study.find(settings, "w", "d", hardware()).name
    optuna.delete_study(study_name=made, storage=open_storage(settings.storage))
    optuna.create_study(study_name=made, storage=open_storage(settings.storage))
    assert joint_study.find(settings, "w", "d", hardware()).name == f"{made[:-1]}2"


def test_a_promised_study_is_opened_as_any_and_can_be_removed(settings: Settings) -> None:
    assert settings.storage is not None
    joint = joint_study.find(settings, "w", "d", hardware())
    assert [each.name for each in studies.every(settings.storage)] == [joint.name]
    wanted = {"workload": "w", "hardware": joint.hardware}
    sampler = optuna.samplers.RandomSampler()
    open_record(settings.storage, joint.name, sampler=sampler, digests=wanted, fresh=False)
    found = studies.shared(settings.storage, "w")[joint.name]
    assert found.opened
    assert found.digests == {**wanted, "schema_version": "1"}
