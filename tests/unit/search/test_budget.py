"""The rules that end a search, how its time is shared out, and the trials that have a reason."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from autopipe.measure.facts import Ceiling, Limits
from autopipe.measure.outcome import FailureKind, Measurement, Phase, Resources, TrialFailure
from autopipe.pipeline.config import Kept, ModelSetup, PipelineConfig, SettingValue
from autopipe.pipeline.loaders.workers import Threads
from autopipe.reports import verdict
from autopipe.search.feasible import candidates
from autopipe.search.measurer import Baseline
from autopipe.search.result import AskedBy, Asker, BudgetPlanned, Event, Reason, nothing_measured
from autopipe.search.space import Space, to_config
from autopipe.search.study import ceiling_stop, needed_share, no_gain_stop
from autopipe.values import Estimate
from tests.fakes.surface import Surface
from tests.unit.search.conftest import PARAMETERS, Theirs, loader_bound, run, session_of, some, space_of


def rate(value: float, width: float = 0.02) -> Estimate:
    return Estimate(value=value, low=value * (1 - width), high=value * (1 + width))


CEILING = Ceiling(model_images_per_second=rate(1000.0), model_core_seconds_per_image=0.0)

# ---------------------------------------------------------------- the rules


@pytest.mark.parametrize(("reached", "ends"), [(971.0, True), (1150.0, True), (960.0, False)])
def test_at_the_ceiling_there_is_nothing_to_gain(reached: float, ends: bool) -> None:
    stop = ceiling_stop(rate(reached), CEILING, share=0.97)
    assert (stop is not None) == ends
    assert stop is None or not any(map(str.isdigit, stop.message))  # the confirmation run measures both anew


def test_what_has_to_be_reached_follows_from_what_can_be_told_apart() -> None:
    still = CEILING.model_copy(update={"model_images_per_second": rate(1000.0, 0.001)})
    assert needed_share(rate(900.0, 0.001), still, 0.97) == 0.97
    assert needed_share(rate(900.0, 0.5), still, 0.97) == pytest.approx(0.95)
    assert 0.95 < needed_share(rate(900.0, 0.028), still, 0.97) < 0.97
    assert needed_share(rate(900.0, 0.5), still, math.inf) == math.inf  # a search that is never to end for it


@pytest.mark.parametrize(
    ("before", "now", "ends"),
    [
        (rate(100.0), rate(101.0), True),
        (rate(100.0), rate(103.0), False),  # beyond the interval of the best before
        # Steps of eight seconds, in one window each: the best rose from 100 to 195, which once was taken for none.
        (Estimate.of_one(100.0), Estimate.of_one(195.0), False),
        (Estimate.of_one(100.0), Estimate.of_one(100.0), False),
        (rate(100.0), Estimate.of_one(101.0), True),
    ],
)
def test_no_gain_means_none_beyond_the_interval_of_the_best_before(before: Estimate, now: Estimate, ends: bool) -> None:
    stop = no_gain_stop(before, now, patience=4)
    assert (None if stop is None else stop.reason) == (Reason.NO_GAIN if ends else None)


NOTHING_NEW = {"beyond": True, "trials": 40, "reached_share": 2.0}
SLOW_TO_BEGIN = Surface(model_rate=900.0, sample_count=2000, noise=0.001)


@pytest.mark.parametrize(
    ("surface", "only", "chosen", "reason"),
    [
        pytest.param(loader_bound(quirks=1, compared=()), {}, {"trials": 1}, Reason.TRIALS, id="trials"),
        pytest.param(loader_bound(quirks=1), {}, {}, Reason.NO_GAIN, id="no gain"),
        pytest.param(
            *(Surface(), {"loader": ["keras"], "devices": [2, 1]}, NOTHING_NEW, Reason.EXHAUSTED),
            marks=pytest.mark.slow,
            id="an Optuna sampler",
        ),
        pytest.param(SLOW_TO_BEGIN, {}, {"budget_seconds": 120.0, "trials": 30}, Reason.CEILING, id="the ceiling"),
    ],
)
def test_a_search_ends(
    space: Space, surface: Surface, only: dict[str, list[SettingValue]], chosen: dict[str, Any], reason: Reason
) -> None:
    for name, values in only.items():
        space = space.only(name, values)
    ended = run(space, surface, **{"budget_seconds": None, "trials": 999, "patience": 99, **chosen})
    assert ended.result.stop.reason is reason
    assert reason is not Reason.TRIALS or len([row for row in ended.rows if row.block is None]) == chosen["trials"]


def test_a_budget_of_trials_that_other_peoples_code_uses_up_leaves_one_for_what_can_be_used(space: Space) -> None:
    ended = run(space, Theirs(), trials=1, budget_seconds=None)
    assert ended.result.proved
    assert [row.origin.asker for row in ended.rows if row.block is None] == [Asker.RACE, Asker.BASELINE]
    assert ended.result.stop.message == "1 trial was allowed, and 2 have run, the baselines among them."


def test_what_is_not_allowed_or_was_cut_off_is_no_gain_to_be_exceeded(space: Space) -> None:
    class Impatient(Surface):
        def before(self, config: PipelineConfig, proof: bool) -> None:
            if len(self.measured) == 2:
                raise KeyboardInterrupt

    surface = Impatient(model_rate=60_000.0)
    session = session_of(space, surface, limits=Limits(workers=1), patience=1)
    keras, tfdata = surface.baselines()
    session.run_config(tfdata.config, AskedBy(Asker.BASELINE, "tfdata"))  # takes all cores
    session.run_config(keras.config, AskedBy(Asker.BASELINE, "keras"))
    with pytest.raises(KeyboardInterrupt):
        session.run_config(PipelineConfig(loader=Threads(workers=1)), AskedBy(Asker.SAMPLER, "tpe"))
    assert len(session.record.rows()) == 3
    assert session.no_gain() is None  # nothing that may win ran before the last one


# ---------------------------------------------------------------- at the ceiling


def test_a_model_that_is_the_limit_ends_the_search_before_it_begins(space: Space) -> None:
    ended = run(space, Surface(model_rate=30.0))
    assert ended.result.stop.reason is Reason.CEILING
    assert len([row for row in ended.rows if row.block is None]) <= 3
    assert some(ended.best_config).loader.worker_count() == 1  # the simplest that does
    assert some(ended.result.winner).share_of_model == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("more", [2.0, 1.15])
def test_a_model_that_makes_more_in_the_proof_was_not_the_limit(space: Space, more: float) -> None:
    class Disturbed(Surface):
        """A machine that other programs leave once the proof begins."""

        def before(self, config: PipelineConfig, proof: bool) -> None:
            if proof:
                self.alone_share = lambda setup: more

    ended = run(space, Disturbed(model_rate=30.0), budget_seconds=600.0)
    assert some(ended.result.ceiling).model_images_per_second.value == pytest.approx(30.0 * more, rel=0.05)
    assert ended.result.stop.reason is Reason.NO_GAIN
    assert "no loader can be faster" not in ended.result.stop.message


@pytest.mark.parametrize(("share", "disturbed", "noise"), [(0.025, 2, 0.02), (0.5, 99, 0.25)])
def test_a_model_that_was_read_too_low_ends_no_search(space: Space, share: float, disturbed: int, noise: float) -> None:
    """Far below all trials; and below those of an unsteady training, whose intervals hold the reading."""
    shares = iter([share] * (disturbed + 2))  # one for each finish
    surface = loader_bound(quirks=1, noise=noise, alone_share=lambda setup: next(shares, 1.0))
    ended = run(space.only("devices", [1]), surface)
    assert ended.result.stop.reason is not Reason.CEILING
    read = some(ended.result.ceiling).model_images_per_second.value
    assert (read == pytest.approx(60_000.0)) == (disturbed == 2)
    top = max(map(surface.true_rate, candidates(space, surface.facts()).values()))
    assert noise > 0.02 or surface.true_rate(some(ended.best_config)) >= 0.9 * top


def test_the_ceiling_of_another_setup_leaves_something_to_gain(space: Space) -> None:
    surface = loader_bound(quirks=1, alone_share=lambda setup: 0.001 if setup.finish == "host" else 1.0)
    assert run(space, surface).result.stop.reason is not Reason.CEILING  # the baselines finish on the host


def test_over_epochs_the_ceiling_does_not_end_a_search_for_what_pays_too_much_once(space: Space) -> None:
    surface = Surface(model_rate=900.0, decode_seconds=0.003, sample_count=20_000, noise=0.001)
    assert some(run(space, surface, epochs=2, budget_seconds=None, patience=99).best_config).keep == "none"


def test_at_the_ceiling_what_takes_less_is_tried_before_the_end(space: Space) -> None:
    surface = Surface(model_rate=1500.0)
    known = [to_config({"loader": "threads", "threads.workers": 8, "threads.queue_size": 8, "keep": "memory"})]
    ended = run(space, surface, accelerator=False, known=known, budget_seconds=300.0)
    assert ended.result.stop.reason is Reason.CEILING
    cheaper = [row.config.loader.worker_count() or 99 for row in ended.rows if row.origin.detail == "cheaper"]
    assert min(cheaper) < 8


def test_a_slow_model_that_other_peoples_code_keeps_busy_ends_the_search_in_its_time(space: Space) -> None:
    class Slow(Theirs):
        """A model whose step takes a second, on a machine that is slower while the first candidate runs."""

        def before(self, config: PipelineConfig, proof: bool) -> None:
            self.now += 10.0
            self.model_rate = 28.0 if len(self.measured) == 1 else 30.0

        def true_rate(self, config: PipelineConfig) -> float:
            return self.model_rate

    ended = run(space, Slow(model_rate=30.0, noise=0.002, ceilings_seconds=23.0), budget_seconds=120.0)
    assert ended.result.stop.reason is Reason.CEILING
    assert some(ended.best_config).loader.worker_count() == 1
    assert ended.result.seconds <= 126


def test_other_peoples_code_that_only_seemed_to_be_at_the_ceiling_leaves_a_gain_to_be_proved(space: Space) -> None:
    """The model alone was read while something else had the machine, once."""
    surface = Theirs(share=0.4, model_rate=900.0, noise=0.001)
    surface.alone_share = lambda setup: 1.0 if surface.measured else 0.4
    ended = run(space, surface)
    assert ended.result.proved
    gain = some(ended.result.contest(next(each for each in ended.result.baselines if each.name == "theirs")))
    assert gain.ratio < 0.5 or gain.ratio > 2


def test_what_has_to_be_beaten_is_compared_with_though_other_peoples_code_is_at_the_ceiling(space: Space) -> None:
    former = PipelineConfig(loader=Threads(workers=1, queue_size=2), device_prefetch=0)
    surface = Theirs(model_rate=3000.0, noise=0.001)
    surface.compared = (*surface.baselines(), Baseline(name="former", config=former, required=True))
    assert surface.true_rate(former) < 0.6 * surface.model_rate
    ended = run(space, surface)
    assert ended.result.stop.reason is Reason.CEILING
    assert ended.result.proved
    assert some(ended.result.contest(ended.result.baselines[-1])).faster


# ---------------------------------------------------------------- the time


@pytest.mark.parametrize("budget_seconds", [12.0, 20.0, *map(float, range(30, 52, 3))])
def test_the_budget_holds_within_ten_percent(space: Space, budget_seconds: float) -> None:
    ended = run(space, loader_bound(quirks=1), trials=999, budget_seconds=budget_seconds, patience=99)
    assert ended.result.seconds <= 1.1 * budget_seconds
    assert any(row.origin.asker is not Asker.BASELINE for row in ended.rows)
    blocks = {row.block for row in ended.rows if row.block is not None}
    assert ended.result.proved == (len(blocks) > 2) == (budget_seconds >= 30.0)  # else there is no time for three
    rounds = [each.pairs for each in ended.result.contests if each.baseline is not None]
    assert not ended.result.proved or max(rounds) >= 3  # of the winner and its rival


def test_two_blocks_prove_nothing_and_say_so(space: Space) -> None:
    ended = run(space, loader_bound(quirks=1), budget_seconds=None, trials=9, blocks=(2, 2))
    assert not ended.result.proved
    assert {each.pairs for each in ended.result.contests} <= {1, 2}
    said = "low: a proof needs 3 rounds side by side, and there was time for 2"
    assert verdict.trust_text(ended.result).startswith(said)


@pytest.mark.parametrize("seed", [4, 25, 26, 30])
def test_a_confirmation_run_ends_after_the_most_rounds_also_where_the_leader_changes(space: Space, seed: int) -> None:
    tied = Surface(model_rate=600.0, seed=seed, noise=0.8)
    ended = run(space, tied, budget_seconds=None, trials=20, blocks=(3, 6))
    assert {row.block for row in ended.rows if row.block is not None} <= {*range(6)}


def test_in_no_time_at_all_one_baseline_and_one_other_are_compared_and_the_time_it_takes_is_told(space: Space) -> None:
    told: list[Event] = []
    ended = run(space, loader_bound(quirks=1), told=told, budget_seconds=1.0)
    assert [row.origin.asker for row in ended.rows] == [Asker.RACE, Asker.BASELINE]
    (planned,) = [event for event in told if isinstance(event, BudgetPlanned)]
    assert planned.trials == 0
    assert ended.result.seconds == pytest.approx(planned.needed_seconds, rel=0.2)
    assert planned.needed_seconds < planned.advised_seconds


@dataclass(kw_only=True)
class Lasting(Surface):
    """A machine on which some trials take long, and are cut when the time that they are allowed is over."""

    takes: Callable[[Lasting, PipelineConfig, bool], float | None]
    """Returns the seconds of a trial that takes long, of a proof or not."""
    allowed: float = math.inf
    began: float = 0.0

    def allow(self, seconds: float | None) -> None:
        self.allowed = math.inf if seconds is None else seconds

    def before(self, config: PipelineConfig, proof: bool) -> None:
        self.began = self.now

    def after(self, config: PipelineConfig, proof: bool, found: Measurement) -> Measurement | TrialFailure:
        if (seconds := self.takes(self, config, proof)) is None:
            return found
        self.now = self.began + min(seconds, self.allowed)
        if self.allowed >= seconds:
            return found
        message = "The budget has no more time for this trial."
        return TrialFailure(kind=FailureKind.INTERRUPTED, phase=Phase.FILL, message=message)


def lasting(takes: Callable[[Lasting, PipelineConfig, bool], float | None]) -> Lasting:
    return Lasting(model_rate=60_000.0, quirks=1, takes=takes)


def test_a_trial_that_the_budget_cuts_says_nothing_and_the_budget_holds(space: Space) -> None:
    """All but the first three, the baselines and one other, take long."""
    surface = lasting(lambda surface, config, proof: 30.0 if len(surface.measured) > 3 else None)
    ended = run(space, surface, accelerator=False, budget_seconds=80.0, end_seconds=8.0, blocks=(0, 0))
    assert ended.result.seconds <= 1.05 * 72.0
    (cut,) = [row for row in ended.rows if row.outcome is None]
    assert cut.value is None
    assert (ended.result.failed, ended.result.cut) == (0, 1)
    assert all(each.failure is None for each in ended.result.baselines)


def test_a_baseline_runs_if_a_slow_trial_has_left_too_little_time_for_a_confirmation_run(space: Space) -> None:
    surface = lasting(lambda surface, config, proof: 40.0 if len(surface.measured) == 1 else None)
    ended = run(space, surface, budget_seconds=60.0)
    assert [(row.origin.asker, row.seconds > 30) for row in ended.rows] == [(Asker.RACE, True), (Asker.BASELINE, False)]
    assert not ended.result.proved


def test_one_other_than_the_baselines_is_not_cut_if_these_have_used_up_the_time(space: Space) -> None:
    ended = run(space, lasting(lambda surface, config, proof: 30.0), budget_seconds=20.0, blocks=(0, 0))
    assert [row.origin.asker for row in ended.rows if isinstance(row.outcome, Measurement)][:1] == [Asker.RACE]


def test_where_no_trial_trains_within_its_time_one_minute_is_spent_and_the_time_is_named(space: Space) -> None:
    surface = lasting(lambda surface, config, proof: 600.0)  # so loaded that nothing begins to train
    ended = run(space, surface, accelerator=False, budget_seconds=20.0)
    assert ended.result.winner is None
    assert ended.result.seconds <= 20.0 + 60.0
    assert "within 20 s: 1 trial had no time" in nothing_measured(ended.result).message


@pytest.mark.parametrize(("made", "says"), [(50_000.0, True), (9_000.0, False)])
def test_a_loader_alone_may_show_that_the_model_is_the_limit(space: Space, made: float, says: bool) -> None:
    class Heavy(Lasting):
        def ceiling(self, setup: ModelSetup) -> Ceiling:
            rate = {"loader_images_per_second": Estimate(value=made, low=made, high=made)}
            return super().ceiling(setup).model_copy(update=rate)

    surface = Heavy(model_rate=4_000.0, takes=lambda surface, config, proof: 600.0)
    message = nothing_measured(run(space, surface, accelerator=False, budget_seconds=20.0).result).message
    assert ("the model is the limit" in message) == says


def test_a_training_that_waits_on_idle_cores_is_sped_up_by_loaders_that_run_alone() -> None:
    class Remote(Surface):
        """A dataset of the user's whose reads wait, so that only workers beyond the cores are of use."""

        def _ceiling(self, setup: ModelSetup) -> Ceiling:
            return super()._ceiling(setup).model_copy(update={"op_costs": ()})

        def true_rate(self, config: PipelineConfig) -> float:
            return min(self.model_rate, 40.0 * (config.loader.worker_count() or self.cores))

        def after(self, config: PipelineConfig, proof: bool, found: Measurement) -> Measurement:
            self.now += 9.0
            return found.model_copy(update={"data_wait_share": 0.9, "resources": Resources(cpu_percent=10.0)})

    wide = space_of({"loader": ["threads"], "threads.workers": [1, 2, 4, 8, 16, 32, 64]})
    ended = run(wide, Remote(model_rate=2000.0), accelerator=False, budget_seconds=90.0)
    assert some(ended.result.winner).images_per_second.value > 1200.0
    assert len([row for row in ended.rows if row.origin.asker is Asker.RACE]) <= 4


