"""The whole loop over the analytic surface, seeded: what wins, and what is proved against what. How a search ends:
test_budget.py.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from autopipe.measure import meter
from autopipe.measure.costs import bounds
from autopipe.measure.facts import Ceiling, Limits, WrappedDataset
from autopipe.measure.outcome import FailureKind, Measurement, Phase, Resources, TrialFailure
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.reports import verdict
from autopipe.search.conclusion import Searched
from autopipe.search.feasible import candidates
from autopipe.search.measurer import Baseline
from autopipe.search.result import ConfirmationStarted, Event, TrialFinished, TrialStarted
from autopipe.search.settings import BLOCKS
from autopipe.search.space import Space, to_config
from benchmarks.machines import drawn, tuned
from tests.fakes.ceilings import reads
from tests.fakes.surface import Surface
from tests.unit.search.conftest import PARAMETERS, Theirs, foreign, loader_bound, run, some, space_of


def measured(ended: Searched) -> dict[str, float]:
    """Return the rates outside of the proof, by key."""
    rows = {row.key: row.outcome for row in ended.rows if row.block is None}
    return {key: each.images_per_second.value for key, each in rows.items() if isinstance(each, Measurement)}


@pytest.mark.parametrize("quirks", [1, 3, 5])
def test_the_winner_is_within_a_few_percent_of_the_best_there_is(space: Space, quirks: int) -> None:
    surface = loader_bound(quirks=quirks, seed=quirks)
    ended = run(space, surface, budget_seconds=150.0)
    assert ended.result.proved
    top = max(map(surface.true_rate, candidates(space, surface.facts()).values()))
    assert surface.true_rate(some(ended.best_config)) >= 0.95 * top
    assert ended.result.seconds <= 160.0


def test_the_bound_of_a_converted_winner_is_found_again_without_the_facts_of_the_search() -> None:
    surface = loader_bound()
    told = surface.facts()
    cut = dataclasses.replace(told, workload=told.workload.model_copy(update={"cuts": {"tfrecord": {0: 1, 1: 1}}}))
    ended = run(space_of({**PARAMETERS, "keep": ["tfrecord"]}), surface, facts=cut, trials=6)
    assert some(ended.best_config).kept.form == "tfrecord"
    found = bounds(some(ended.result.ceiling), some(ended.best_config)).images_per_second
    assert found == some(ended.result.ceiling).bound_images_per_second


def test_each_baseline_is_beaten_by_about_what_it_really_is_and_the_winners_rate_holds_the_truth(space: Space) -> None:
    surface = loader_bound(quirks=3)
    ended = run(space, surface)
    assert [baseline.name for baseline in ended.result.baselines] == ["keras", "tfdata"]
    best = some(ended.best_config)
    for baseline in ended.result.baselines:
        gain = some(ended.result.contest(baseline))
        truth = surface.true_rate(best) / surface.true_rate(PipelineConfig.model_validate(baseline.config))
        assert gain.ratio == pytest.approx(truth, rel=0.05)
        assert gain.faster
    assert abs(some(ended.result.drift)) < 0.05
    blocks = [row for row in ended.rows if row.block is not None and row.key == best.key()]
    rates = [row.outcome.images_per_second.value for row in blocks if isinstance(row.outcome, Measurement)]
    rate = some(ended.result.images_per_second)
    assert min(rates) <= rate.value <= max(rates)
    assert rate.low <= surface.true_rate(best) <= rate.high


@dataclass(kw_only=True)
class Changing(Surface):
    """A machine that is slower from the confirmation run on: others have taken some of it."""

    later: Mapping[str, float]

    def before(self, config: PipelineConfig, proof: bool) -> None:
        if proof:
            vars(self).update(self.later)


def test_a_machine_that_became_slower_shows_in_the_baselines(space: Space) -> None:
    slower = run(space, Changing(model_rate=60_000.0, later={"decode_seconds": 2 * Surface.decode_seconds}))
    assert slower.result.drift == pytest.approx(-0.4, abs=0.1)


class Pausing(Surface):
    """A machine on which tf.data pauses at the end of some epochs, which no trial of the search has seen."""

    def after(self, config: PipelineConfig, proof: bool, found: Measurement) -> Measurement:
        if not proof or config.loader.kind != "tfdata":
            return found
        first, *others = found.windows
        windows = (first.model_copy(update={"seconds": 10 * first.seconds}), *others)
        return found.model_copy(update={"windows": windows, "images_per_second": meter.overall(windows)})


@dataclass(kw_only=True)
class Swaying(Surface):
    """A machine whose speed is another one in each trial, and the same all through it."""

    random: np.random.Generator

    def before(self, config: PipelineConfig, proof: bool) -> None:
        self.decode_seconds = Surface.decode_seconds * math.exp(self.random.normal(0.0, 0.1))


@pytest.mark.parametrize(
    "surface",
    [
        loader_bound(noise=0.12, seed=1),
        Pausing(model_rate=60_000.0, noise=0.02),
        # Of 24 seeds the ones that showed a drift by the windows of single trials.
        *(Swaying(model_rate=60_000.0, random=np.random.default_rng(seed)) for seed in (4, 6, 20)),
    ],
    ids=["noise", "pauses", "sways 4", "sways 6", "sways 20"],
)
def test_a_machine_that_is_not_slower_in_the_proof_shows_no_drift(space: Space, surface: Surface) -> None:
    assert run(space, surface).result.drift == 0.0


def test_the_share_of_the_ceiling_is_read_side_by_side(space: Space) -> None:
    ended = run(space, Changing(model_rate=2000.0, later={"model_rate": 1000.0}))
    rate, share = some(ended.result.images_per_second), some(some(ended.confirmation).reached_share).value
    assert 0.95 <= share <= 1.0
    assert some(ended.result.winner).share_of_model == share
    # The figure beside it is that of the same rounds, though the model alone was twice as fast before.
    assert share * some(ended.result.ceiling).model_images_per_second.value == pytest.approx(rate.value)


def test_what_was_measured_highest_is_in_the_proof_however_unlike_its_like(space: Space) -> None:
    told: list[Event] = []
    rates = measured(run(space, loader_bound(quirks=3, seed=3, noise=0.12), told=told, budget_seconds=None))
    proved = next(event for event in told if isinstance(event, ConfirmationStarted))
    assert set(sorted(rates, key=lambda key: rates[key])[-2:]) <= {config.key() for config in proved.configs}


def test_among_equals_the_cheapest_wins_even_if_others_looked_better(space: Space) -> None:
    surface = Surface(model_rate=500.0, seed=4)  # any two workers will do
    ended = run(space, surface, reached_share=2.0, trials=40, budget_seconds=None, patience=99)
    assert (some(ended.best_config).loader.worker_count() or 99) <= 2


@pytest.mark.parametrize("block", [1, 2])
def test_who_fails_in_the_proof_is_left_out_and_does_not_win(space: Space, block: int) -> None:
    proved: list[str] = []

    class Breaking(Surface):
        def before(self, config: PipelineConfig, proof: bool) -> TrialFailure | None:
            if proof and config.loader.kind in ("threads", "processes"):
                proved.append(config.key())
                if proved.count(proved[0]) >= block and config.key() == proved[0]:
                    return TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.FILL, message="too much")
            return None

    ended = run(space, Breaking(model_rate=500.0, seed=2), reached_share=2.0, trials=12, budget_seconds=None)
    assert ended.result.proved
    assert some(ended.best_config).key() != proved[0]
    assert proved.count(proved[0]) == block


def test_who_is_far_behind_runs_in_one_block_and_the_result_says_so(space: Space) -> None:
    ended = run(space, loader_bound(quirks=1))
    keras = next(each for each in ended.result.baselines if each.name == "keras")
    ran = {key: len(blocks) for key, blocks in some(ended.confirmation).rounds.items()}
    assert ran[some(ended.confirmation).winner] >= 3
    assert ran[keras.key] <= 2
    gain = some(ended.result.contest(keras))
    assert gain.few
    assert gain.low < gain.ratio < some(gain.high)


@dataclass(kw_only=True)
class Near(Surface):
    """A machine on which one of its own is as fast as another, and somebody else's code is slower."""

    theirs: float
    model_rate: float = 60_000.0
    compared: Sequence[Baseline] | None = (Baseline(name="theirs", config=foreign("theirs")),)

    def true_rate(self, config: PipelineConfig) -> float:
        return self.theirs if config.loader.is_foreign else 3600.0


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("budget_seconds", [60.0, 240.0])
def test_the_rival_runs_until_the_winner_is_proved_against_it(space: Space, seed: int, budget_seconds: float) -> None:
    result = run(space, Near(theirs=2000.0, noise=0.06, seed=seed), budget_seconds=budget_seconds, trials=8).result
    gain = some(result.contest(result.baselines[0]))
    assert gain.pairs >= 3
    assert gain.faster
    assert result.proved
    assert result.seconds <= 1.1 * budget_seconds


