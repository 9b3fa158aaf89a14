"""A short search over the analytic surface whose study is kept, and to which something happens in the middle."""

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
HARMED_AT = 4  # the trial in which something happens: a seed


class Harmed(Surface):
    """Calls `harm` within one of its trials."""

    harm: Callable[[], None]

    def before(self, config: PipelineConfig, proof: bool) -> None:
        if len(self.measured) == HARMED_AT:
            self.harm()


def nothing(event: Event | None = None) -> None:
    """Do no harm."""


def run(surface: Surface, url: str | None, tell: Callable[[Event], None] = nothing, **asked: Any) -> Searched:
    asked |= {"trials": 9, "budget_seconds": None, "finalists": 2, "blocks": (3, 3), "digests": {"workload": "w"}}
    settings, facts = Settings(clock=surface.clock, storage=url, **asked), surface.facts()
    space = spaces.parse(SPACE)({"cores": 4, "gpus": 0})
    return study.run(space, surface, dataclasses.replace(facts, accelerator=False), settings, tell)


def searched(
    url: str | None, harm: Callable[[], None] = nothing, name: str = "autopipe"
) -> tuple[Searched, list[Event]]:
    surface, told = Harmed(quirks=1, model_rate=60_000.0), list[Event]()
    surface.harm = harm
    return run(surface, url, told.append, study_name=name), told


def same(*found: Searched) -> bool:
    one, other = ([each.best_config, *(row.value for row in each.rows)] for each in found)
    return one == other