@pytest.mark.parametrize("required", [False, True])
def test_a_slow_second_baseline_leaves_half_of_the_time_unless_required(space: Space, *, required: bool) -> None:
    def takes(surface: Lasting, config: PipelineConfig, proof: bool) -> float | None:
        return 60.0 if config == surface.baselines()[1].config and not proof else None  # as from a network

    surface = lasting(takes)
    first, second = surface.baselines()
    surface.compared = (first, dataclasses.replace(second, required=required))
    ended = run(space, surface, budget_seconds=90.0, blocks=(0, 0))
    slow = ended.result.baselines[1]
    assert (slow.images_per_second is not None) is required
    if not required:
        assert slow.failure is None
        assert len([row for row in ended.rows if row.value is not None]) >= 2


@pytest.mark.parametrize(
    ("before", "chosen", "least", "most"),
    [
        (0.0, {"budget_seconds": 60.0, "end_seconds": 16.0}, 20.0, 46.0),
        (30.0, {"budget_seconds": 60.0, "began": 0.0}, 30.0, 66.0),  # waiting for another tune is before it began
    ],
)
def test_what_comes_after_the_search_is_kept_of_the_budget_and_what_was_spent_before_counts(
    space: Space, before: float, chosen: dict[str, Any], least: float, most: float
) -> None:
    surface = loader_bound(quirks=1)
    surface.now = before
    ended = run(space, surface, trials=999, patience=99, **chosen)
    assert least < ended.result.seconds <= most
    assert ended.result.proved


