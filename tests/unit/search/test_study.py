"""The whole loop over the analytic surface, seeded: what wins, and what is proved. How it ends: test_budget.py."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from autopipe.measure.facts import Ceiling, Limits, WrappedDataset
from autopipe.measure.outcome import FailureKind, Measurement, Phase, Resources, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.reports import verdict
from autopipe.search.conclusion import Searched
from autopipe.search.feasible import candidates
from autopipe.search.measurer import Baseline
from autopipe.search.result import Event, TrialFinished, TrialStarted
from autopipe.search.settings import BLOCKS
from autopipe.search.space import Space, to_config
from benchmarks.machines import drawn, tuned
from tests.fakes.surface import Surface
from tests.unit.search.conftest import PARAMETERS, Changing, Theirs, foreign, loader_bound, run, some, space_of


def measured(ended: Searched) -> dict[str, float]:
    """Return the rates outside of the proof, by key."""
    rows = {row.key: row.outcome for row in ended.rows if row.block is None}
    return {key: each.images_per_second.value for key, each in rows.items() if isinstance(each, Measurement)}


@pytest.mark.parametrize("quirks", [1, 3, 5])
def test_the_winner_is_the_best_there_is_by_as_much_as_is_said(space: Space, quirks: int) -> None:
    told: list[Event] = []
    surface = loader_bound(quirks=quirks, seed=quirks)
    ended = run(space, surface, told=told, budget_seconds=150.0)
    result, best = ended.result, some(ended.best_config)
    top = max(map(surface.true_rate, candidates(space, surface.facts()).values()))
    assert surface.true_rate(best) >= 0.95 * top
    assert result.proved
    assert result.seconds <= 160.0
    assert [baseline.name for baseline in result.baselines] == ["keras", "tfdata"]
    for baseline in result.baselines:
        gain = some(result.contest(baseline))
        truth = surface.true_rate(best) / surface.true_rate(PipelineConfig.model_validate(baseline.config))
        assert gain.ratio == pytest.approx(truth, rel=0.06)
        assert gain.faster
    ran = {key: len(blocks) for key, blocks in some(ended.confirmation).rounds.items()}
    assert ran[best.key()] >= 3
    assert ran[result.baselines[0].key] <= 2  # of who is far behind, which the result says
    far = some(result.contest(result.baselines[0]))
    assert far.few
    assert far.low < far.ratio < some(far.high)
    assert abs(some(result.drift)) < 0.05
    rate = some(result.images_per_second)
    assert rate.low <= surface.true_rate(best) <= rate.high
    kinds = [type(event).__name__ for event in told]
    assert kinds[:3] == ["SpaceTrimmed", "StudyOpened", "Ceiling"]
    assert kinds.index("Stop") + 1 == kinds.index("ConfirmationStarted")
    finished = [event for event in told if isinstance(event, TrialFinished)]
    started = [event for event in told if isinstance(event, TrialStarted)]
    assert [event.number for event in started] == [event.number for event in finished] == list(range(len(started)))
    assert [event.origin for event in finished] == [row.origin for row in ended.rows]


def test_a_machine_that_became_slower_shows_in_the_baselines_and_noise_does_not(space: Space) -> None:
    slower = run(space, Changing(model_rate=60_000.0, later={"decode_seconds": 2 * Surface.decode_seconds}))
    assert slower.result.drift == pytest.approx(-0.4, abs=0.1)
    assert run(space, loader_bound(noise=0.12, seed=1)).result.drift == 0.0


def test_the_share_of_the_ceiling_is_read_side_by_side(space: Space) -> None:
    ended = run(space, Changing(model_rate=2000.0, later={"model_rate": 1000.0}))
    rate, share = some(ended.result.images_per_second), some(some(ended.confirmation).reached_share).value
    assert 0.95 <= share <= 1.0
    assert some(ended.result.winner).share_of_model == share
    # The figure beside it is that of the same rounds, though the model alone was twice as fast before.
    assert share * some(ended.result.ceiling).model_images_per_second.value == pytest.approx(rate.value)


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


@dataclass(kw_only=True)
class Near(Surface):
    """A machine on which one of its own is as fast as another, and somebody else's code is slower."""

    theirs: float
    model_rate: float = 60_000.0
    compared: Sequence[Baseline] | None = (Baseline(name="theirs", config=foreign("theirs")),)

    def true_rate(self, config: PipelineConfig) -> float:
        return self.theirs if config.loader.is_foreign else 3600.0


def test_the_rival_runs_until_the_winner_is_proved_against_it(space: Space) -> None:
    cases: list[tuple[int, float, float, float, int]] = [
        *((seed, 2000.0, 0.06, seconds, 3) for seed in (1, 2, 3) for seconds in (60.0, 240.0)),
        (5, 3100.0, 0.4, 240.0, 7),  # the rest of the budget goes into rounds
    ]
    for seed, theirs, noise, budget_seconds, rounds in cases:
        surface = Near(theirs=theirs, noise=noise, seed=seed)
        result = run(space, surface, budget_seconds=budget_seconds, trials=8).result
        gain = some(result.contest(result.baselines[0]))
        assert rounds <= gain.pairs <= BLOCKS[1]
        assert gain.faster or rounds > 3
        assert result.proved
        assert result.seconds <= 1.1 * budget_seconds


