"""What a result says of a search: conversions that pay, what each setting is worth, and why nothing was measured."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from autopipe.errors import SearchInterruptedError
from autopipe.measure.facts import Facts, Limits, WrappedDataset
from autopipe.measure.outcome import ConversionCost, FailureKind, Measurement, Phase, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.reports import verdict
from autopipe.search import space as spaces
from autopipe.search.measurer import Baseline
from autopipe.search.result import Reason, Result, Stop, nothing_measured
from autopipe.search.space import Space, from_config, of_wrapped, to_config
from tests.fakes.profiles import baseline, config, trial
from tests.fakes.surface import Surface
from tests.unit.search.conftest import run, some, space_of


@dataclass(kw_only=True)
class Converting(Surface):
    """A surface on which a sample takes `convert_seconds` to convert, all cores together."""

    convert_seconds: float = 0.001

    def after(self, config: PipelineConfig, proof: bool, found: Measurement) -> Measurement:
        if config.keep == "none":
            return found
        shard = 10 * 2 * self.convert_seconds
        shards: dict[str, Any] = {"shard_samples": (10,) * 4, "shard_seconds": (shard,) * 4}
        cost = ConversionCost(cut=2, samples=40, bytes=4000, workers=2, seconds=2 * shard, **shards)
        return found.model_copy(update={"conversion": cost})


def test_a_conversion_wins_if_it_pays_or_is_shown_with_figures_of_the_whole_set() -> None:
    cases: list[tuple[int | None, float, str]] = [(50, 0.001, "array"), (2, 0.01, "files"), (None, 1.0, "array")]
    for epochs, convert_seconds, storage in cases:
        space = space_of({"loader": ["threads"], "threads.workers": [1, 2], "keep": ["none", "array"]}, cores=2)
        surface = Converting(cores=2, model_rate=60_000.0, noise=0.001, convert_seconds=convert_seconds)
        ended = run(space, surface, epochs=epochs, budget_seconds=None)
        assert some(ended.best_config).kept.form == storage
        (row,) = ended.result.paybacks
        assert row.overruled == (storage == "files")
        assert epochs is None or (0 < some(row.epochs) < epochs) == (storage == "array")
        assert storage == "array" or row.rate.value > some(ended.result.images_per_second).value
        samples = surface.sample_count
        assert (row.cut, row.bytes) == (2, samples * 100)
        assert row.convert_seconds.value == pytest.approx(samples * convert_seconds)
        plain = [each.outcome for each in ended.rows if each.config.keep == "none"]
        rival = max(each.images_per_second.value for each in plain if isinstance(each, Measurement))
        if epochs == 50:  # both ways begin with the same wait for the first batch, and no cache is filled
            assert row.saved_seconds == pytest.approx(samples / rival - samples / row.rate.value, rel=0.02)
            assert row.epochs == pytest.approx(row.convert_seconds.value / row.saved_seconds)


def test_measured_effects_are_of_one_setting_and_hold_the_true_ratio_nearly_always(space: Space) -> None:
    surface = Surface(model_rate=60_000.0, noise=0.01, seed=5)
    ended = run(space, surface, accelerator=False, trials=40, budget_seconds=None)
    effects, best = ended.result.effects, some(ended.best_config)
    own = dict(from_config(best))
    assert all(own[each.setting] == each.value != each.other for each in effects)
    assert "keep" in {each.setting for each in effects}
    assert abs(1 - effects[0].ratio) >= abs(1 - effects[-1].ratio)  # the largest comes first
    held = []
    for each in effects:
        if each.setting != "loader":  # of another loader it is not said which
            truth = surface.true_rate(best) / surface.true_rate(to_config({**own, each.setting: each.other}))
            held.append(each.low * 0.97 <= truth <= (each.high or math.inf) * 1.03)
    assert len(held) >= 3
    assert held.count(False) <= 1


AS_IT_IS, AROUND = (
    PipelineConfig(loader=Wrapped.model_validate({"freed_memory": memory}), finish="host", device_prefetch=0)
    for memory in ("returned", "kept")
)
FREED = of_wrapped({"freed_memory": ("returned", "kept")}).only("device_prefetch", [AS_IT_IS.device_prefetch])


@dataclass(kw_only=True)
class Wrapping(Surface):
    """A machine on which a wrapped dataset is so many times as fast if freed memory is kept."""

    gain: float = 1.0
    compared: Sequence[Baseline] | None = (Baseline(name="the dataset as it is", config=AS_IT_IS),)

    def true_rate(self, config: PipelineConfig) -> float:
        return 1000.0 * (self.gain if config == AROUND else 1.0)

    def facts(self) -> Facts:
        wrapped = WrappedDataset(as_it_is=AS_IT_IS, choices={})
        found = super().facts()
        return dataclasses.replace(found, workload=found.workload.model_copy(update={"wrapped": wrapped}))


@pytest.mark.parametrize("blocks", [(3, 6), (0, 0)])
@pytest.mark.parametrize(("gain", "seed"), [(1.0, 0), (1.0, 1), (1.0, 2), (1.02, 3), (1.5, 4)])
def test_a_dataset_stays_as_it_is_unless_settings_gain_time(gain: float, seed: int, blocks: tuple[int, int]) -> None:
    surface = Wrapping(gain=gain, seed=seed, model_rate=60_000.0, noise=0.01)
    ended = run(FREED, surface, budget_seconds=None, blocks=blocks)
    assert ended.best_config == (AROUND if gain > 1.1 else AS_IT_IS)
    if gain < 1.1 and blocks[1]:
        said = verdict.trust_text(ended.result)
        assert re.match(r"good: nothing was measurably faster than the dataset as it is in \d rounds", said)


CUT = {"stop": Stop(reason=Reason.INTERRUPTED, message="Interrupted.")}
NONE_RAN: dict[str, Any] = {"trials": (), "left_out": {}}
FORKS = {"wrapped with use_multiprocessing: forks": 4, "none": 0}
FORMER = baseline("the former configuration", 1.0).model_copy(update={"images_per_second": None, "incumbent": True})
UNMEASURED = {"baselines": (FORMER,), "trials": (trial(config(), 900.0),)}


class Failing(Surface):
    """A machine on which nothing runs."""

    def before(self, config: PipelineConfig, proof: bool) -> TrialFailure:
        self.now += 1.0
        hang = "Forked children hang."
        return TrialFailure(kind=FailureKind.UNSUPPORTED, phase=Phase.OPEN, message=hang, hint="Use threads.")


LIMITS = "No configuration keeps the limits: 4 were measured and took more than is allowed"
NOTHING = "No configuration could be measured"
UNTRIED = f"{NOTHING}, because none could be tried"
INTERRUPTED = "The search was interrupted before any configuration could be measured"
KEPT = "The former configuration was not measured before the search ended, so nothing is proved to be faster."
REASON, CHANGE = "The reason of the last: Forked children hang.", "Change what the reasons name"


def test_why_nothing_was_measured_is_said() -> None:
    quick = spaces.load("quick", {"cores": 2, "gpus": 0})
    failed = run(quick, Failing(), trials=3).result
    one_failed = run(quick, Failing(compared=()), trials=1).result
    exceeding = run(quick, Surface(), trials=4, limits=Limits(memory_bytes=2**30), blocks=(0, 0)).result
    cases: list[tuple[Result, dict[str, Any], str, str | None]] = [
        (failed, {}, f"{NOTHING}: all of 3 trials failed. {REASON}", "Use threads."),
        (one_failed, {}, f"{NOTHING}: the one trial failed. The reason: Forked children hang.", "Use threads."),
        (failed, NONE_RAN, f"{UNTRIED}. 3 trials were allowed and have been used.", CHANGE),
        (failed, NONE_RAN | {"left_out": FORKS}, f"{UNTRIED}: wrapped with use_multiprocessing: forks.", CHANGE),
        (failed, NONE_RAN | CUT, f"{INTERRUPTED}.", None),
        (failed, CUT, f"{INTERRUPTED}. Trials that failed: 3. {REASON}", "Use threads."),
        (exceeding, {}, f"{LIMITS}, the least 1 GiB of memory.", "Allow more with --max-memory."),
        (exceeding, CUT, f"{INTERRUPTED} that keeps the limits; 4 took more than is allowed.", None),
        (failed, UNMEASURED, KEPT, "It stays"),
        (failed, UNMEASURED | CUT, KEPT, "It stays"),
    ]
    for found, update, said, hint in cases:
        error = nothing_measured(found.model_copy(update=update))
        assert (error.message, found.winner) == (said, None)
        assert error.hint is None if hint is None else str(error.hint).startswith(hint)
        assert isinstance(error, SearchInterruptedError) == ("stop" in update)
