"""When a converted form pays: searches over the analytic surface, whose conversions take what they are told to."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from autopipe.measure.outcome import ConversionCost, Measurement, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.search import library, study
from autopipe.search.conclusion import Searched
from autopipe.search.measurer import Effort
from autopipe.search.settings import Settings
from tests.fakes.surface import Surface

SPACE = """
schema_version: 1
parameters:
  loader: [threads]
  threads.workers: [1, 2]
  storage: [files, array]
"""


@dataclass(kw_only=True)
class Converting(Surface):
    """A surface on which a sample takes `convert_seconds` to convert, all cores together."""

    convert_seconds: float = 0.001

    def measure(
        self, config: PipelineConfig, *, effort: Effort = Effort.SEARCH, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        outcome = super().measure(config, effort=effort, must_reach=must_reach)
        if config.storage == "files" or not isinstance(outcome, Measurement):
            return outcome
        shard = 10 * 2 * self.convert_seconds
        cost = ConversionCost(
            cut=2,
            samples=40,
            bytes=4000,
            workers=2,
            seconds=2 * shard,
            shard_samples=(10,) * 4,
            shard_seconds=(shard,) * 4,
        )
        return outcome.model_copy(update={"conversion": cost})


def searched(epochs: int | None, convert_seconds: float = 0.001) -> Searched:
    surface = Converting(cores=2, model_rate=60_000.0, noise=0.001, convert_seconds=convert_seconds)
    space = library.parse(SPACE, {"cores": 2, "gpus": 0})
    return study.run(space, surface, surface.facts(), Settings(clock=surface.clock, epochs=epochs, budget_seconds=None))


def test_a_conversion_that_pays_in_time_wins() -> None:
    ended = searched(epochs=50)
    assert ended.best_config is not None
    assert ended.best_config.storage == "array"
    (row,) = ended.result.paybacks
    assert row.epochs is not None
    assert 0 < row.epochs < 50
    assert not row.overruled


def test_one_that_pays_too_late_does_not_and_is_shown() -> None:
    ended = searched(epochs=2, convert_seconds=0.01)
    assert ended.best_config is not None
    assert ended.best_config.storage == "files"
    (row,) = ended.result.paybacks
    assert ended.result.images_per_second is not None
    assert row.rate.value > ended.result.images_per_second.value
    assert row.epochs is not None
    assert row.epochs > 2
    assert row.overruled


def test_the_figures_are_those_of_the_whole_set() -> None:
    ended = searched(epochs=50)
    (row,) = ended.result.paybacks
    samples = Surface().sample_count
    assert row.cut == 2
    assert row.convert_seconds.value == pytest.approx(samples * 0.001)
    assert row.bytes == samples * 100
    rival = max(
        each.outcome.images_per_second.value
        for each in ended.rows
        if each.config.storage == "files" and isinstance(each.outcome, Measurement)
    )
    assert row.saved_seconds == pytest.approx(samples / rival - samples / row.rate.value, rel=0.02)
    # Both ways begin with the same wait for the first batch, and no cache is filled.
    assert row.epochs == pytest.approx(row.convert_seconds.value / row.saved_seconds)


def test_without_known_epochs_the_fastest_wins_whatever_it_costs() -> None:
    ended = searched(epochs=None, convert_seconds=1.0)
    assert ended.best_config is not None
    assert ended.best_config.storage == "array"
    assert not ended.result.paybacks[0].overruled
