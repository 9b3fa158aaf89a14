"""A short search over the analytic surface whose study is kept, and to which something happens in the middle."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from autopipe.pipeline.config import PipelineConfig
from autopipe.search import space as spaces
from autopipe.search import study
from autopipe.search.conclusion import Searched
from autopipe.search.result import Event
from autopipe.search.settings import Settings
from tests.fakes.surface import Surface

SPACE = """
schema_version: 1
parameters:
  loader: [threads]
  threads.workers: {range: [1, cores*2], when: {loader: threads}}
  threads.queue_size: {choices: [2, 8], when: {loader: threads}}
  keep: [none, memory]
  finish: [device, host]
"""
HARMED_AT = 4
"""The trial in which something happens: a seed."""


class Harmed(Surface):
    """Calls `harm` within one of its trials."""

    harm: Callable[[], None]

    def before(self, config: PipelineConfig, proof: bool) -> None:
        if len(self.measured) == HARMED_AT:
            self.harm()


def nothing(event: Event | None = None) -> None:
    """Do no harm."""


def run(surface: Surface, url: str | None, tell: Callable[[Event], None] = nothing, **asked: Any) -> Searched:
    plain = {"trials": 9, "budget_seconds": None, "finalists": 2, "blocks": (3, 3), "digests": {"workload": "w"}}
    settings = Settings(clock=surface.clock, storage=url, **{**plain, **asked})
    facts = dataclasses.replace(surface.facts(), accelerator=False)
    return study.run(spaces.parse(SPACE)({"cores": 4, "gpus": 0}), surface, facts, settings, tell)


def searched(
    url: str | None,
    harm: Callable[[], None] = nothing,
    on_event: Callable[[Event], None] = nothing,
    name: str = "autopipe",
) -> tuple[Searched, list[Event]]:
    surface = Harmed(quirks=1, model_rate=60_000.0)
    surface.harm = harm
    told: list[Event] = []

    def tell(event: Event) -> None:
        told.append(event)
        on_event(event)

    return run(surface, url, tell, study_name=name), told


def same(found: Searched, other: Searched) -> bool:
    values = [[row.value for row in each.rows] for each in (found, other)]
    return found.best_config == other.best_config and values[0] == values[1]
