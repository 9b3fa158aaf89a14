"""The whole loop over the analytic surface, seeded. Crashes of the process: tests/integration/test_search_resume.py."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from optuna.samplers import RandomSampler

from autopipe.errors import TrialError
from autopipe.measure.costs import bounds
from autopipe.measure.facts import Ceiling, Facts, Limits, ReadCosts, ReadRung
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.pipeline.config import ModelSetup, Params, PipelineConfig, Value, to_config
from autopipe.pipeline.loaders.threads import Threads
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.pipeline.space import Space
from autopipe.reports import verdict
from autopipe.search import budget, library, study
from autopipe.search.conclusion import Searched
from autopipe.search.feasible import trim
from autopipe.search.measurer import Baseline, Effort
from autopipe.search.result import Reason
from autopipe.search.settings import Settings
from autopipe.search.surrogate import Sampler
from autopipe.search.trials import (
    AskedBy,
    Asker,
    BudgetPlanned,
    CeilingMeasured,
    ConfirmationStarted,
    Event,
    SearchStopped,
    SpaceTrimmed,
    StudyOpened,
    TrialFinished,
    TrialStarted,
)
from tests.fakes.surface import Surface
from tests.unit.search.conftest import SPACE, session_of, some


def settings(surface: Surface, **chosen: object) -> Settings:
    return dataclasses.replace(Settings(clock=surface.clock), **chosen)  # type: ignore[arg-type]


def run(space: Space, surface: Surface, url: str | None = None, **chosen: object) -> Searched:
    return study.run(space, surface, surface.facts(), settings(surface, storage=url, **chosen))


def top(space: Space, surface: Surface) -> float:
    return max(surface.true_rate(each.config) for each in trim(space, surface.facts()).candidates)


def fed_by_four(*, quirks: int = 0, seed: int = 0) -> Surface:
    """A model so fast that the loader is what counts."""
    return Surface(quirks=quirks, seed=seed, model_rate=60_000.0)


@pytest.mark.parametrize("quirks", [1, 3, 5])
def test_the_winner_is_within_a_few_percent_of_the_best_there_is(space: Space, quirks: int) -> None:
    surface = Surface(quirks=quirks, seed=quirks, model_rate=60_000.0)
    ended = run(space, surface, budget_seconds=150.0)
    assert ended.result.proved
    assert surface.true_rate(some(ended.best_config)) >= 0.95 * top(space, surface)
    assert ended.result.seconds <= 160.0


def test_the_bound_of_a_converted_winner_is_found_again_without_the_facts_of_the_search() -> None:
    surface = fed_by_four()
    told = surface.facts()
    described = told.workload.model_copy(update={"cuts": {"tfrecord": {0: 1, 1: 1}}})
    converted = library.parse(SPACE.replace("storage: [files]", "storage: [tfrecord]"), {"cores": 4, "gpus": 0})
    chosen = settings(surface, trials=6, limits=Limits(only={"cache": ("none",)}))
    ended = study.run(converted, surface, dataclasses.replace(told, workload=described), chosen)
    assert some(ended.best_config).storage == "tfrecord"
    found = bounds(some(ended.result.ceiling), some(ended.best_config)).images_per_second
    assert found == some(ended.result.ceiling).bound_images_per_second


def test_each_baseline_is_beaten_by_about_what_it_really_is_and_the_winners_rate_holds_the_truth(space: Space) -> None:
    surface = Surface(quirks=3, model_rate=60_000.0)
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


class Taken(Surface):
    """Half as fast from the confirmation run on: others have taken the cores."""

    def before(self, config: PipelineConfig, effort: Effort) -> None:
        if effort is Effort.PROOF and self.decode_seconds == Surface.decode_seconds:
            self.decode_seconds *= 2


def test_a_machine_that_became_slower_shows_in_the_baselines_and_mere_noise_does_not(space: Space) -> None:
    slower, noisy = run(space, Taken(model_rate=60_000.0)), run(space, Surface(model_rate=60_000.0, noise=0.12, seed=1))
    assert slower.result.drift == pytest.approx(-0.45, abs=0.1)
    assert noisy.result.drift == 0.0


def test_what_was_measured_highest_is_in_the_proof_however_unlike_its_like(space: Space) -> None:
    surface, told = Surface(quirks=3, seed=3, model_rate=60_000.0, noise=0.12), list[Event]()
    ended = study.run(space, surface, surface.facts(), settings(surface, budget_seconds=None), on_event=told.append)
    found = {row.key: row.outcome for row in ended.rows if row.block is None}
    rates = {key: each.images_per_second.value for key, each in found.items() if isinstance(each, Measurement)}
    proved = next(event for event in told if isinstance(event, ConfirmationStarted))
    assert set(sorted(rates, key=lambda key: rates[key])[-2:]) <= {config.key() for config in proved.configs}


def test_among_equals_the_cheapest_wins_even_if_others_looked_better(space: Space) -> None:
    surface = Surface(model_rate=500.0, seed=2)  # any two workers will do
    ended = run(space, surface, reached_share=2.0, trials=40, budget_seconds=None, patience=99)
    assert (some(ended.best_config).loader.worker_count() or 99) <= 2
    assert len(some(ended.confirmation).tied) > 1


def with_devices(surface: Surface, gpus: int, **chosen: object) -> Searched:
    """Search a space with so many devices."""
    space = library.parse(SPACE.replace("devices: [1, 2]", "devices: [1, 2, 4, 8]"), {"cores": 4, "gpus": gpus})
    usual = surface.facts()
    virtual = usual.workload.model_copy(update={"virtual_devices": gpus})
    known = dataclasses.replace(usual, gpus=gpus, workload=virtual)
    return study.run(space, surface, known, settings(surface, **chosen))


def test_more_devices_are_measured_as_long_as_they_pay_and_the_winners_count_has_baselines_of_its_own() -> None:
    surface = Surface(model_rate=900.0, read_seconds=1e-5, decode_seconds=1e-4, scaling=lambda devices: min(devices, 2))
    ended = with_devices(surface, 8)
    assert some(ended.best_config).devices == 2
    assert [each.devices for each in ended.result.devices] == [1, 2, 4]  # four bring nothing, so eight are not asked
    reasons = [drop.reason for drop in ended.result.left_out]
    assert "devices 8: the model alone is no faster with it: 1.00 times the rate of devices 2" in reasons
    names = [each.name for each in ended.result.baselines]
    assert names == ["keras", "tfdata", "keras, 2 virtual devices", "tfdata, 2 virtual devices"]
    assert [each.config["devices"] for each in ended.result.baselines] == [1, 1, 2, 2]
    assert all(each.images_per_second is not None for each in ended.result.baselines)


def test_a_model_that_is_the_limit_ends_the_search_before_it_begins(space: Space) -> None:
    surface = Surface(model_rate=30.0)
    ended = run(space, surface)
    assert ended.result.stop.reason is Reason.CEILING
    assert "The baseline" in ended.result.stop.message
    assert len(ended.rows) <= 8
    assert some(ended.best_config).loader.worker_count() == 1  # the simplest that does
    assert not ended.result.proved
    assert some(ended.result.winner).share_of_model == pytest.approx(1.0, abs=0.05)


def test_a_ceiling_that_came_out_too_low_does_not_end_a_search(space: Space) -> None:
    class Disturbed(Surface):
        def alone(self, setup: ModelSetup) -> float:
            return self.model_rate if self.measured else self.model_rate / 40

    surface = Disturbed(model_rate=60_000.0, quirks=1)
    ended = run(space, surface)
    assert ended.result.stop.reason is not Reason.CEILING
    assert surface.true_rate(some(ended.best_config)) >= 0.9 * top(space, surface)
    assert some(ended.result.ceiling).model_images_per_second.value == 60_000.0


def test_no_seed_is_tried_that_could_not_win_if_its_prediction_were_as_wrong_as_any_so_far(space: Space) -> None:
    surface = Surface(model_rate=60_000.0, decode_seconds=0.0001, read_seconds=0.00002)
    ended = run(space, surface)
    seeds = [row.config for row in ended.rows if row.origin.asker is Asker.SEED]
    assert len(seeds) > 1
    assert {config.cache for config in seeds} == {"memory"}


def test_the_ceiling_of_another_setup_leaves_something_to_gain(space: Space) -> None:
    class SlowOnTheHost(Surface):
        def alone(self, setup: ModelSetup) -> float:
            return 60.0 if setup.finish == "host" else 60_000.0  # the baselines finish on the host

    ended = run(space, SlowOnTheHost(model_rate=60_000.0, quirks=1))
    assert ended.result.stop.reason is not Reason.CEILING


@pytest.mark.parametrize("disturbed", [2, 99])
def test_a_model_alone_that_is_slower_than_an_unsteady_training_ends_no_search(space: Space, disturbed: int) -> None:
    """Trials well above what the model alone was read at, with intervals that hold that reading."""

    class Shaken(Surface):
        readings = 0

        def alone(self, setup: ModelSetup) -> float:
            self.readings += 1
            return 38_000.0 if self.readings <= disturbed + 2 else 60_000.0  # one for each finish

    surface = Shaken(model_rate=60_000.0, quirks=1, noise=0.25)
    ended = run(space.only("devices", [1]), surface)
    assert ended.result.stop.reason is not Reason.CEILING
    assert (some(ended.result.ceiling).model_images_per_second.value > 38_000.0) == (disturbed == 2)


@pytest.mark.parametrize("block", [1, 2])
def test_who_fails_in_the_proof_is_left_out_and_does_not_win(space: Space, block: int) -> None:
    class Breaking(Surface):
        proved: ClassVar[list[str]] = []

        def before(self, config: PipelineConfig, effort: Effort) -> TrialFailure | None:
            if effort is Effort.PROOF and config.loader.kind in ("threads", "processes"):
                self.proved.append(config.key())
                if self.proved.count(self.proved[0]) >= block and config.key() == self.proved[0]:
                    return TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.FILL, message="too much")
            return None

    Breaking.proved.clear()
    ended = run(space, Breaking(model_rate=500.0, seed=2), reached_share=2.0, trials=12, budget_seconds=None)
    assert ended.result.proved
    assert some(ended.best_config).key() != Breaking.proved[0]
    assert Breaking.proved.count(Breaking.proved[0]) == block


def test_a_proof_makes_do_with_two_blocks_where_the_time_is_short(space: Space) -> None:
    surface = Surface(quirks=1, model_rate=12_000.0)  # with a baseline that is not ten times slower
    ended = run(space, surface, trials=999, budget_seconds=30.0, patience=99)
    blocks = {row.block for row in ended.rows if row.block is not None}
    assert len(blocks) == 2
    assert ended.result.proved


def test_the_share_of_the_ceiling_is_read_side_by_side(space: Space) -> None:
    class Slowing(Surface):
        """A machine that something else takes half of, from the confirmation run on."""

        def before(self, config: PipelineConfig, effort: Effort) -> None:
            if effort is Effort.PROOF:
                self.model_rate = 1000.0

    ended = run(space, Slowing(model_rate=2000.0))
    rate = some(ended.result.images_per_second)
    assert rate.value < 0.6 * some(ended.result.ceiling).model_images_per_second.value
    assert 0.95 <= some(some(ended.confirmation).reached_share).value <= 1.0
    assert some(ended.result.winner).share_of_model == some(some(ended.confirmation).reached_share).value


def test_who_is_far_behind_runs_in_one_block_and_the_result_says_so(space: Space) -> None:
    ended = run(space, fed_by_four(quirks=1))
    keras = next(each for each in ended.result.baselines if each.name == "keras")
    ran = {key: len(blocks) for key, blocks in some(ended.confirmation).rounds.items()}
    assert ran[some(ended.confirmation).winner] >= 3
    assert ran[keras.key] == 1
    gain = some(ended.result.contest(keras))
    assert gain.high is not None
    assert gain.few
    assert gain.low < gain.ratio < gain.high


@pytest.mark.parametrize("budget_seconds", [12.0, 20.0, 30.0, 39.0, 51.0])
def test_the_budget_holds_within_ten_percent(space: Space, budget_seconds: float) -> None:
    ended = run(space, fed_by_four(quirks=1), trials=999, budget_seconds=budget_seconds, patience=99)
    assert ended.result.seconds <= 1.1 * budget_seconds
    assert beyond_baselines(ended)
    assert ended.result.proved == (budget_seconds >= 30.0)  # with less there is time for no two blocks
    message = ended.result.stop.message
    assert (", with the confirmation run, takes about" in message) == ended.result.proved


def beyond_baselines(ended: Searched) -> bool:
    return any(row.origin.asker not in (Asker.BASELINE, Asker.AGAIN) for row in ended.rows)


def test_in_no_time_at_all_one_baseline_and_one_other_are_compared_and_the_time_it_takes_is_told(space: Space) -> None:
    surface, told = fed_by_four(quirks=1), list[Event]()
    ended = study.run(space, surface, surface.facts(), settings(surface, budget_seconds=1.0), on_event=told.append)
    assert [row.origin.asker for row in ended.rows] == [Asker.BASELINE, Asker.SEED]
    (planned,) = [event for event in told if isinstance(event, BudgetPlanned)]
    assert planned.trials == 0
    assert ended.result.seconds == pytest.approx(planned.needed_seconds, rel=0.2)
    assert planned.needed_seconds < planned.advised_seconds


class Busy(Surface):
    """Trials take as long as they are allowed to, or half a minute, on a machine that is busy all the time."""

    allowed: float | None = None

    def allow(self, seconds: float | None) -> None:
        self.allowed = seconds

    def measure(
        self, config: PipelineConfig, *, effort: Effort = Effort.SEARCH, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        before = self.now
        found = super().measure(config, effort=effort, must_reach=must_reach)
        if len(self.measured) <= 3:  # the baselines, and one other
            return found
        self.now = before + 30.0
        if self.allowed is None or self.allowed >= 30.0:
            return found
        self.now = before + self.allowed
        message = "The budget has no more time for this trial."
        return TrialFailure(kind=FailureKind.INTERRUPTED, phase=Phase.FILL, message=message)


def test_a_trial_that_the_budget_cuts_says_nothing_and_the_budget_holds(space: Space) -> None:
    surface = Busy(model_rate=60_000.0, quirks=1)
    ended = run(space, surface, budget_seconds=80.0, end_seconds=8.0, patience=99, blocks=(0, 0))
    assert ended.result.stop.reason is Reason.TIME
    assert ended.result.seconds <= 1.05 * 72.0
    (cut,) = [row for row in ended.rows if row.outcome is None]
    assert cut.key not in {each.key for each in ended.result.baselines}


@pytest.mark.parametrize("required", [False, True])
def test_a_slow_second_baseline_leaves_half_of_the_time_unless_it_has_to_be_beaten(
    space: Space, *, required: bool
) -> None:
    class Slow(Surface):
        """A second baseline that reads sample by sample from a network."""

        allowed: float | None = None

        def baselines(self) -> Sequence[Baseline]:
            first, second = super().baselines()
            return [first, dataclasses.replace(second, required=required)]

        def allow(self, seconds: float | None) -> None:
            self.allowed = seconds

        def measure(
            self, config: PipelineConfig, *, effort: Effort = Effort.SEARCH, must_reach: float | None = None
        ) -> Measurement | TrialFailure:
            began, second = self.now, config.key() == self.baselines()[1].config.key()
            found = super().measure(config, effort=effort, must_reach=must_reach)
            if second and self.allowed is not None and self.allowed < 60.0:
                self.now = began + self.allowed
                return TrialFailure(kind=FailureKind.INTERRUPTED, phase=Phase.FIRST_BATCH, message="cut")
            self.now = began + 60.0 if second and effort is Effort.SEARCH else self.now
            return found

    ended = run(space, Slow(model_rate=60_000.0, quirks=1), budget_seconds=90.0, blocks=(0, 0))
    second = ended.result.baselines[1]
    assert (second.images_per_second is not None) is required
    if not required:
        assert second.failure is None
        assert len([row for row in ended.rows if row.value is not None]) > 5


def test_what_comes_after_the_search_is_kept_of_the_budget(space: Space) -> None:
    end_seconds = 20.0
    ended = run(space, Surface(model_rate=60_000.0, quirks=1), end_seconds=end_seconds, patience=99, trials=999)
    assert ended.result.seconds <= 1.05 * (120.0 - end_seconds)
    assert ended.result.seconds >= 0.8 * (120.0 - end_seconds)


@pytest.mark.parametrize("budget_seconds", [1.0, 12.0, 30.0])
def test_a_baseline_that_is_required_is_measured_and_proved_however_short_the_time_is(
    space: Space, budget_seconds: float
) -> None:
    former = to_config({"loader": "threads", "threads.workers": 3, "threads.queue_size": 8})

    class Retuned(Surface):
        def baselines(self) -> Sequence[Baseline]:
            return [*super().baselines(), Baseline(name="former", config=former, required=True)]

    ended = run(space, Retuned(quirks=1, model_rate=60_000.0), budget_seconds=budget_seconds, patience=99)
    *_, rival = ended.result.baselines
    assert rival.images_per_second is not None
    assert (ended.result.contest(rival) is not None) == ended.result.proved


class Theirs(Surface):
    """A machine on which somebody else's code is as fast as the model alone, or so much slower."""

    share = 1.0

    def baselines(self) -> Sequence[Baseline]:
        unable = TrialFailure(kind=FailureKind.NOT_PLAIN, phase=Phase.BUILD, message="no arrays")
        names = {"theirs": None, "unable": unable}
        made = {name: PipelineConfig(loader=Foreign(code=name), finish="host", device_prefetch=0) for name in names}
        return [Baseline(name=name, config=made[name], unable=why) for name, why in names.items()]

    def true_rate(self, config: PipelineConfig) -> float:
        return self.share * self.model_rate if config.loader.is_foreign else super().true_rate(config)