@pytest.mark.parametrize("budget_seconds", [1.0, 12.0, 30.0])
def test_a_required_baseline_is_measured_and_proved_however_short_the_time(space: Space, budget_seconds: float) -> None:
    former = to_config({"loader": "threads", "threads.workers": 3, "threads.queue_size": 8})
    compared = (*Surface().baselines(), Baseline(name="former", config=former, required=True))
    ended = run(space, loader_bound(quirks=1, compared=compared), budget_seconds=budget_seconds, patience=99)
    *_, rival = ended.result.baselines
    assert rival.images_per_second is not None
    assert ended.result.contest(rival) is not None or budget_seconds < 30.0


def test_the_first_baseline_keeps_samples_where_the_best_does(space: Space) -> None:
    """With no time for more, a cache would be compared with what reads each file in each epoch."""
    plain = Surface().baselines()[1]
    cached = Baseline(name="cached", config=plain.config.model_copy(update={"keep": "memory"}))
    ended = run(space, loader_bound(compared=[plain, cached]), budget_seconds=200.0)
    keeps = some(ended.best_config).kept.in_memory
    first = next(each for each in ended.result.trials if each.origin is Asker.BASELINE)
    assert Kept.of(str(first.config["keep"])).in_memory is keeps is True


def test_a_model_that_takes_long_is_run_alone_in_its_usual_setup_only(space: Space) -> None:
    told: list[Event] = []
    run(space, Surface(model_rate=30.0, ceilings_seconds=43.0), told=told, budget_seconds=120.0)
    before = told[: next(at for at, event in enumerate(told) if isinstance(event, BudgetPlanned))]
    assert sum(isinstance(event, Ceiling) for event in before) == 1