def test_the_rest_of_the_budget_goes_into_rounds_until_the_winner_is_proved(space: Space) -> None:
    result = run(space, Near(theirs=3100.0, noise=0.4, seed=5), budget_seconds=240.0, trials=8).result
    assert 6 < some(result.contest(result.baselines[0])).pairs <= BLOCKS[1]


def test_hopeless_trials_end_early_and_the_proofs_never_do(space: Space) -> None:
    ended = run(space, loader_bound(quirks=1), budget_seconds=None, trials=20, patience=99)
    windows = [(row.block, len(row.outcome.windows)) for row in ended.rows if isinstance(row.outcome, Measurement)]
    assert 5 in [count for block, count in windows if block is None]
    assert {count for block, count in windows if block is not None} == {10}


def test_a_repeat_is_one_more_measurement_of_the_same_point(space: Space) -> None:
    ended = run(space, loader_bound(noise=0.05))
    last = [row for row in ended.rows if row.key == ended.rows[-1].key]
    assert len(last) > 2
    raw = [row.outcome.images_per_second.value for row in last if isinstance(row.outcome, Measurement)]
    values = [row.value for row in last if row.value is not None]
    assert values[0] == raw[0]
    assert min(raw) < values[-1] < max(raw)


def test_failures_are_values_and_the_search_goes_on(space: Space) -> None:
    ended = run(space, loader_bound(fails=lambda config: config.loader.kind in ("threads", "keras")))
    assert some(ended.best_config).loader.kind in ("processes", "tfdata")
    keras = ended.result.baselines[0]
    assert keras.images_per_second is None
    assert isinstance(keras.failure, TrialFailure)