def test_somebody_elses_code_is_compared_with_and_cannot_win(space: Space) -> None:
    ended = run(space, Theirs(model_rate=60_000.0), trials=12)
    theirs, unable = ended.result.baselines
    assert not some(ended.best_config).loader.is_foreign
    gain = some(ended.result.contest(theirs))
    assert gain.ratio < 1
    assert (unable.images_per_second, unable.failure and unable.failure.message) == (None, "no arrays")


def test_a_baseline_has_as_many_workers_as_the_measured_waits_make_useful(space: Space) -> None:
    class Waiting(Theirs):
        def baselines(self) -> Sequence[Baseline]:
            (theirs, _) = super().baselines()
            return [dataclasses.replace(theirs, with_workers=lambda useful: of_workers(theirs, useful))]

        def _ceiling(self, setup: ModelSetup) -> Ceiling:
            found = super()._ceiling(setup)
            read, *others = found.op_costs
            waits = 4 * sum(op.seconds_per_image for op in found.op_costs)
            return found.model_copy(
                update={"op_costs": (read.model_copy(update={"wait_seconds_per_image": waits}), *others)}
            )

    def of_workers(theirs: Baseline, useful: int) -> Baseline:
        loader = Foreign(code=f"workers={useful}")
        return dataclasses.replace(theirs, name=loader.code, config=theirs.config.model_copy(update={"loader": loader}))

    surface = Waiting(model_rate=60_000.0)
    (theirs,) = run(space, surface, trials=4).result.baselines
    assert theirs.name == f"workers={5 * surface.cores}"
    assert theirs.images_per_second is not None


