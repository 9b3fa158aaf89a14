from __future__ import annotations

from collections.abc import Sequence

import pytest

from autopipe.errors import SearchInterruptedError
from autopipe.hardware.machine import size_text
from autopipe.measure.facts import Limits
from autopipe.measure.outcome import FailureKind, Measurement, Phase, Resources, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.search import library, study
from autopipe.search.conclusion import nothing_measured
from autopipe.search.measurer import Baseline, Effort
from autopipe.search.result import LeftOut, Reason, Result, Stop
from autopipe.search.settings import Settings
from tests.fakes.profiles import baseline, config, trial
from tests.fakes.surface import Surface

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
