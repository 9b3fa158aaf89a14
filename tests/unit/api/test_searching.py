"""A search that has to wait for another one, or whose study is of something else; its finds are tested elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from pathlib import Path

import pytest

from autopipe.api import search_facts, searching
from autopipe.core.facts import Facts
from autopipe.devices.simulated import SimulatedAccelerator
from autopipe.errors import TrialError
from autopipe.hardware import memory
from autopipe.hardware.memory import Memory
from autopipe.search import lock
from autopipe.search.events import Event, SpaceTrimmed, StudyOpened, WaitingForMachine
from autopipe.search.rules import Rule
from autopipe.search.settings import Settings
from tests.fakes.facts import DESCRIBED
from tests.fakes.fleet import Trials, imaginary
from tests.fakes.profiles import hardware
from tests.fakes.surface import Surface


class Started(Trials):
    """Notes when something is started for the trials."""

    def __init__(self) -> None:
        super().__init__(Surface())
        self.told: list[object] = []

    def begin(self) -> None:
        self.told.append("started")


def test_what_is_free_is_looked_at_after_another_tune_was_waited_for_and_nothing_starts_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, runner, free = f"autopipe-test-{uuid.uuid4()}", Started(), [1 << 34]
    monkeypatch.setattr(searching, "MEASURING", name)
    monkeypatch.setattr(searching, "foreign_runner", lambda *_: runner)
    monkeypatch.setattr(memory, "detect", lambda: Memory(usable_bytes=1 << 34, available_bytes=free[0]))
    workload = DESCRIBED.model_copy(update={"fixed_bytes": 1 << 30})

    def look() -> Facts:
        return search_facts.facts_of(imaginary(), workload, Path.cwd())

    with contextlib.ExitStack() as another_tune:
        another_tune.enter_context(lock.held(name, pytest.fail))

        def listen(event: Event) -> None:
            runner.told.append(event)
            if isinstance(event, WaitingForMachine):
                free[0] = 1 << 20  # the other has left that
                another_tune.close()

        settings = Settings(space="quick", trials=2, blocks=(0, 0), budget_seconds=None, began=5.0)
        found = searching.search(runner, look, settings, listen, hardware=hardware())  # type: ignore[arg-type]  # plays it
    kinds = [each if isinstance(each, str) else type(each) for each in runner.told]
    assert kinds[0] is WaitingForMachine
    assert "started" in kinds[1 : kinds.index(StudyOpened)]
    trimmed = next(each for each in runner.told if isinstance(each, SpaceTrimmed))
    assert Rule.CACHE in {drop.rule for drop in trimmed.drops}
    assert found.settings.began is not None
    assert found.settings.began > 5.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"simulate": SimulatedAccelerator(0.005)},
            "of another simulated step (simulated step: '15ms' there, '5ms' here)",
        ),
        ({"simulate": SimulatedAccelerator(0.015, 400)}, "simulated step: '15ms' there, '15ms/400' here"),
        ({"page_cache": "cold"}, "of another page cache (page cache: nothing there, 'cold' here)"),
        ({"seed": 1, "epochs": 3, "budget_seconds": 60.0}, None),
    ],
    ids=["step", "step of a batch", "page cache", "what measures nothing else"],
)
def test_a_study_whose_trials_measured_something_else_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], said: str | None
) -> None:
    runner = Started()
    monkeypatch.setattr(searching, "MEASURING", f"autopipe-test-{uuid.uuid4()}")
    monkeypatch.setattr(searching, "foreign_runner", lambda *_: runner)

    def search(settings: Settings) -> None:
        searching.search(
            runner,  # type: ignore[arg-type]  # plays it
            lambda: search_facts.facts_of(imaginary(), DESCRIBED, Path.cwd(), simulated=True),
            settings,
            lambda event: None,
            hardware=hardware(),
        )

    url = f"sqlite:///{tmp_path}/study.db"
    first = Settings(space="quick", trials=2, blocks=(0, 0), storage=url, simulate=SimulatedAccelerator(0.015))
    search(first)
    other = dataclasses.replace(first, **change)  # type: ignore[arg-type]
    if said is None:
        search(other)
        return
    with pytest.raises(TrialError, match="cannot be gone on with") as refused:
        search(other)
    assert said in refused.value.message