def test_of_other_peoples_code_the_two_fastest_are_proved_against_and_the_others_are_known_by_a_trial(
    space: Space,
) -> None:
    class Many(Surface):
        rates: ClassVar = {"slow": 100.0, "best": 400.0, "next": 300.0, "last": 50.0}

        def baselines(self) -> Sequence[Baseline]:
            made = ((name, PipelineConfig(loader=Foreign(code=name), finish="host")) for name in self.rates)
            return [Baseline(name=name, config=config) for name, config in made]

        def true_rate(self, config: PipelineConfig) -> float:
            return self.rates[str(config.loader.model_dump()["code"])] if config.loader.is_foreign else 4000.0

    ended = run(space, Many(model_rate=60_000.0), trials=12)
    assert [each.name for each in ended.result.baselines if ended.result.contest(each) is not None] == ["best", "next"]
    assert all(each.images_per_second is not None for each in ended.result.baselines)


class Unlasting(Theirs):
    """A machine on which whatever is not somebody else's code fails in the confirmation run."""

    share = 0.1

    def before(self, config: PipelineConfig, effort: Effort) -> TrialFailure | None:
        if effort is Effort.PROOF and not config.loader.is_foreign:
            self.now += 1.0
            return TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.FILL, message="too much")
        return None


def test_where_all_fail_in_the_proof_another_is_the_best_and_baselines_do_not_run_on_alone(space: Space) -> None:
    ended = run(space, Unlasting(model_rate=60_000.0), trials=12, budget_seconds=None)
    blocks = [row for row in ended.rows if row.block is not None]
    assert {row.block for row in blocks} == {0}
    failed = {row.key for row in blocks if isinstance(row.outcome, TrialFailure)}
    assert len(failed) == 3
    assert not ended.result.proved
    assert some(ended.best_config).key() not in failed
    assert not [each for each in verdict.notes(ended.result) if "failed in its confirmation" in each]