def test_hopeless_trials_end_early_and_the_proofs_never_do(space: Space) -> None:
    ended = run(space, loader_bound(quirks=1), budget_seconds=None, trials=20, patience=99)
    windows = [(row.block, len(row.outcome.windows)) for row in ended.rows if isinstance(row.outcome, Measurement)]
    assert 5 in [count for block, count in windows if block is None]
    assert {count for block, count in windows if block is not None} == {10}


def test_where_no_loader_runs_without_the_model_trials_race_and_failures_are_values(space: Space) -> None:
    class Mute(Surface):
        def loader_alone(self, config: PipelineConfig) -> float:
            self.now += 0.5
            return None  # type: ignore[return-value]  # as a measurer may

    surface = Mute(model_rate=60_000.0, quirks=1, fails=lambda config: config.loader.kind in ("threads", "keras"))
    ended = run(space, surface)
    assert ended.result.raced == ()
    best, keras = some(ended.best_config), ended.result.baselines[0]
    assert (best.kept.in_memory, best.loader.kind in ("processes", "tfdata"), ended.result.proved) == (True,) * 3
    assert (keras.images_per_second, some(keras.failure).kind) == (None, FailureKind.CRASHED)


@pytest.mark.parametrize("model", [None, "a digest"])
def test_a_wrapped_dataset_without_a_model_is_raced_by_its_loaders_alone(space: Space, model: str | None) -> None:
    surface, events = loader_bound(quirks=1), list[Event]()
    told = surface.facts()
    wrapped = WrappedDataset(as_it_is=PipelineConfig(loader=Wrapped()), choices={}, with_workers=True)
    alone = dataclasses.replace(told, workload=told.workload.model_copy(update={"wrapped": wrapped, "model": model}))
    ended = run(space, surface, facts=alone, told=events)
    assert (len(ended.result.raced) > 0) == (model is None)
    assert any(isinstance(each, Ceiling) for each in events) == (model is not None)
    assert some(ended.best_config).key() in measured(ended)


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
    assert some(surface.resources(best).peak_rss_bytes) <= most
    assert any("--max-workers" in reason for reason in ended.result.left_out)
    assert [baseline.images_per_second is not None for baseline in ended.result.baselines] == [True, True]


def test_few_epochs_do_not_pay_for_a_cache_that_many_do(space: Space) -> None:
    class Filled(Surface):
        def after(self, config: PipelineConfig, proof: bool, found: Measurement) -> Measurement:
            return found.model_copy(update={"cache_fill_seconds": 0.0})  # which counts before what is predicted

    costly: Any = {"model_rate": 60_000.0, "decode_seconds": 0.004, "sample_count": 50_000, "noise": 0.002}
    assert some(run(space, Filled(**costly), epochs=1, budget_seconds=None).best_config).kept.in_memory
    surface = Surface(**costly)
    assert some(run(space, surface, epochs=100, budget_seconds=None).best_config).kept.in_memory
    once = run(space, surface, epochs=1, budget_seconds=None)
    rows, steady = [row for row in once.rows if row.block is None and row.value is not None], measured(once)
    ratios = [some(row.value) / steady[row.key] for row in rows if row.config.kept.in_memory]
    assert 0 < max(ratios) < 0.5


def test_somebody_elses_code_is_compared_with_and_cannot_win(space: Space) -> None:
    ended = run(space, Theirs(), trials=12)
    theirs, unable = ended.result.baselines
    assert not some(ended.best_config).loader.is_foreign
    assert some(ended.result.contest(theirs)).ratio < 1
    assert (unable.images_per_second, unable.failure and unable.failure.message) == (None, "no arrays")


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
    for name, value in ("loader", "processes"), ("processes.workers", 2), ("keep", "none"), ("finish", "device"):
        space = space.only(name, [value])
    one = space.only("device_prefetch", [2]).only("devices", [1])
    ended = run(one, Unlasting(share=0.1), budget_seconds=None)
    assert not ended.result.proved
    said = "The winner failed in its confirmation run, and may fail again: out of memory in fill: too much"
    assert verdict.notes(ended.result) == [said]


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


def test_more_devices_are_measured_while_they_pay_and_winners_have_baselines() -> None:
    scarce: Any = {"model_rate": 900.0, "read_seconds": 1e-5, "decode_seconds": 1e-4}
    surface = Surface(**scarce, scaling=lambda devices: min(devices, 2))
    usual = surface.facts()
    virtual = dataclasses.replace(usual, gpus=8, workload=usual.workload.model_copy(update={"virtual_devices": 8}))
    ended = run(space_of({**PARAMETERS, "devices": [1, 2, 4, 8]}, gpus=8), surface, facts=virtual)
    assert (some(ended.best_config).devices, some(ended.result.ceiling).devices) == (2, 2)
    assert [each.devices for each in ended.result.devices] == [1, 2, 4, 8]
    names = [each.name for each in ended.result.baselines]
    assert names == ["keras, 2 virtual devices", "tfdata, 2 virtual devices"]
    assert [each.config["devices"] for each in ended.result.baselines] == [2, 2]
    assert all(each.images_per_second is not None for each in ended.result.baselines)