def test_where_no_loader_runs_without_the_model_trials_race(space: Space) -> None:
    class Mute(Surface):
        def loader_alone(self, config: PipelineConfig) -> float:
            self.now += 0.5
            return None  # type: ignore[return-value]  # as a measurer may

    ended = run(space, Mute(model_rate=60_000.0, quirks=1))
    assert ended.result.raced == ()
    assert some(ended.best_config).kept.in_memory
    assert ended.result.proved


@pytest.mark.parametrize("model", [None, "a digest"])
def test_a_wrapped_dataset_without_a_model_is_raced_by_its_loaders_alone(space: Space, model: str | None) -> None:
    surface = loader_bound(quirks=1)
    told = surface.facts()
    wrapped = WrappedDataset(as_it_is=PipelineConfig(loader=Wrapped()), choices={}, with_workers=True)
    alone = told.workload.model_copy(update={"wrapped": wrapped, "model": model})
    events: list[Event] = []
    ended = run(space, surface, facts=dataclasses.replace(told, workload=alone), told=events)
    assert (len(ended.result.raced) > 0) == (model is None)
    assert any(isinstance(each, Ceiling) for each in events) == (model is not None)
    assert some(ended.best_config).key() in measured(ended)


def test_a_race_that_the_time_has_cut_says_so(space: Space) -> None:
    stops = [
        run(space, loader_bound(quirks=1), accelerator=False, budget_seconds=seconds).result.stop.message
        for seconds in (20.0, 600.0)
    ]
    assert ["no other value was faster" in each for each in stops] == [False, True]


@pytest.mark.parametrize(("kind", "seed"), [("32/8", 5), ("32/8", 7), ("128/8", 20), ("128/8", 29), ("128/8", 36)])
def test_where_a_process_is_slow_to_start_the_time_goes_to_the_proof(kind: str, seed: int) -> None:
    found = tuned(drawn(kind, seed), 120.0)
    assert found.proved
    assert found.seconds <= 126.0
    assert found.share >= 0.9