def test_the_only_one_that_there_is_stays_the_best_where_it_fails_in_the_proof_and_that_is_told(space: Space) -> None:
    only = space.only("loader", ["processes"]).only("processes.workers", [2]).only("cache", ["none"])
    one = only.only("finish", ["device"]).only("device_prefetch", [2]).only("devices", [1])
    ended = run(one, Unlasting(model_rate=60_000.0), budget_seconds=None)
    assert not ended.result.proved
    assert verdict.notes(ended.result) == [
        "The winner failed in its confirmation run, and may fail again: out of memory in fill: too much"
    ]


def test_where_somebody_elses_code_is_at_the_ceiling_as_much_is_enough_for_ours(space: Space) -> None:
    class Slower(Theirs):
        share = 0.8

    def ended(surface: Surface) -> tuple[Reason, int]:
        ended = run(space, surface, patience=99, trials=40)
        return ended.result.stop.reason, len(ended.rows)

    quick, thorough = ended(Theirs(model_rate=900.0, noise=0.001)), ended(Slower(model_rate=900.0, noise=0.001))
    assert quick[0] is Reason.CEILING
    assert quick[1] <= thorough[1]


def test_a_slow_model_that_other_peoples_code_keeps_busy_ends_the_search_at_once(space: Space) -> None:
    class Slow(Theirs):
        """A model whose step takes a second, on a machine that is slower while the first candidate runs."""

        def ceilings(self, setups: Sequence[ModelSetup]) -> Sequence[Ceiling]:
            self.now += 20.0
            return super().ceilings(setups)

        def before(self, config: PipelineConfig, effort: Effort) -> None:
            self.now += 10.0
            self.model_rate = 28.0 if len(self.measured) == 1 else 30.0

        def true_rate(self, config: PipelineConfig) -> float:
            return self.model_rate

    surface = Slow(model_rate=30.0, noise=0.002)
    ended = run(space, surface, budget_seconds=120.0)
    assert ended.result.stop.reason is Reason.CEILING
    assert ended.result.stop.message.startswith("The best reaches")
    assert some(ended.best_config).loader.worker_count() == 1
    assert not ended.result.proved
    assert ended.result.seconds < 80


def test_other_peoples_code_that_only_seemed_to_be_at_the_ceiling_leaves_a_gain_to_be_proved(space: Space) -> None:
    class Misread(Theirs):
        """The model alone was read while something else had the machine, once."""

        share = 0.4

        def alone(self, setup: ModelSetup) -> float:
            return self.model_rate if self.measured else 0.4 * self.model_rate

    ended = run(space, Misread(model_rate=900.0, noise=0.001))
    assert ended.result.proved
    theirs = next(each for each in ended.result.baselines if each.name == "theirs")
    gain = some(ended.result.contest(theirs))
    assert gain.ratio < 0.5 or gain.ratio > 2


def test_what_has_to_be_beaten_is_compared_with_though_other_peoples_code_is_at_the_ceiling(space: Space) -> None:
    former = PipelineConfig(loader=Threads(workers=1, queue_size=2), device_prefetch=0)

    class Retuned(Theirs):
        def baselines(self) -> Sequence[Baseline]:
            return [*super().baselines(), Baseline(name="former", config=former, required=True)]

    surface = Retuned(model_rate=3000.0, noise=0.001)
    assert surface.true_rate(former) < 0.6 * surface.model_rate
    ended = run(space, surface)
    assert ended.result.stop.reason is Reason.CEILING
    assert ended.result.proved
    *_, rival = ended.result.baselines
    gain = some(ended.result.contest(rival))
    assert gain.faster


