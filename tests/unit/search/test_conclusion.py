"""What a result says of a search: conversions that pay, what each setting is worth, and why nothing was measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from autopipe.errors import SearchInterruptedError
from autopipe.hardware.machine import size_text
from autopipe.measure.facts import Limits
from autopipe.measure.outcome import ConversionCost, FailureKind, Measurement, Phase, Resources, TrialFailure
from autopipe.pipeline.config import PipelineConfig, from_config, to_config
from autopipe.pipeline.space import Space
from autopipe.search import library, study
from autopipe.search.conclusion import Searched, nothing_measured, only_change
from autopipe.search.measurer import Baseline, Effort
from autopipe.search.result import LeftOut, Reason, Result, Stop
from autopipe.search.settings import Settings
from tests.fakes.profiles import baseline, config, trial
from tests.fakes.surface import Surface
from tests.unit.search.conftest import run, some

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
    assert some(ended.best_config).storage == "array"
    (row,) = ended.result.paybacks
    assert row.epochs is not None
    assert 0 < row.epochs < 50
    assert not row.overruled


def test_one_that_pays_too_late_does_not_and_is_shown() -> None:
    ended = searched(epochs=2, convert_seconds=0.01)
    assert some(ended.best_config).storage == "files"
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
    assert some(ended.best_config).storage == "array"
    assert not ended.result.paybacks[0].overruled


SURFACE = Surface(model_rate=60_000.0, noise=0.01, seed=5)


@pytest.fixture(scope="module")
def ended(space: Space) -> Searched:
    return run(space, dataclasses.replace(SURFACE), trials=60, patience=60, budget_seconds=None)


def test_measured_effects_hold_the_true_ratio_nearly_always(ended: Searched) -> None:
    own = dict(from_config(some(ended.best_config)))
    held = told = 0
    for each in ended.result.effects:
        if not each.measured or each.setting == "loader":  # of another loader it is not said which
            continue
        other = to_config(
            {**own, each.setting: each.other, **({"cache_fraction": 1.0} if each.setting == "cache" else {})}
        )
        truth = SURFACE.true_rate(some(ended.best_config)) / SURFACE.true_rate(other)
        told += 1
        held += each.low * 0.97 <= truth <= (each.high or math.inf) * 1.03
    assert told >= 4
    assert held >= told - 1


def test_the_largest_effect_comes_first_and_each_is_of_one_setting(ended: Searched) -> None:
    ratios = [abs(1 - each.ratio) for each in ended.result.effects]
    assert ratios[0] >= ratios[-1]
    own = from_config(some(ended.best_config))
    assert all(own[each.setting] == each.value != each.other for each in ended.result.effects)
    assert "cache" in {each.setting for each in ended.result.effects}


@pytest.mark.parametrize(
    ("other", "change"),
    [
        ({"loader": "a", "a.workers": 2, "cache": "memory", "cache_fraction": 1.0}, ("cache", "memory")),
        ({"loader": "b", "b.queue": 1, "cache": "none"}, ("loader", "b")),
        ({"loader": "a", "a.workers": 4, "cache": "none"}, ("a.workers", 4)),
        ({"loader": "a", "a.workers": 4, "cache": "memory"}, None),
        ({"loader": "a", "a.workers": 2, "cache": "none"}, None),
    ],
)
def test_what_depends_on_another_setting_is_no_difference_of_its_own(
    other: dict[str, object], change: tuple[str, object] | None
) -> None:
    assert only_change({"loader": "a", "a.workers": 2, "cache": "none"}, other) == change  # type: ignore[arg-type]


CUT = Stop(reason=Reason.INTERRUPTED, message="Interrupted.")


class Failing(Surface):
    """A machine on which nothing runs."""

    def measure(
        self, config: PipelineConfig, *, effort: Effort = Effort.SEARCH, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        self.now += 1.0
        return TrialFailure(
            kind=FailureKind.UNSUPPORTED, phase=Phase.OPEN, message="Forked children hang.", hint="Use threads."
        )


@pytest.fixture(scope="module")
def result() -> Result:
    surface = Failing()
    space = library.load("quick", {"cores": 2, "gpus": 0})
    return study.run(space, surface, surface.facts(), Settings(clock=surface.clock, trials=3)).result


def test_the_reason_why_trials_failed_is_the_errors(result: Result) -> None:
    error = nothing_measured(result)
    assert result.winner is None
    assert error.message == (
        "No configuration could be measured: all of 3 trials failed. The reason of the last: Forked children hang."
    )
    assert error.hint == "Use threads."
    one = nothing_measured(result.model_copy(update={"trials": result.trials[:1]}))
    assert "the one trial failed. The reason: Forked" in one.message


def test_where_no_trial_ran_the_reasons_for_leaving_them_out_are_given(result: Result) -> None:
    drops = (
        LeftOut(reason="wrapped with use_multiprocessing: forks", configs=4),
        LeftOut(reason="none", configs=0),
    )
    none = result.model_copy(update={"trials": (), "left_out": drops})
    error = nothing_measured(none)
    assert error.message == (
        "No configuration could be measured, because none could be tried: wrapped with use_multiprocessing: forks."
    )
    assert "0 trials" not in error.message
    assert "more time" not in (error.hint or "")


def test_without_any_reason_it_is_said_why_the_search_ended(result: Result) -> None:
    none = result.model_copy(update={"trials": (), "left_out": ()})
    assert nothing_measured(none).message.endswith(f"none could be tried. {result.stop.message}")


def test_where_all_exceed_the_limits_it_is_said_what_the_least_took() -> None:
    surface, space = Surface(), library.load("quick", {"cores": 2, "gpus": 0})
    settings = Settings(clock=surface.clock, trials=4, limits=Limits(cpu_percent=1.0), blocks=(0, 0))
    found = study.run(space, surface, surface.facts(), settings).result
    assert found.winner is None
    error = nothing_measured(found)
    assert (
        "No configuration keeps the limits: 4 were measured and took more than is allowed, the least " in error.message
    )
    assert "% of a core" in error.message
    assert error.hint == "Allow more with --max-memory or --max-cpu."
    ended = nothing_measured(found.model_copy(update={"stop": CUT}))
    assert ended.message == (
        "The search was interrupted before any configuration could be measured that keeps the limits; "
        "4 took more than is allowed."
    )


def test_what_the_least_took_counts_the_part_of_a_cache_that_a_trial_did_not_fill() -> None:
    class Partly(Surface):
        """Each trial fills a quarter of its cache, and nothing else runs."""

        def baselines(self) -> Sequence[Baseline]:
            return []

        def resources(self, config: PipelineConfig) -> Resources:
            return Resources(peak_rss_bytes=2**30)

        def measure(
            self, config: PipelineConfig, *, effort: Effort = Effort.SEARCH, must_reach: float | None = None
        ) -> Measurement | TrialFailure:
            return super().measure(config, effort=effort).model_copy(update={"data_share": 0.25})

    surface, space = Partly(), library.load("quick", {"cores": 2, "gpus": 0})
    cache = surface.sample_count * surface.compact_bytes
    limits = Limits(memory_bytes=cache + 2**27, only={"cache": ("memory",)})
    found = study.run(space, surface, surface.facts(), Settings(clock=surface.clock, trials=3, limits=limits)).result
    assert found.winner is None
    assert nothing_measured(found).message.endswith(f"the least {size_text(2**30 + 0.75 * cache)} of memory.")


def test_an_interruption_before_the_first_trial_is_told_as_such(result: Result) -> None:
    error = nothing_measured(result.model_copy(update={"trials": (), "stop": CUT}))
    assert isinstance(error, SearchInterruptedError)
    assert error.message == "The search was interrupted before any configuration could be measured."


def test_an_interruption_after_trials_that_failed_says_why_they_did(result: Result) -> None:
    error = nothing_measured(result.model_copy(update={"stop": CUT}))
    assert isinstance(error, SearchInterruptedError)
    assert error.message == (
        "The search was interrupted before any configuration could be measured. Trials that failed: 3. "
        "The reason of the last: Forked children hang."
    )
    assert error.hint == "Use threads."


def test_that_the_former_was_not_measured_is_told_as_such(result: Result) -> None:
    former = baseline("the former configuration", 1.0).model_copy(update={"images_per_second": None, "incumbent": True})
    found = result.model_copy(update={"baselines": (former,), "trials": (trial(config(), 900.0),)})
    error = nothing_measured(found)
    assert error.message.startswith("The former configuration was not measured before the search ended")
    assert not isinstance(error, SearchInterruptedError)
    assert isinstance(nothing_measured(found.model_copy(update={"stop": CUT})), SearchInterruptedError)