@pytest.mark.parametrize(
    "useless", [{"threads.workers": [16]}, {"threads.read_ahead": [16]}, {"steps_per_execution": [8]}], ids=str
)
def test_a_space_of_nothing_but_what_brings_nothing_is_searched_all_the_same(useless: dict[str, object]) -> None:
    """Nothing waits that many workers or reads could make use of, and a model of eight steps a call is slower."""

    def alone(setup: ModelSetup) -> float:
        return 1.0 if setup.steps_per_execution == 1 else 0.9

    usual = {"loader": ["threads"], "threads.workers": [2], "threads.queue_size": [2, 8], "finish": ["host", "device"]}
    compared = None if "steps_per_execution" in useless else ()  # baselines are of one step
    ended = run(space_of(usual | useless), loader_bound(compared=compared, alone_share=alone))
    assert ended.result.winner is not None


# ---------------------------------------------------------------- trials with a reason


def test_what_was_the_best_elsewhere_is_tried_first(space: Space) -> None:
    surface = loader_bound(quirks=1)
    known = max(candidates(space, surface.facts()).values(), key=surface.true_rate)
    ended = run(space, surface, known=[known], trials=4)
    assert (str(ended.rows[0].origin), ended.rows[0].key) == ("known", known.key())


def test_the_race_goes_on_where_nothing_known_can_run(space: Space) -> None:
    known = PipelineConfig(loader=Threads(workers=4))
    ended = run(space, loader_bound(quirks=1), known=[known], limits=Limits(workers=2), trials=6)
    assert not any(row.origin.asker is Asker.KNOWN for row in ended.rows)
    assert any(row.origin.asker is Asker.RACE for row in ended.rows)