@pytest.mark.parametrize(
    ("usual", "eight"),
    [
        ([1.0, 1.0], [0.7, 1.5]),  # somebody was busy during the first reading of eight steps
        ([1.0, 0.4, 0.5, 0.5], [0.7, 0.6, 0.7, 0.7]),  # and still is
    ],
)
def test_several_steps_are_judged_beside_one_when_the_machine_may_have_been_busy(
    usual: list[float], eight: list[float]
) -> None:
    readings = {1: iter(usual), 8: iter(eight)}

    class Shared(Surface):
        def alone(self, setup: ModelSetup) -> float:
            return self.model_rate * next(readings[setup.steps_per_execution], 1.0)

    steps = library.parse(f"{SPACE}  steps_per_execution: [1, 8]\n", {"cores": 4, "gpus": 0})
    ended = run(steps, Shared(model_rate=60_000.0))
    assert {row.config.steps_per_execution for row in ended.rows} == {1, 8}


def test_a_space_of_nothing_but_what_brings_nothing_is_searched_all_the_same() -> None:
    steps = library.parse(f"{SPACE}  steps_per_execution: [8]\n", {"cores": 4, "gpus": 0})

    class Slower(Surface):
        def alone(self, setup: ModelSetup) -> float:
            return self.model_rate * (1.0 if setup.steps_per_execution == 1 else 0.9)

    ended = run(steps, Slower(model_rate=60_000.0))
    assert some(ended.best_config).steps_per_execution == 8


@pytest.mark.parametrize(
    "many",
    [{"threads.workers": [16]}, {"threads.read_ahead": [16]}, {"threads.read_ahead": ["reads_at_once"]}],
    ids=["workers", "reads", "measured reads"],
)
def test_where_nothing_waits_a_space_of_many_workers_or_reads_is_searched_all_the_same(many: dict[str, object]) -> None:
    class Alone(Surface):
        def baselines(self) -> Sequence[Baseline]:
            return []

    usual = {"loader": ["threads"], "threads.workers": [2], "threads.queue_size": [2, 8], "finish": ["host", "device"]}
    written = usual | many
    asked = library.parse(json.dumps({"schema_version": 1, "parameters": written}), {"cores": 4, "gpus": 0})
    ended = run(asked, Alone(model_rate=60_000.0))
    assert ended.result.stop.message == "Every configuration that can run has been measured."


def test_who_has_to_be_beaten_may_win_with_more_workers_than_are_of_use(space: Space) -> None:
    former = to_config({"loader": "threads", "threads.workers": 16, "threads.queue_size": 8})

    class Retuned(Surface):
        def baselines(self) -> Sequence[Baseline]:
            return [Baseline(name="former", config=former, required=True)]

        def true_rate(self, config: PipelineConfig) -> float:
            return super().true_rate(config) * (1.0 if config == former else 0.01)

    assert run(space, Retuned(model_rate=60_000.0)).best_config == former
    few = run(space, Retuned(model_rate=60_000.0), limits=Limits(workers=8))
    assert few.best_config not in (None, former)


def test_a_study_whose_time_is_used_up_keeps_what_it_proved(space: Space, tmp_path: Path) -> None:
    url = f"journal:///{tmp_path}/study.log"
    first = run(space, fed_by_four(quirks=2), url, budget_seconds=60.0)
    assert first.result.proved
    again = fed_by_four(quirks=2)
    second = run(space, again, url, budget_seconds=sum(row.seconds for row in first.rows))
    assert second.result.proved
    assert second.best_config == first.best_config
    assert again.measured == []


def test_over_epochs_a_slow_first_batch_does_not_hold_a_search_at_the_ceiling(space: Space) -> None:
    surface = Surface(model_rate=900.0, sample_count=2000, noise=0.001)
    ended = run(space, surface, epochs=5, patience=99)
    assert ended.result.stop.reason is Reason.CEILING


def test_over_epochs_the_ceiling_does_not_end_a_search_for_what_pays_too_much_once(space: Space) -> None:
    surface = Surface(model_rate=900.0, decode_seconds=0.003, sample_count=20_000, noise=0.001)
    ended = run(space, surface, epochs=2, budget_seconds=None, patience=99)
    assert some(ended.best_config).cache == "none"


def test_what_was_spent_before_the_search_counts_and_waiting_for_another_tune_does_not(space: Space) -> None:
    surface = fed_by_four(quirks=1)
    surface.now = 30.0
    ended = run(space, surface, trials=999, budget_seconds=60.0, patience=99, began=0.0)
    assert 30.0 < ended.result.seconds <= 66.0
    assert ended.result.proved


def test_a_model_that_takes_long_is_run_alone_in_its_usual_setup_only(space: Space) -> None:
    class Slow(Surface):
        def ceilings(self, setups: Sequence[ModelSetup]) -> Sequence[Ceiling]:
            self.now += 40.0
            return super().ceilings(setups)

    surface = Slow(model_rate=30.0)
    told: list[Event] = []
    study.run(space, surface, surface.facts(), settings(surface, budget_seconds=120.0), on_event=told.append)
    before = told[: next(at for at, event in enumerate(told) if isinstance(event, BudgetPlanned))]
    assert sum(isinstance(event, CeilingMeasured) for event in before) == 1


def test_the_model_alone_in_all_its_other_setups_takes_no_more_than_a_quarter_of_the_time() -> None:
    class Slow(Surface):
        """A model whose every setup takes ten seconds to compile: a twelfth of the time each."""

        def model_alone(self, setup: ModelSetup, *, again: bool = True) -> Ceiling:
            self.now += 9.0
            return super().model_alone(setup, again=again)

    surface, spent = Slow(model_rate=900.0, scaling=float), list[float]()

    def note(event: Event) -> None:
        spent.extend([event.spent_seconds] if isinstance(event, BudgetPlanned) else [])

    facts = dataclasses.replace(surface.facts(), gpus=8)
    space = library.read("multi_gpu")({"cores": 8, "gpus": 8})
    few = Limits(only={"loader": ("threads",), "storage": ("files",), "cache": ("none",)})
    study.run(space, surface, facts, settings(surface, budget_seconds=120.0, trials=1, limits=few), on_event=note)
    assert spent == [pytest.approx(3.0 + 20.0)]


