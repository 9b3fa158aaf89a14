"""The rules that end a search, how its time is shared out, and the trials that have a reason."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from autopipe.measure.facts import Ceiling, Limits
from autopipe.measure.outcome import FailureKind, Measurement, Phase, Resources, TrialFailure
from autopipe.pipeline.config import ModelSetup, PipelineConfig, SettingValue
from autopipe.pipeline.loaders.workers import Threads
from autopipe.search.feasible import candidates
from autopipe.search.measurer import Baseline
from autopipe.search.result import Asker, BudgetPlanned, Event, Reason, nothing_measured
from autopipe.search.space import Space, to_config
from autopipe.search.study import ceiling_stop, needed_share, no_gain_stop
from autopipe.values import Estimate
from tests.fakes.surface import Surface
from tests.unit.search.conftest import PARAMETERS, Changing, loader_bound, run, some, space_of


def rate(value: float, width: float = 0.02) -> Estimate:
    return Estimate(value=value, low=value * (1 - width), high=value * (1 + width))


CEILING = Ceiling(model_images_per_second=rate(1000.0), model_core_seconds_per_image=0.0)


def test_at_the_ceiling_there_is_nothing_to_gain_and_that_follows_from_what_can_be_told_apart() -> None:
    stops = [ceiling_stop(rate(reached), CEILING, share=0.97) for reached in (971.0, 1150.0, 960.0)]
    assert [stop is not None for stop in stops] == [True, True, False]
    assert not any(map(str.isdigit, some(stops[0]).message))  # the confirmation run measures both anew
    still = CEILING.model_copy(update={"model_images_per_second": rate(1000.0, 0.001)})
    assert needed_share(rate(900.0, 0.001), still, 0.97) == 0.97
    assert needed_share(rate(900.0, 0.5), still, 0.97) == pytest.approx(0.95)
    assert 0.95 < needed_share(rate(900.0, 0.028), still, 0.97) < 0.97
    assert needed_share(rate(900.0, 0.5), still, math.inf) == math.inf  # a search that is never to end for it


def test_no_gain_means_none_beyond_the_interval_of_the_best_before() -> None:
    cases: list[tuple[Estimate, Estimate, bool]] = [
        (rate(100.0), rate(101.0), True),
        (rate(100.0), rate(103.0), False),  # beyond the interval of the best before
        # Steps of eight seconds, in one window each: the best rose from 100 to 195, which once was taken for none.
        (Estimate.of_one(100.0), Estimate.of_one(195.0), False),
        (rate(100.0), Estimate.of_one(101.0), True),
    ]
    for before, now, ends in cases:
        stop = no_gain_stop(before, now, patience=4)
        assert (None if stop is None else stop.reason) == (Reason.NO_GAIN if ends else None)


NOTHING_NEW = {"beyond": True, "trials": 40, "reached_share": 2.0}
KERAS = {"loader": ["keras"], "devices": [2, 1]}
SLOW_TO_BEGIN = Surface(model_rate=900.0, sample_count=2000, noise=0.001)


@pytest.mark.parametrize(
    ("surface", "only", "chosen", "reason"),
    [
        pytest.param(loader_bound(quirks=1, compared=()), {}, {"trials": 1}, Reason.TRIALS, id="trials"),
        pytest.param(loader_bound(quirks=1), {}, {}, Reason.NO_GAIN, id="no gain"),
        pytest.param(Surface(), KERAS, NOTHING_NEW, Reason.EXHAUSTED, marks=pytest.mark.slow, id="an Optuna sampler"),
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


def test_a_model_that_is_the_limit_ends_the_search_before_it_begins(space: Space) -> None:
    ended = run(space, Surface(model_rate=30.0))
    assert ended.result.stop.reason is Reason.CEILING
    assert len([row for row in ended.rows if row.block is None]) <= 3
    assert some(ended.best_config).loader.worker_count() == 1  # the simplest that does
    assert some(ended.result.winner).share_of_model == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("more", [2.0, 1.15])
def test_a_model_that_makes_more_in_the_proof_was_not_the_limit(space: Space, more: float) -> None:
    disturbed = Changing(model_rate=30.0, later={"alone_share": lambda setup: more})  # by what leaves before the proof
    ended = run(space, disturbed, budget_seconds=600.0)
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


def test_the_ceiling_of_another_setup_or_of_what_pays_too_much_once_leaves_something_to_gain(space: Space) -> None:
    surface = loader_bound(quirks=1, alone_share=lambda setup: 0.001 if setup.finish == "host" else 1.0)
    assert run(space, surface).result.stop.reason is not Reason.CEILING  # the baselines finish on the host
    costly = Surface(model_rate=900.0, decode_seconds=0.003, sample_count=20_000, noise=0.001)
    assert some(run(space, costly, epochs=2, budget_seconds=None, patience=99).best_config).keep == "none"


def test_at_the_ceiling_what_takes_less_is_tried_before_the_end(space: Space) -> None:
    surface = Surface(model_rate=1500.0)
    known = [to_config({"loader": "threads", "threads.workers": 8, "threads.queue_size": 8, "keep": "memory"})]
    ended = run(space, surface, accelerator=False, known=known, budget_seconds=300.0)
    assert ended.result.stop.reason is Reason.CEILING
    cheaper = [row.config.loader.worker_count() or 99 for row in ended.rows if row.origin.detail == "cheaper"]
    assert min(cheaper) < 8


@pytest.mark.parametrize("budget_seconds", [12.0, 20.0, *map(float, range(30, 52, 3))])
def test_the_budget_holds_within_ten_percent(space: Space, budget_seconds: float) -> None:
    ended = run(space, loader_bound(quirks=1), trials=999, budget_seconds=budget_seconds, patience=99)
    assert ended.result.seconds <= 1.1 * budget_seconds
    assert any(row.origin.asker is not Asker.BASELINE for row in ended.rows)
    blocks = {row.block for row in ended.rows if row.block is not None}
    assert ended.result.proved == (len(blocks) > 2) == (budget_seconds >= 30.0)  # else there is no time for three
    rounds = [each.pairs for each in ended.result.contests if each.baseline is not None]
    assert not ended.result.proved or max(rounds) >= 3  # of the winner and its rival


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

    takes: Callable[[Any, PipelineConfig, bool], float | None]
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
    surface = lasting(lambda at, config, proof: 30.0 if len(at.measured) > 3 else None)  # but for baselines and one
    ended = run(space, surface, accelerator=False, budget_seconds=80.0, end_seconds=8.0, blocks=(0, 0))
    assert ended.result.seconds <= 1.05 * 72.0
    (cut,) = [row for row in ended.rows if row.outcome is None]
    assert cut.value is None
    assert (ended.result.failed, ended.result.cut) == (0, 1)
    assert all(each.failure is None for each in ended.result.baselines)


def test_where_trials_take_long_one_of_ours_and_a_baseline_run_or_the_time_is_named(space: Space) -> None:
    ended = run(space, lasting(lambda at, config, proof: 40.0 if len(at.measured) == 1 else None), budget_seconds=60.0)
    assert [(row.origin.asker, row.seconds > 30) for row in ended.rows] == [(Asker.RACE, True), (Asker.BASELINE, False)]
    assert not ended.result.proved  # for which too little time is left
    ended = run(space, lasting(lambda at, config, proof: 30.0), budget_seconds=20.0, blocks=(0, 0))
    assert [row.origin.asker for row in ended.rows if isinstance(row.outcome, Measurement)][:1] == [Asker.RACE]
    loaded = lasting(lambda at, config, proof: 600.0)  # so that nothing begins to train
    ended = run(space, loaded, accelerator=False, budget_seconds=20.0)
    assert ended.result.winner is None
    assert ended.result.seconds <= 20.0 + 60.0
    assert "within 20 s: 1 trial had no time" in nothing_measured(ended.result).message
    fed = some(ended.result.ceiling).model_copy(update={"loader_images_per_second": rate(1e6)})
    assert "the model is the limit" in nothing_measured(ended.result.model_copy(update={"ceiling": fed})).message


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


def test_what_comes_before_and_after_the_search_counts_against_the_budget(space: Space) -> None:
    cases: list[tuple[float, dict[str, Any], float, float]] = [
        (0.0, {"end_seconds": 16.0}, 20.0, 46.0),  # which are kept for what comes after the search
        (30.0, {"began": 0.0}, 30.0, 66.0),  # waiting for another tune is before it began
    ]
    for before, chosen, least, most in cases:
        surface = loader_bound(quirks=1)
        surface.now = before
        ended = run(space, surface, trials=999, patience=99, budget_seconds=60.0, **chosen)
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


def test_what_was_the_best_elsewhere_is_tried_first_if_it_can_run(space: Space) -> None:
    surface = loader_bound(quirks=1)
    known = max(candidates(space, surface.facts()).values(), key=surface.true_rate)
    ended = run(space, surface, known=[known], trials=4)
    assert (str(ended.rows[0].origin), ended.rows[0].key) == ("known", known.key())
    wide = PipelineConfig(loader=Threads(workers=4))
    ended = run(space, loader_bound(quirks=1), known=[wide], limits=Limits(workers=2), trials=6)
    assert Asker.RACE in {row.origin.asker for row in ended.rows}
    assert wide.key() not in {row.key for row in ended.rows}


def test_a_converted_form_that_should_be_faster_is_measured_and_none_unasked_or_for_little_and_none_wins() -> None:
    converting = space_of({**PARAMETERS, "keep": ["none", "memory", "array", "array+memory"]})
    limits, usual = Limits(convert=False, only={"keep": ("none", "array")}), Limits(convert=False)
    ended, refused, little = (
        run(converting, loader_bound(), budget_seconds=300.0, limits=each, convert=convert)
        for each, convert in ((limits, None), (limits, False), (usual, None))  # a cache holds all
    )
    advised = [row for row in ended.rows if row.origin.asker is Asker.ADVICE]
    assert {row.config.kept.form for row in advised} == {"array"}
    assert some(ended.best_config).kept.form == "files"
    assert max(row.value or 0.0 for row in ended.rows) == max(row.value or 0.0 for row in advised)
    assert {row.config.kept.form for row in (*refused.rows, *little.rows)} == {"files"}
