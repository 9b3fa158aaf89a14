"""What a result says of a search: conversions that pay, what each setting is worth, and why nothing was measured."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Any

import pytest

from autopipe.errors import SearchInterruptedError
from autopipe.hardware.machine import size_text
from autopipe.measure.facts import Facts, Limits, WrappedDataset
from autopipe.measure.outcome import ConversionCost, FailureKind, Measurement, Phase, Resources, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.reports import verdict
from autopipe.search import space as spaces
from autopipe.search.conclusion import Searched, only_change
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
        cost = ConversionCost(
            cut=2,
            samples=40,
            bytes=4000,
            workers=2,
            seconds=2 * shard,
            shard_samples=(10,) * 4,
            shard_seconds=(shard,) * 4,
        )
        return found.model_copy(update={"conversion": cost})


def searched(epochs: int | None, convert_seconds: float) -> Searched:
    space = space_of({"loader": ["threads"], "threads.workers": [1, 2], "keep": ["none", "array"]}, cores=2)
    surface = Converting(cores=2, model_rate=60_000.0, noise=0.001, convert_seconds=convert_seconds)
    return run(space, surface, epochs=epochs, budget_seconds=None)


@pytest.mark.parametrize(
    ("epochs", "convert_seconds", "storage"),
    [(50, 0.001, "array"), (2, 0.01, "files"), (None, 1.0, "array")],  # without known epochs whatever it costs
)
def test_a_conversion_wins_if_it_pays_or_is_shown(epochs: int | None, convert_seconds: float, storage: str) -> None:
    ended = searched(epochs, convert_seconds)
    assert some(ended.best_config).kept.form == storage
    (row,) = ended.result.paybacks
    assert row.overruled == (storage == "files")
    assert epochs is None or (0 < some(row.epochs) < epochs) == (storage == "array")
    assert storage == "array" or row.rate.value > some(ended.result.images_per_second).value


def test_the_figures_are_those_of_the_whole_set() -> None:
    ended = searched(50, 0.001)
    (row,) = ended.result.paybacks
    samples = Surface().sample_count
    assert row.cut == 2
    assert row.convert_seconds.value == pytest.approx(samples * 0.001)
    assert row.bytes == samples * 100
    rival = max(
        each.outcome.images_per_second.value
        for each in ended.rows
        if each.config.keep == "none" and isinstance(each.outcome, Measurement)
    )
    assert row.saved_seconds == pytest.approx(samples / rival - samples / row.rate.value, rel=0.02)
    # Both ways begin with the same wait for the first batch, and no cache is filled.
    assert row.epochs == pytest.approx(row.convert_seconds.value / row.saved_seconds)


SURFACE = Surface(model_rate=60_000.0, noise=0.01, seed=5)


@pytest.fixture(scope="module")
def ended(space: Space) -> Searched:
    return run(space, dataclasses.replace(SURFACE), accelerator=False, trials=40, budget_seconds=None)


def test_measured_effects_hold_the_true_ratio_nearly_always(ended: Searched) -> None:
    own = dict(from_config(some(ended.best_config)))
    held = told = 0
    for each in ended.result.effects:
        if each.setting == "loader":  # of another loader it is not said which
            continue
        other = to_config({**own, each.setting: each.other})
        truth = SURFACE.true_rate(some(ended.best_config)) / SURFACE.true_rate(other)
        told += 1
        held += each.low * 0.97 <= truth <= (each.high or math.inf) * 1.03
    assert told >= 3
    assert held >= told - 1


def test_the_largest_effect_comes_first_and_each_is_of_one_setting(ended: Searched) -> None:
    ratios = [abs(1 - each.ratio) for each in ended.result.effects]
    assert ratios[0] >= ratios[-1]
    own = from_config(some(ended.best_config))
    assert all(own[each.setting] == each.value != each.other for each in ended.result.effects)
    assert "keep" in {each.setting for each in ended.result.effects}


@pytest.mark.parametrize(
    ("other", "change"),
    [
        ({"loader": "a", "a.workers": 2, "keep": "memory:100%"}, ("keep", "memory:100%")),
        ({"loader": "b", "b.queue": 1, "keep": "none"}, ("loader", "b")),
        ({"loader": "b", "b.workers": 2, "keep": "none"}, ("loader", "b")),
        ({"loader": "b", "b.workers": 4, "keep": "none"}, None),
        ({"loader": "b", "b.workers": 2, "keep": "memory"}, None),
        ({"loader": "a", "a.workers": 4, "keep": "none"}, ("a.workers", 4)),
        ({"loader": "a", "a.workers": 4, "keep": "memory"}, None),
        ({"loader": "a", "a.workers": 2, "keep": "none"}, None),
    ],
)
def test_what_depends_on_a_setting_is_no_change(other: dict[str, object], change: tuple[str, object] | None) -> None:
    assert only_change({"loader": "a", "a.workers": 2, "keep": "none"}, other) == change  # type: ignore[arg-type]


# ---------------------------------------------------------------- a wrapped dataset

AS_IT_IS, AROUND = (
    PipelineConfig(loader=Wrapped.model_validate({"freed_memory": memory}), finish="host", device_prefetch=0)
    for memory in ("returned", "kept")
)


@dataclass(kw_only=True)
class Wrapping(Surface):
    """A machine on which a wrapped dataset is so many times as fast if freed memory is kept."""

    gain: float = 1.0

    def true_rate(self, config: PipelineConfig) -> float:
        return 1000.0 * (self.gain if config == AROUND else 1.0)

    def baselines(self) -> list[Baseline]:
        return [Baseline(name="the dataset as it is", config=AS_IT_IS)]

    def facts(self) -> Facts:
        wrapped = WrappedDataset(as_it_is=AS_IT_IS, choices={})
        found = super().facts()
        return dataclasses.replace(found, workload=found.workload.model_copy(update={"wrapped": wrapped}))


@pytest.mark.parametrize("blocks", [(3, 6), (0, 0)])
@pytest.mark.parametrize(("gain", "seed"), [(1.0, 0), (1.0, 1), (1.0, 2), (1.02, 3), (1.5, 4)])
def test_a_dataset_stays_as_it_is_unless_settings_gain_time(gain: float, seed: int, blocks: tuple[int, int]) -> None:
    space = of_wrapped({"freed_memory": ("returned", "kept")}).only("device_prefetch", [AS_IT_IS.device_prefetch])
    surface = Wrapping(gain=gain, seed=seed, model_rate=60_000.0, noise=0.01)
    ended = run(space, surface, budget_seconds=None, blocks=blocks)
    assert ended.best_config == (AROUND if gain > 1.1 else AS_IT_IS)
    if gain < 1.1 and blocks[1]:
        said = verdict.trust_text(ended.result)
        assert re.match(r"good: nothing was measurably faster than the dataset as it is in \d rounds", said)


@pytest.mark.parametrize("blocks", [(3, 6), (0, 0)])
def test_a_dataset_that_takes_too_much_memory_as_it_is_does_not_stay(blocks: tuple[int, int]) -> None:
    class Large(Wrapping):
        def resources(self, config: PipelineConfig) -> Resources:
            return Resources(peak_rss_bytes=(8 if config == AS_IT_IS else 1) * 2**30)

    space = of_wrapped({"freed_memory": ("returned", "kept")}).only("device_prefetch", [AS_IT_IS.device_prefetch])
    surface = Large(model_rate=60_000.0, noise=0.01)
    asked: dict[str, Any] = {"blocks": blocks, "limits": Limits(memory_bytes=2**32), "known": [AROUND]}
    assert run(space, surface, budget_seconds=None, **asked).best_config == AROUND


# ---------------------------------------------------------------- why nothing was measured

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


class Partly(Surface):
    """Each trial fills a quarter of its cache, and takes 1 GiB beside it."""

    def resources(self, config: PipelineConfig) -> Resources:
        return Resources(peak_rss_bytes=2**30)

    def after(self, config: PipelineConfig, proof: bool, found: Measurement) -> Measurement:
        return found.model_copy(update={"data_share": 0.25})


@pytest.fixture(scope="module")
def quick() -> Space:
    return spaces.load("quick", {"cores": 2, "gpus": 0})


@pytest.fixture(scope="module")
def failed(quick: Space) -> Result:
    return run(quick, Failing(), trials=3).result


@pytest.fixture(scope="module")
def one_failed(quick: Space) -> Result:
    return run(quick, Failing(compared=()), trials=1).result


@pytest.fixture(scope="module")
def exceeding(quick: Space) -> Result:
    return run(quick, Surface(), trials=4, limits=Limits(memory_bytes=2**30), blocks=(0, 0)).result


NOTHING = "No configuration could be measured"
UNTRIED = f"{NOTHING}, because none could be tried"
INTERRUPTED = "The search was interrupted before any configuration could be measured"
KEPT = "The former configuration was not measured before the search ended, so nothing is proved to be faster."
REASON, CHANGE = "The reason of the last: Forked children hang.", "Change what the reasons name"


@pytest.mark.parametrize(
    ("found", "update", "said", "hint"),
    [
        ("failed", {}, f"{NOTHING}: all of 3 trials failed. {REASON}", "Use threads."),
        ("one_failed", {}, f"{NOTHING}: the one trial failed. The reason: Forked children hang.", "Use threads."),
        ("failed", NONE_RAN, f"{UNTRIED}. 3 trials were allowed and have been used.", CHANGE),
        ("failed", NONE_RAN | {"left_out": FORKS}, f"{UNTRIED}: wrapped with use_multiprocessing: forks.", CHANGE),
        ("failed", NONE_RAN | CUT, f"{INTERRUPTED}.", None),
        ("failed", CUT, f"{INTERRUPTED}. Trials that failed: 3. {REASON}", "Use threads."),
        (
            "exceeding",
            {},
            "No configuration keeps the limits: 4 were measured and took more than is allowed, the least 1 GiB of "
            "memory.",
            "Allow more with --max-memory.",
        ),
        ("exceeding", CUT, f"{INTERRUPTED} that keeps the limits; 4 took more than is allowed.", None),
        ("failed", UNMEASURED, KEPT, "It stays"),
        ("failed", UNMEASURED | CUT, KEPT, "It stays"),
    ],
)
def test_why_nothing_was_measured_is_said(
    request: pytest.FixtureRequest, found: str, update: dict[str, Any], said: str, hint: str | None
) -> None:
    result: Result = request.getfixturevalue(found)
    assert result.winner is None
    error = nothing_measured(result.model_copy(update=update))
    assert error.message == said
    assert error.hint is None if hint is None else str(error.hint).startswith(hint)
    assert isinstance(error, SearchInterruptedError) == ("stop" in update)


def test_what_the_least_took_counts_the_part_of_a_cache_that_a_trial_did_not_fill(quick: Space) -> None:
    surface = Partly(compared=())
    cache = surface.sample_count * surface.compact_bytes
    limits = Limits(memory_bytes=cache + 2**27, only={"keep": ("memory",)})
    found = run(quick, surface, trials=3, limits=limits).result
    assert found.winner is None
    assert nothing_measured(found).message.endswith(f"the least {size_text(2**30 + 0.75 * cache)} of memory.")
