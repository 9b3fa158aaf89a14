"""What other studies in a storage found."""

from __future__ import annotations

from pathlib import Path

from autopipe.pipeline.space import Space
from autopipe.search import study
from autopipe.search.record import best_elsewhere
from autopipe.search.settings import Settings
from tests.fakes.surface import Surface


def test_the_best_of_each_study_of_the_workload_is_found_and_of_no_other(space: Space, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    best = {}
    for name, workload, quirks in (("here", "w", 1), ("there", "w", 5), ("other", "v", 3)):
        surface = Surface(cores=4, model_rate=60_000.0, quirks=quirks, seed=1, noise=0.01)
        settings = Settings(
            trials=8,
            blocks=(0, 0),
            study_name=name,
            storage=url,
            digests={"workload": workload},
            clock=surface.clock,
        )
        ended = study.run(space, surface, surface.facts(), settings)
        values = {row.key: row.value for row in ended.rows if row.value is not None and row.feasible}
        best[name] = max(values, key=lambda key: values[key])
    assert [config.key() for config in best_elsewhere(url, "w")] == list(dict.fromkeys([best["there"], best["here"]]))
    assert [config.key() for config in best_elsewhere(url, "v")] == [best["other"]]


def test_no_storage_and_an_empty_one_hold_nothing(tmp_path: Path) -> None:
    assert best_elsewhere(None, "w") == []
    assert best_elsewhere(f"sqlite:///{tmp_path / 'study.db'}", "w") == []
