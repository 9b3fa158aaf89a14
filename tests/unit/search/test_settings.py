"""What a search is asked for, as it is written, kept, held and asked for again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from autopipe.artifact import artifact as files
from autopipe.errors import SpaceError
from autopipe.measure.facts import Limits
from autopipe.pipeline.config import SettingValue
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.search.searching import held
from autopipe.search.settings import Settings, as_options, request_of, retune_settings, simulation
from tests.fakes.profiles import artifact, profile
from tests.unit.search.conftest import space_of

ASKED = Settings(
    space="quick",
    trials=40,
    budget_seconds=600.0,
    seed=3,
    limits=Limits(memory_bytes=2**33, workers=8, only={"loader": ("threads",), "keep": ("none", "memory")}),
    convert=False,
    epochs=30,
    page_cache="cold",
    simulate=SimulatedAccelerator(0.224, 400),
    virtual_devices=2,
)
RETUNE = Settings(trials=15, budget_seconds=90.0, virtual_devices=0)


def again(
    asked: Settings = ASKED, told: Settings = RETUNE, given: Sequence[str] = (), folder: Path | None = None
) -> Settings:
    """Return what a retune asks for after a tune."""
    return retune_settings(request_of(asked), told, given, folder or Path())


def test_a_retune_asks_for_what_the_tune_asked_for_in_part_of_its_trials_and_time() -> None:
    once = again()
    assert dataclasses.replace(once, clock=ASKED.clock) == dataclasses.replace(ASKED, trials=20, budget_seconds=450.0)
    assert request_of(once, retune=True) == request_of(ASKED)  # and a retune of it asks for as much
    assert again(dataclasses.replace(ASKED, budget_seconds=None)).budget_seconds is None


def test_what_is_given_comes_first_and_only_is_united(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(workers=4, only={"keep": ("memory",)})
    told = dataclasses.replace(RETUNE, epochs=2, limits=limits, virtual_devices=4)
    found = again(told=told, given=("epochs", "workers", "trials"))
    assert (found.epochs, found.trials, found.budget_seconds) == (2, 15, 450.0)
    assert (found.limits.workers, found.limits.memory_bytes) == (4, 2**33)
    assert found.limits.only == {"loader": ("threads",), "keep": ("memory",)}
    whole = dataclasses.replace(ASKED, virtual_devices=0)
    monkeypatch.setenv("AUTOPIPE_VIRTUAL_DEVICES", "3")
    assert again(whole).virtual_devices == 3  # as the training that asks for a retune
    assert again(whole, told, ("virtual_devices",)).virtual_devices == 4


def test_what_was_asked_for_outlives_the_file(tmp_path: Path) -> None:
    for settings in (ASKED, Settings(budget_seconds=None, virtual_devices=0)):
        request = request_of(settings)
        path = files.write(artifact(profile(request=request)), tmp_path / "a.json")
        assert files.read(path).profiles[0].request == request


def test_it_is_told_as_a_command_line_says_it() -> None:
    assert as_options(Settings(virtual_devices=0)) == ""
    assert as_options(ASKED) == (
        "--space quick --max-memory 8589934592B --max-workers 8 --epochs 30 --simulate-step 224ms/400 "
        "--virtual-devices 2 --page-cache cold --seed 3 --no-convert --only loader=threads --only keep=none,memory"
    )
    said = as_options(
        Settings(virtual_devices=0, space="/my spaces/a.yaml", limits=Limits(only={"wrapped.a": ("b c",)}))
    )
    assert said == "--space '/my spaces/a.yaml' --only 'wrapped.a=b c'"


def test_a_space_of_ones_own_is_found_where_it_was_or_beside_the_artifact(tmp_path: Path) -> None:
    file, moved = tmp_path / "space.yaml", tmp_path / "moved"
    file.touch()
    moved.mkdir()
    asked = dataclasses.replace(ASKED, space=str(file))
    assert again(asked).space == str(file)
    file.rename(moved / "space.yaml")
    assert again(asked, folder=moved).space == str(moved / "space.yaml")
    with pytest.raises(SpaceError, match="not there any more") as error:
        again(asked, folder=tmp_path)
    assert "--space" in str(error.value.hint)
    assert again(asked, given=("space",), folder=tmp_path).space == "default"


def test_a_check_simulates_what_the_tune_simulated() -> None:
    settings = simulation(request_of(ASKED))
    assert (settings.simulate, settings.virtual_devices) == (ASKED.simulate, 2)
    assert (settings.epochs, settings.limits) == (None, Limits())


SPACE = {
    "loader": ["threads", "keras", "tfdata"],
    "threads.workers": {"range": [1, 8], "when": {"loader": "threads"}},
    "keras.workers": {"choices": [1, 2], "when": {"loader": "keras"}},
    "tfdata.num_parallel_calls": {"choices": ["auto"], "when": {"loader": "tfdata"}},
    "keep": ["none", "memory"],
}


@pytest.mark.parametrize(
    ("only", "found"),
    [
        ({"keep": ("none",)}, {"keep": ("none",)}),
        # A knob of any loader becomes that of each that has it,
        ({"loader.workers": (2,)}, {"threads.workers": (2,), "keras.workers": (2,)}),
        # and a loader that cannot have the value is left out.
        ({"loader.workers": (5,)}, {"threads.workers": (5,), "loader": ("threads", "tfdata")}),
        ({"loader": ("threads", "keras"), "loader.workers": (5,)}, {"loader": ("threads",), "threads.workers": (5,)}),
    ],
)
def test_a_knob_of_any_loader_is_held_for_each(
    only: dict[str, tuple[SettingValue, ...]], found: dict[str, tuple[SettingValue, ...]]
) -> None:
    assert held(space_of(SPACE), only) == found


def test_a_value_that_no_loader_can_have_is_refused_with_those_it_can() -> None:
    space = space_of(SPACE)
    for value, shown in (("2", "'2'"), (9, "9")):
        with pytest.raises(SpaceError, match=rf"`loader\.workers` cannot be {shown} in this space") as raised:
            held(space, {"loader.workers": (value,)})
        assert "keras.workers may be 1, 2" in str(raised.value.hint)
    with pytest.raises(SpaceError, match=r"Did you mean `loader\.workers`"):
        space.only("workers", (2,))