def test_a_baseline_that_is_not_allowed_is_no_gain_to_be_exceeded(space: Space) -> None:
    surface = fed_by_four()
    session = session_of(space, surface, limits=Limits(workers=1))
    keras, tfdata = surface.baselines()
    session.run_config(tfdata.config, AskedBy(Asker.BASELINE, "tfdata"))
    session.run_config(keras.config, AskedBy(Asker.BASELINE, "keras"))
    best = budget.best_so_far(session)
    assert best[0] is None  # tf.data takes all cores
    assert best[1] is not None


def test_a_trial_that_was_cut_off_is_none_that_brought_no_gain(space: Space) -> None:
    class Impatient(Surface):
        def before(self, config: PipelineConfig, effort: Effort) -> None:
            if self.measured:
                raise KeyboardInterrupt

    session = session_of(space, Impatient())
    first, second, *_ = session.trimmed.candidates
    session.run_config(first.config, AskedBy(Asker.SEED, "rule"))
    with pytest.raises(KeyboardInterrupt):
        session.run_config(second.config, AskedBy(Asker.SEED, "rule"))
    assert len(session.record.rows()) == 2
    assert len(budget.best_so_far(session)) == 1


def test_what_fails_at_its_second_look_is_not_looked_at_again_and_again(space: Space) -> None:
    class Once(Surface):
        def before(self, config: PipelineConfig, effort: Effort) -> TrialFailure | None:
            if effort is Effort.PROOF or all(key != config.key() for key, _ in self.measured):
                return None
            self.now += 1.0
            return TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message="once is enough")

    ended = run(space, Once(model_rate=500.0, noise=0.001), trials=20, budget_seconds=None, patience=99)
    looks = Counter(row.key for row in ended.rows if row.origin.asker is Asker.AGAIN)
    assert set(looks.values()) == {1}


@pytest.mark.parametrize(
    ("only", "chosen", "reason"),
    [
        ({}, {"trials": 9, "patience": 99}, Reason.TRIALS),
        ({}, {"trials": 999, "patience": 8}, Reason.NO_GAIN),
        (
            {"loader": ["processes"], "finish": ["device"], "processes.workers": [1, 2]},
            {"trials": 999, "patience": 99},
            Reason.EXHAUSTED,
        ),
    ],
    ids=["trials", "no gain", "a small space"],
)
def test_a_search_without_a_budget_ends(
    space: Space, only: dict[str, list[Value]], chosen: dict[str, Any], reason: Reason
) -> None:
    for name, values in only.items():
        space = space.only(name, values)
    ended = run(space, fed_by_four(quirks=1), budget_seconds=None, **chosen)
    assert ended.result.stop.reason is reason
    assert reason is not Reason.TRIALS or len([row for row in ended.rows if row.block is None]) == 9


def test_a_budget_of_trials_that_other_peoples_code_uses_up_leaves_one_for_what_can_be_used(space: Space) -> None:
    ended = run(space, Theirs(model_rate=60_000.0), trials=1, budget_seconds=None)
    assert ended.result.proved
    assert [row.origin.asker for row in ended.rows if row.block is None] == [Asker.BASELINE, Asker.SEED]
    assert ended.result.stop.message == "1 trial was allowed, and 2 have run, the baselines among them."


def test_an_optuna_sampler_that_finds_nothing_new_comes_to_an_end(space: Space) -> None:
    small = space.only("loader", ["keras"]).only("devices", [2, 1])
    ended = run(
        small,
        Surface(),
        budget_seconds=None,
        sampler=Sampler("random", lambda context: RandomSampler(seed=context.seed)),
        trials=40,
        reached_share=2.0,
        patience=99,
        seeding=False,
    )
    assert ended.result.stop.reason in (Reason.EXHAUSTED, Reason.TRIALS)


def test_hopeless_trials_end_early_and_the_proofs_never_do(space: Space) -> None:
    surface = fed_by_four(quirks=1)
    ended = run(space, surface, budget_seconds=None, trials=20, patience=99)
    windows = {
        row.number: (row.block is not None, len(row.outcome.windows))
        for row in ended.rows
        if isinstance(row.outcome, Measurement)
    }
    assert any(count == 5 for proving, count in windows.values() if not proving)
    assert all(count == 10 for proving, count in windows.values() if proving)


def test_a_repeat_is_one_more_measurement_of_the_same_point(space: Space) -> None:
    surface = Surface(noise=0.05, model_rate=60_000.0)
    ended = run(space, surface)
    last = [row for row in ended.rows if row.key == ended.rows[-1].key]
    assert len(last) > 2
    raw = [row.outcome.images_per_second.value for row in last if isinstance(row.outcome, Measurement)]
    values = [row.value for row in last if row.value is not None]
    assert values[0] == raw[0]
    assert min(raw) < values[-1] < max(raw)


def test_failures_are_values_and_the_search_goes_on(space: Space) -> None:
    surface = Surface(fails=lambda config: config.loader.kind in ("threads", "keras"), model_rate=60_000.0)
    ended = run(space, surface)
    assert some(ended.best_config).loader.kind in ("processes", "tfdata")
    keras = ended.result.baselines[0]
    assert keras.images_per_second is None
    assert isinstance(keras.failure, TrialFailure)


def test_limits_hold_for_the_winner(space: Space) -> None:
    surface = fed_by_four(quirks=1)
    limits = Limits(memory_bytes=3 * 2**30, workers=3, only={"loader": ("threads", "processes")})
    ended = run(space, surface, limits=limits)
    assert some(ended.best_config).loader.kind in ("threads", "processes")
    assert (some(ended.best_config).loader.worker_count() or 99) <= 3
    assert (surface.resources(some(ended.best_config)).peak_rss_bytes or 0) <= limits.memory_bytes  # type: ignore[operator]
    assert any("--max-workers" in drop.reason for drop in ended.result.left_out)


def test_few_epochs_do_not_pay_for_a_cache_that_many_do(space: Space) -> None:
    surface = Surface(decode_seconds=0.004, model_rate=60_000.0, sample_count=50_000, noise=0.002)
    once = run(space, surface, epochs=1, budget_seconds=None)
    often = run(space, surface, epochs=100, budget_seconds=None)
    assert some(often.best_config).cache == "memory"
    scored = {row.key: row.value for row in once.rows if row.block is None and row.value is not None}
    steady = {row.key: row.outcome.images_per_second.value for row in once.rows if isinstance(row.outcome, Measurement)}
    cached = [row.key for row in once.rows if row.config.cache == "memory" and row.key in scored]
    assert all(scored[key] < 0.5 * steady[key] for key in cached)