def test_a_converted_form_that_should_be_faster_is_measured_but_does_not_win() -> None:
    limits = Limits(convert=False, only={"keep": ("none", "array")})
    converting = space_of({**PARAMETERS, "keep": ["none", "memory", "array", "array+memory"]})
    ended = run(converting, loader_bound(), limits=limits, budget_seconds=300.0)
    advised = [row for row in ended.rows if row.origin.asker is Asker.ADVICE]
    assert {row.config.kept.form for row in advised} == {"array"}
    assert some(ended.best_config).kept.form == "files"
    best = max(row.value for row in ended.rows if row.value is not None)
    assert best == max(row.value for row in advised if row.value is not None)


@pytest.mark.parametrize(
    ("only", "chosen"),
    [({"keep": ("none", "array")}, {"convert": False}), ({}, {})],  # a cache holds all
    ids=["the user refuses it", "it should bring little"],
)
def test_no_form_is_measured_unasked_or_for_little(
    only: dict[str, tuple[SettingValue, ...]], chosen: dict[str, Any]
) -> None:
    converting = space_of({**PARAMETERS, "keep": ["none", "memory", "array", "array+memory"]})
    ended = run(converting, loader_bound(), limits=Limits(convert=False, only=only), budget_seconds=300.0, **chosen)
    assert {row.config.kept.form for row in ended.rows} == {"files"}
