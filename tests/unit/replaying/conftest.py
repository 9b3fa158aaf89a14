"""Tables of imaginary machines, over the small space of the searches' own tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from replaying import table
from replaying.table import Header, Table

from autopipe.pipeline.config import ModelSetup
from autopipe.pipeline.space import Space
from autopipe.search.feasible import trim
from tests.fakes.surface import Surface
from tests.unit.search.conftest import space as space


def surface(**changes: Any) -> Surface:
    """Return a machine where the loader counts: few configurations are near the best."""
    return Surface(**{"cores": 4, "model_rate": 60_000.0, "quirks": 1, "seed": 1, "noise": 0.01, **changes})


def header(machine: Surface, space: str = "test") -> Header:
    facts = machine.facts()
    return Header(
        name="surface",
        hardware="none",
        space=space,
        cores=facts.cores,
        accelerator=facts.accelerator,
        batch_size=facts.workload.batch_size,
        sample_count=facts.workload.samples,
        prefix_bytes=facts.workload.fixed_bytes,
        compact_bytes=facts.workload.compact_bytes,
        finished_bytes=facts.workload.finished_bytes,
        ceilings=list(machine.ceilings([ModelSetup()])),
        baselines={each.name: each.config.model_dump(mode="json") for each in machine.baselines()},
    )


def record(path: Path, space: Space, machine: Surface, name: str = "test", **how: Any) -> Table:
    return table.record(path, header(machine, name), trim(space, machine.facts()).candidates, machine, **how)


@pytest.fixture
def recorded(space: Space, tmp_path: Path) -> Table:
    """All of the space on such a machine; in the file `table.jsonl`."""
    return record(tmp_path / "table.jsonl", space, surface())