def test_limits_hold_for_the_winner_and_not_for_baselines(space: Space) -> None:
    surface, most = loader_bound(quirks=1), 3 * 2**30
    limits = Limits(memory_bytes=most, workers=3, only={"loader": ("threads", "processes")})
    ended = run(space, surface, limits=limits)
    best = some(ended.best_config)
    assert best.loader.kind in ("threads", "processes")
    assert (best.loader.worker_count() or 99) <= 3
    assert (surface.resources(best).peak_rss_bytes or 0) <= most
    assert any("--max-workers" in reason for reason in ended.result.left_out)
    assert [baseline.images_per_second is not None for baseline in ended.result.baselines] == [True, True]


def test_few_epochs_do_not_pay_for_a_cache_that_many_do(space: Space) -> None:
    surface = loader_bound(decode_seconds=0.004, sample_count=50_000, noise=0.002)
    once = run(space, surface, epochs=1, budget_seconds=None)
    assert some(run(space, surface, epochs=100, budget_seconds=None).best_config).kept.in_memory
    scored = {row.key: row.value for row in once.rows if row.block is None and row.value is not None}
    steady = measured(once)
    cached = [row.key for row in once.rows if row.config.kept.in_memory and row.key in scored]
    assert cached
    assert all(scored[key] < 0.5 * steady[key] for key in cached)


def test_events_tell_the_story_in_order(space: Space) -> None:
    told: list[Event] = []
    ended = run(space, loader_bound(quirks=1), told=told, trials=7)
    kinds = [type(event).__name__ for event in told]
    assert kinds[:3] == ["SpaceTrimmed", "StudyOpened", "Ceiling"]
    assert kinds.index("Stop") + 1 == kinds.index("ConfirmationStarted")
    finished = [event for event in told if isinstance(event, TrialFinished)]
    started = [event for event in told if isinstance(event, TrialStarted)]
    assert [event.number for event in started] == [event.number for event in finished] == list(range(len(started)))
    assert [event.origin for event in finished] == [row.origin for row in ended.rows]


# ---------------------------------------------------------------- what has to be beaten


def test_somebody_elses_code_is_compared_with_and_cannot_win(space: Space) -> None:
    ended = run(space, Theirs(), trials=12)
    theirs, unable = ended.result.baselines
    assert not some(ended.best_config).loader.is_foreign
    assert some(ended.result.contest(theirs)).ratio < 1
    assert (unable.images_per_second, unable.failure and unable.failure.message) == (None, "no arrays")


def test_a_baseline_has_as_many_workers_as_the_measured_waits_make_useful(space: Space) -> None:
    def of_workers(useful: int) -> Baseline:
        return Baseline(name=f"{useful} workers", config=foreign(f"workers={useful}"))

    usual = Baseline(name="theirs", config=foreign("theirs"), with_workers=of_workers)
    surface = Theirs(compared=[usual], wait_seconds=4 * 0.00081)  # four times the work of all ops
    (theirs,) = run(space, surface, trials=4).result.baselines
    assert theirs.name == f"{5 * surface.cores} workers"
    assert theirs.images_per_second is not None


def test_of_other_peoples_code_the_two_fastest_are_proved_against_and_others_have_a_trial(space: Space) -> None:
    rates = {"slow": 100.0, "best": 400.0, "next": 300.0, "last": 50.0}

    class Many(Surface):
        def true_rate(self, config: PipelineConfig) -> float:
            return rates[str(config.loader.model_dump()["code"])] if config.loader.is_foreign else 4000.0

    compared = [Baseline(name=name, config=foreign(name)) for name in rates]
    ended = run(space, Many(model_rate=60_000.0, compared=compared), trials=12)
    assert [each.name for each in ended.result.baselines if ended.result.contest(each) is not None] == ["best", "next"]
    assert all(each.images_per_second is not None for each in ended.result.baselines)


class Unlasting(Theirs):
    """A machine on which whatever is not somebody else's code fails in the confirmation run."""

    def before(self, config: PipelineConfig, proof: bool) -> TrialFailure | None:
        if proof and not config.loader.is_foreign:
            self.now += 1.0
            return TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.FILL, message="too much")
        return None


def test_where_all_fail_in_the_proof_another_is_the_best_and_baselines_do_not_run_on_alone(space: Space) -> None:
    ended = run(space, Unlasting(share=0.1), accelerator=False, trials=12, budget_seconds=None)
    blocks = [row for row in ended.rows if row.block is not None]
    assert {row.block for row in blocks} == {0}
    failed = {row.key for row in blocks if isinstance(row.outcome, TrialFailure)}
    assert failed
    assert not ended.result.proved
    assert some(ended.best_config).key() not in failed
    assert not [each for each in verdict.notes(ended.result) if "failed in its confirmation" in each]