def test_ctrl_c_in_the_proof_uses_the_blocks_that_are_there(space: Space) -> None:
    class Impatient(Surface):
        def before(self, config: PipelineConfig, effort: Effort) -> None:
            if sum(done is Effort.PROOF for _, done in self.measured) == 11:
                raise KeyboardInterrupt

    ended = run(space, Impatient(quirks=1, model_rate=60_000.0))
    assert ended.result.interrupted
    assert not ended.result.proved
    assert ended.result.contest(ended.result.baselines[0]) is not None


def test_a_bug_in_the_measurer_is_not_swallowed_and_leaves_no_trial_running(space: Space, tmp_path: Path) -> None:
    class Broken(Surface):
        def measure(
            self, config: PipelineConfig, *, effort: Effort = Effort.SEARCH, must_reach: float | None = None
        ) -> Measurement | TrialFailure:
            raise ZeroDivisionError

    url = f"journal:///{tmp_path}/study.log"
    with pytest.raises(ZeroDivisionError):
        run(space, Broken(), url)
    ended = run(space, Surface(quirks=1), url)
    assert ended.rows[0].outcome is None


def test_more_trials_go_on_where_the_study_ended(space: Space, tmp_path: Path) -> None:
    url = f"journal:///{tmp_path}/study.log"
    first = run(space, fed_by_four(quirks=2), url, trials=8, budget_seconds=None)
    second = run(space, fed_by_four(quirks=2, seed=1), url, trials=14, budget_seconds=None, patience=99)
    searched = [row.key for row in second.rows if row.block is None]
    assert len(searched) == len(set(searched)) == 14
    assert [row.key for row in second.rows[: len(first.rows)]] == [row.key for row in first.rows]
    assert second.result.proved


def test_trials_that_the_user_enqueued_run_first(space: Space, tmp_path: Path) -> None:
    url = f"journal:///{tmp_path}/study.log"
    first = run(space, fed_by_four(), url, trials=1, blocks=(0, 0))
    wish: Params = {"loader": "processes", "processes.workers": 3, "processes.queue_size": 8}
    rest: Params = {"cache": "none", "storage": "files", "finish": "device", "device_prefetch": 2, "devices": 1}
    first.study.enqueue_trial({**wish, **rest})
    surface = fed_by_four()
    run(space, surface, url, trials=4, blocks=(0, 0))
    assert surface.measured[0][0] == to_config({**wish, **rest}).key()


def test_what_was_the_best_elsewhere_is_tried_instead_of_predictions(space: Space) -> None:
    surface = fed_by_four(quirks=1)
    known = max(trim(space, surface.facts()).candidates, key=lambda each: surface.true_rate(each.config))
    ended = run(space, surface, known=[known.config], trials=4)
    assert [str(row.origin) for row in ended.rows[:3]] == ["baseline:keras", "baseline:tfdata", "known"]
    assert ended.rows[2].key == known.key
    assert not any(row.origin.asker is Asker.SEED for row in ended.rows)


def test_predictions_are_tried_where_nothing_known_can_run(space: Space) -> None:
    surface = fed_by_four(quirks=1)
    known = PipelineConfig(loader=Threads(workers=4))
    ended = run(space, surface, known=[known], limits=Limits(workers=2), trials=6)
    assert not any(row.origin.asker is Asker.KNOWN for row in ended.rows)
    assert any(row.origin.asker is Asker.SEED for row in ended.rows)


def test_another_space_is_refused(space: Space, tmp_path: Path) -> None:
    url = f"journal:///{tmp_path}/study.log"
    run(space, Surface(), url, trials=2)
    with pytest.raises(TrialError, match="another space") as refused:
        run(space.only("loader", ["threads"]), Surface(), url, trials=2)
    assert "(space: loader 'threads, processes, tfdata, keras' there, 'threads' here)" in refused.value.message
    other, surface = library.load("quick", {"cores": 4, "gpus": 0}), Surface()
    with pytest.raises(TrialError, match=r"space: loader '.*, and \d+ more\)\."):
        study.run(other, surface, surface.facts(), settings(surface, storage=url, trials=2, space="quick"))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"schema_version": "0"}, "another schema_version (schema_version: '0' there, '1' here)"),
        ({"hardware": '{"cores": 8, "system": "Linux"}'}, "another hardware (hardware: cores 8 there, 4 here)"),
    ],
)
def test_a_study_of_another_version_or_machine_says_so_and_what_to_do(
    space: Space, tmp_path: Path, other: dict[str, str], said: str
) -> None:
    url, hardware = f"journal:///{tmp_path}/study.log", '{"cores": 4, "system": "Linux"}'
    first = run(space, Surface(), url, trials=2, digests={"hardware": hardware})
    first.study.set_user_attr("digests", {**first.study.user_attrs["digests"], **other})
    surface = Surface()
    with pytest.raises(TrialError) as refused:
        run(space, surface, url, trials=2, digests={"hardware": hardware})
    assert said in refused.value.message
    assert refused.value.hint == "Use --fresh to start a new one, or another --out or --storage to keep both."
    assert surface.measured == []


def test_a_baseline_need_not_lie_in_the_space(space: Space) -> None:
    surface = fed_by_four(quirks=1)
    ended = run(space, surface, limits=Limits(only={"loader": ("processes",)}))
    assert [baseline.images_per_second is not None for baseline in ended.result.baselines] == [True, True]


def test_events_tell_the_story_in_order(space: Space) -> None:
    told: list[Event] = []
    surface = fed_by_four(quirks=1)
    ended = study.run(space, surface, surface.facts(), settings(surface, trials=7), told.append)
    kinds = [type(event) for event in told]
    assert kinds[:3] == [SpaceTrimmed, StudyOpened, CeilingMeasured]
    assert kinds.index(SearchStopped) + 1 == kinds.index(ConfirmationStarted)
    finished = [event for event in told if isinstance(event, TrialFinished)]
    started = [event for event in told if isinstance(event, TrialStarted)]
    assert [event.number for event in started] == [event.number for event in finished] == list(range(len(started)))
    assert [event.origin for event in finished] == [row.origin for row in ended.rows]
    assert all(event.predicted is not None for event in started)


