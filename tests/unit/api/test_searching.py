"""A search that has to wait for another one; what it finds then is tested elsewhere."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

import pytest

from autopipe.api import search_facts, searching
from autopipe.core.facts import Facts
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