def test_the_only_one_that_there_is_stays_the_best_where_it_fails_in_the_proof_and_that_is_told(space: Space) -> None:
    only = space.only("loader", ["processes"]).only("processes.workers", [2]).only("keep", ["none"])
    one = only.only("finish", ["device"]).only("device_prefetch", [2]).only("devices", [1])
    ended = run(one, Unlasting(share=0.1), budget_seconds=None)
    assert not ended.result.proved
    assert verdict.notes(ended.result) == [
        "The winner failed in its confirmation run, and may fail again: out of memory in fill: too much"
    ]


def test_who_has_to_be_beaten_may_win_with_more_workers_than_are_of_use(space: Space) -> None:
    former = to_config({"loader": "threads", "threads.workers": 16, "threads.queue_size": 8})

    class Retuned(Surface):
        def true_rate(self, config: PipelineConfig) -> float:
            return super().true_rate(config) * (1.0 if config == former else 0.01)

    surface = Retuned(model_rate=60_000.0, compared=[Baseline(name="former", config=former, required=True)])
    assert run(space, surface).best_config == former
    assert run(space, surface, limits=Limits(workers=8)).best_config not in (None, former)


@pytest.mark.parametrize("accelerator", [True, False])
def test_where_as_many_workers_as_cores_take_too_much_memory_fewer_are_tried(space: Space, accelerator: bool) -> None:
    class Hungry(Surface):
        def resources(self, config: PipelineConfig) -> Resources:
            return Resources(peak_rss_bytes=(1 + (config.loader.worker_count() or self.cores)) * 2**30)

    surface, limits = Hungry(model_rate=60_000.0, compared=()), Limits(memory_bytes=int(3.5 * 2**30))
    ended = run(space.only("loader", ["threads", "processes"]), surface, limits=limits, accelerator=accelerator)
    assert some(ended.best_config).loader.worker_count() == 2


@pytest.mark.parametrize("accelerator", [True, False])
def test_what_an_artifact_holds_runs_before_a_race_which_still_tries_its_best(space: Space, accelerator: bool) -> None:
    former = to_config({"loader": "threads", "threads.workers": 1, "threads.queue_size": 2})
    surface = loader_bound(compared=[Baseline(name="former", config=former, required=True, incumbent=True)])
    ended = run(space, surface, accelerator=accelerator, budget_seconds=60.0)
    assert ended.rows[0].config == former
    assert [each.images_per_second is not None for each in ended.result.baselines] == [True]
    assert ended.best_config != former


# ---------------------------------------------------------------- devices, and reads that wait


@dataclass(kw_only=True)
class Far(Surface):
    """A machine whose reads wait."""

    latency_seconds: float = 0.01

    def ceiling(self, setup: ModelSetup) -> Ceiling:
        waiting = reads(*(count / self.latency_seconds for count in (1, 4, 16)))
        return super().ceiling(setup).model_copy(update={"reads": waiting})


@pytest.mark.parametrize("machine", [Surface, Far])
def test_more_devices_are_measured_while_they_pay_and_winners_have_baselines(machine: Callable[..., Surface]) -> None:
    scarce = {"model_rate": 900.0, "read_seconds": 1e-5, "decode_seconds": 1e-4}
    surface = machine(**scarce, scaling=lambda devices: min(devices, 2))
    usual = surface.facts()
    virtual = dataclasses.replace(usual, gpus=8, workload=usual.workload.model_copy(update={"virtual_devices": 8}))
    ended = run(space_of({**PARAMETERS, "devices": [1, 2, 4, 8]}, gpus=8), surface, facts=virtual)
    ceiling = some(ended.result.ceiling)
    assert (some(ended.best_config).devices, ceiling.devices, ceiling.reads is None) == (2, 2, machine is Surface)
    assert [each.devices for each in ended.result.devices] == [1, 2, 4, 8]
    names = [each.name for each in ended.result.baselines]
    assert names == ["keras, 2 virtual devices", "tfdata, 2 virtual devices"]
    assert [each.config["devices"] for each in ended.result.baselines] == [2, 2]
    assert all(each.images_per_second is not None for each in ended.result.baselines)