@pytest.fixture
def converting() -> Space:
    return library.parse(SPACE.replace("storage: [files]", "storage: [files, array]"), {"cores": 4, "gpus": 0})


def test_a_converted_form_that_should_be_faster_is_measured_but_does_not_win(converting: Space) -> None:
    surface = fed_by_four()
    only = {"cache": ("none",)}
    ended = run(converting, surface, limits=Limits(convert=False, only=only), budget_seconds=300.0)
    advised = [row for row in ended.rows if row.origin.asker is Asker.ADVICE]
    assert {row.config.storage for row in advised} == {"array"}
    assert some(ended.best_config).storage == "files"
    best = max(row.value for row in ended.rows if row.value is not None)
    assert best == max(row.value for row in advised if row.value is not None)


def test_nothing_is_converted_where_the_user_refuses_it(converting: Space) -> None:
    limits = Limits(convert=False, only={"cache": ("none",)})
    ended = run(converting, fed_by_four(), limits=limits, convert=False, budget_seconds=300.0)
    assert {row.config.storage for row in ended.rows} == {"files"}


def test_no_converted_form_is_measured_where_it_should_bring_little(converting: Space) -> None:
    ended = run(converting, fed_by_four(), limits=Limits(convert=False), budget_seconds=300.0)  # a cache holds all
    assert not [row for row in ended.rows if row.origin.asker is Asker.ADVICE]


def test_at_the_ceiling_what_takes_less_is_tried_before_the_end(space: Space) -> None:
    surface = Surface(model_rate=1500.0)
    known = [to_config({"loader": "threads", "threads.workers": 8, "threads.queue_size": 8, "cache": "memory"})]
    ended = run(space, surface, known=known, budget_seconds=300.0)
    assert ended.result.stop.reason is Reason.CEILING
    assert "seed:cheaper" in {str(row.origin) for row in ended.rows}
    assert (some(ended.best_config).loader.worker_count() or 99) < 8


def test_knobs_without_effect_here_make_one_candidate(space: Space) -> None:
    facts = Surface().facts()
    all_of_them = trim(space, facts)
    merged = trim(space, dataclasses.replace(facts, accelerator=False))
    assert {each.config.device_prefetch for each in all_of_them.candidates} == {0, 2}
    assert {each.config.device_prefetch for each in merged.candidates} == {0}
    assert any(each.reason.startswith("device_prefetch: makes no difference") for each in merged.left_out)
    kept = trim(space.only("device_prefetch", [2]), dataclasses.replace(facts, accelerator=False))
    assert {each.config.device_prefetch for each in kept.candidates} == {2}


CACHED = {"cache": ["memory"], "finish": ["device", "host"], "device_prefetch": [0, 2], "threads.queue_size": [2, 8]}


class Far(Surface):
    """A machine whose reads wait."""

    latency_seconds: float = 0.01

    def ceilings(self, setups: Sequence[ModelSetup]) -> Sequence[Ceiling]:
        rungs = tuple(ReadRung(at_once=count, images_per_second=count / self.latency_seconds) for count in (1, 4, 16))
        reads = ReadCosts(latency_seconds=self.latency_seconds, cpu_seconds=0.0001, rungs=rungs, bytes_per_image=1e5)
        return [each.model_copy(update={"reads": reads}) for each in super().ceilings(setups)]


@pytest.mark.parametrize("at_once", [4, 16])
def test_the_reads_that_fill_a_cache_count_as_a_part_of_its_trial(at_once: int) -> None:
    class Distant(Far):
        """600 files of 80 ms each: a trial with a cache reads four batches of 128 before it measures."""

        latency_seconds = 0.08

        def facts(self) -> Facts:
            known = super().facts()
            return dataclasses.replace(known, workload=known.workload.model_copy(update={"batch_size": 128}))

        def before(self, config: PipelineConfig, effort: Effort) -> None:
            self.now += 512 * 0.08 / (config.loader.reads_at_once() or 4) if config.cache == "memory" else 0.0

    written = {"loader": ["threads"], "threads.workers": [2, 4], "threads.read_ahead": [at_once, 16], **CACHED}
    far = library.parse(json.dumps({"schema_version": 1, "parameters": written}), {"cores": 4, "gpus": 0})
    surface, told = Distant(model_rate=60_000.0, sample_count=600, quirks=1), list[Event]()
    ended = study.run(far, surface, surface.facts(), settings(surface, patience=99), on_event=told.append)
    (planned,) = [event for event in told if isinstance(event, BudgetPlanned)]
    fastest = 512 * 0.08 / 16
    assert 2.5 + fastest < planned.trial_seconds < 3.0 + (512 * 0.08 / at_once + fastest) / 2 + 0.1
    assert len(ended.rows) <= planned.trials * 1.5
    assert ended.result.seconds <= 1.05 * 120.0
    first = next(row.config for row in ended.rows if row.config.cache == "memory")
    assert first.loader.reads_at_once() == 16  # of equal predictions the one whose cache is filled sooner


def test_values_that_are_measured_are_tried_and_stay_the_studys(tmp_path: Path) -> None:
    url, surface = f"journal:///{tmp_path}/study.log", Far()
    written = {"loader": ["threads"], "threads.workers": [2], "threads.read_ahead": [0, 9, "reads_at_once"]}
    space = library.parse(json.dumps({"schema_version": 1, "parameters": written}), {"cores": 4, "gpus": 0})
    first = run(space, surface, url, trials=3, blocks=(0, 0))
    first.study.set_user_attr("ceilings", [])
    surface.latency_seconds = 0.02  # 100 reads at a time would be of use, where 50 were
    ended = run(space, surface, url, trials=9, blocks=(0, 0))
    tried = {row.config.loader.samples_ahead(1) for row in ended.rows if isinstance(row.config.loader, Threads)}
    assert {Threads(workers=2, read_ahead=count).samples_ahead(1) for count in (0, 9, 50)} == tried
    assert ended.result.stop.reason is Reason.EXHAUSTED


def test_reads_count_beside_the_model_on_more_devices_too() -> None:
    surface = Far(model_rate=900.0, read_seconds=1e-5, decode_seconds=1e-4, scaling=lambda devices: min(devices, 2))
    ended = with_devices(surface, 8)
    assert (some(ended.best_config).devices, some(ended.result.ceiling).devices) == (2, 2)
    assert some(ended.result.ceiling).reads is not None
