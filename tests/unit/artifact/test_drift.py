"""Whether a training, or a profile, is as fast as it was promised. With a real child: tests/integration."""

import dataclasses
import datetime
import math
import os
import re
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from autopipe import again
from autopipe.api import tuning
from autopipe.artifact import drift, pick
from autopipe.artifact.drift import DriftMonitor, DriftWarning, Promise, Rates, Result, Verdict, judge
from autopipe.artifact.schema import Profile
from autopipe.measure import facts, fingerprint
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.measure.stats import USUAL_NOISE
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.devices.callbacks import EpochFigures
from autopipe.pipeline.loaders.workers import Processes, Threads
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.search import lock
from autopipe.search.result import Contest, Raced, Trial
from autopipe.values import Estimate, JsonObject
from tests.fakes.facts import DESCRIBED, known, measurement
from tests.fakes.profiles import NOON, about, ceiling, config, digest, hardware, profile, trial

KEY = "0123456789ab"
RIVAL = config(loader=Processes(workers=2))
NAME = PipelineConfig.model_validate(RIVAL).short()
LIES = "/my models/retune/autopipe.json"
PROMISE = Promise(profile=profile(hardware=hardware(cores=4)), artifact=Path(LIES))
TOMORROW = NOON + datetime.timedelta(days=1)
SHARE = 0.86
SLOWER = "The training takes 800 images/s, 20% less than the 1,000 when its pipeline was tuned"
FEWER_CORES = "it may use 2 of the 4 cores that it had then."


def fell(rate: float, waits: float = 0.25, others: float = 0.0, cores: int = 4, promise: Promise = PROMISE) -> str:
    figures = EpochFigures(images_per_second=rate, data_wait_share=waits, cores_of_others=others)
    return drift.shortfall(promise, figures, cores) or ""


def test_what_is_in_the_way_of_a_slow_training_is_told_with_what_to_run() -> None:
    cases: list[tuple[float, float, int, str, str]] = [
        (0.25, 0.2, 4, f"{SLOWER}, and waits for data 25% of the time (5% then).", "retune"),
        (0.25, 1.5, 4, "others on this machine keep 1.5 of", "check"),
        (0.06, 1.5, 4, "waits no longer for data (6% of the time)", "check"),
        (0.06, 0.0, 2, FEWER_CORES, "retune"),
        (0.25, 0.0, 2, FEWER_CORES, "retune"),
    ]
    for waits, others, cores, said, command in cases:
        found = fell(800.0, waits, others, cores)
        assert said in found
        assert found.endswith(f"Run: {again.autopipe(command, LIES)}")


def swayed(noise: float) -> tuple[Trial, ...]:
    """Return trials of the winner of a profile with so much noise, and one of its rival."""
    of_it = [trial(config(), 1000.0 * math.exp(by * noise)) for by in (-1, 0, 1)]
    return (*(each.model_copy(update={"key": KEY}) for each in of_it), trial(RIVAL, 900.0))


def test_a_training_keeps_the_promise_unless_it_is_slower_beyond_what_the_tune_saw() -> None:
    cases: list[tuple[dict[str, Any], float, bool]] = [
        ({}, 2000.0, True),
        ({}, 961.0, True),  # within the interval
        ({"trials": swayed(0.01)}, 900.0, False),
        ({"trials": swayed(0.1)}, 900.0, True),  # whose trials differed by as much in the tune
        ({"images_per_second": Estimate.of_one(1000.0)}, 510.0, True),  # steps of many seconds, in one window
        ({"images_per_second": Estimate.of_one(1000.0)}, 490.0, False),  # half is too little whatever its interval
    ]
    for tuned, rate, keeps in cases:
        promise = Promise(profile=profile(hardware=hardware(cores=4), **tuned))
        assert (fell(rate, promise=promise) == "") is keeps
        assert not keeps or fell(rate, 0.9, 3.0, 1, promise) == ""


def test_an_epoch_in_which_a_cache_fills_does_not_count_and_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, cached = DriftMonitor()._judge, Promise(profile=profile(config=config(keep="memory")))
    slow, trainer = EpochFigures(images_per_second=1.0, data_wait_share=1.0), types.SimpleNamespace(promise=cached)
    judge(trainer, 0, slow)  # a warning would be an error
    with monkeypatch.context() as patch:  # what a kernel of tomorrow may make of a file of limits
        patch.setattr("autopipe.hardware.machine.usable_cores", Mock(side_effect=ValueError("invalid literal: 'max'")))
        with pytest.warns(DriftWarning, match="cannot be compared"):
            judge(trainer, 1, slow)
        judge(trainer, 2, slow)
    with pytest.warns(DriftWarning, match="takes 1 images/s"):
        judge(trainer, 3, slow)
    judge(trainer, 4, slow)  # each is told once


def within(value: float, spread: float = 0.01) -> Estimate:
    return Estimate(value=value, low=(1 - spread) * value, high=(1 + spread) * value)


def rates(rate: float, ceiling: float | None = 1250.0, spread: float = 0.01) -> Rates:
    share = None if ceiling is None else within(rate / ceiling, spread)
    return Rates(images_per_second=within(rate, spread), share=share)


def by_turns(*rounds: tuple[float, float], spread: float = 0.01) -> Rates:
    """Return the rates of rounds of (pipeline, model alone). Their windows stray by `spread`."""
    return Rates.by_turns([(within(rate, spread), within(alone, spread)) for rate, alone in rounds])


def checked(known: Profile, now: Rates, at: datetime.datetime = TOMORROW) -> Result:
    return drift.with_rates(judge(known, hardware(), at, known.workload), known, now)


def shaken(share_of_model: float = SHARE, alone: float = 1350.0, **more: Any) -> Profile:
    """Return the profile of a machine whose fastest moment gave the model alone this rate: 74 % by that."""
    return profile(ceiling=ceiling(alone), share_of_model=share_of_model, **more)


def test_the_figures_of_another_version_or_year_can_be_compared_and_those_of_another_workload_cannot() -> None:
    cases: list[tuple[str, int, int, bool, int]] = [
        ("2.22.0", 32, 0, True, 1),
        ("2.21.0", 32, 0, True, 0),
        ("2.22.0", 8, 0, False, 2),
        ("2.22.0", 32, 400, True, 2),
    ]
    for versions, batch_size, age_days, is_comparable, reasons in cases:
        here = hardware(packages={"tensorflow": versions, "keras": "3.15.0"})
        now = NOON + datetime.timedelta(days=age_days)
        found = judge(profile(), here, now, digest(batch_size=batch_size))
        assert (found.is_comparable, len(found.reasons)) == (is_comparable, reasons)


def test_the_same_machine_workload_and_speed_fit_and_others_are_stale_with_every_reason() -> None:
    result = checked(profile(), rates(990.0))
    assert (result.verdict, result.exit_code, result.reasons, result.age_days) == (Verdict.FITS, 0, (), 1)
    assert judge(profile(), hardware(), NOON - datetime.timedelta(days=2)).age_days == 0  # another machine's clock
    assert (result.share, result.recorded_share) == pytest.approx((0.792, 0.8))
    later, other = NOON + datetime.timedelta(days=200), digest(samples=90_000, batch_size=64)
    result = judge(profile(), hardware(), later, other)
    assert (result.verdict, result.exit_code) == (Verdict.STALE, 4)
    assert result.reasons == (
        "the workload's number of samples was 2000 and is 90000 now",
        "the workload's batch size was 32 and is 64 now",
        "it was measured 200 days ago, more than 180",
    )
    drifted = checked(profile(), rates(500.0, ceiling=None), later)  # which outweighs staleness
    assert (drifted.verdict, len(drifted.reasons)) == (Verdict.DRIFTED, 2)


ONE_WINDOW = profile(images_per_second=Estimate.of_one(1000.0), ceiling=None)


@pytest.mark.parametrize(
    ("known", "now", "reason"),
    [
        pytest.param(profile(), rates(900.0), "reaches 72% of what the model can take, but 80%", id="a lower share"),
        pytest.param(profile(), rates(600.0, ceiling=750.0), None, id="a machine that is slower as a whole"),
        pytest.param(profile(), rates(900.0, spread=0.1), None, id="an uncertain measurement"),
        pytest.param(profile(ceiling=None), rates(980.0), None, id="plain rates without a ceiling"),
        pytest.param(profile(ceiling=None), rates(800.0), "feeds 800 images/s, but 1,000", id="lower rate"),
        pytest.param(
            profile(images_per_second=about(8.4), ceiling=None), rates(7.6, ceiling=None),
            "it feeds 7.6 images/s, but 8.4 when it was tuned", id="slow rates, with digits that differ",
        ),
        pytest.param(profile(ceiling=ceiling(200.0)), rates(1000.0), None, id="a ceiling read too low then"),
        pytest.param(shaken(1.0, alone=200.0), rates(1000.0), None, id="a ceiling read too low, and a share told"),
        pytest.param(shaken(1.0, alone=950.0), rates(1060.0, ceiling=1000.0), None, id="no share above all of it"),
        pytest.param(shaken(), rates(720.0, ceiling=1000.0), None, id="below one reading of the share then"),
        pytest.param(shaken(), rates(660.0, ceiling=1000.0), "reaches 66% of .* but 86%", id="below both readings"),
        pytest.param(ONE_WINDOW, rates(600.0, ceiling=None, spread=0.02), None, id="one window, over half"),
        pytest.param(ONE_WINDOW, rates(300.0, ceiling=None, spread=0.02), "feeds 300", id="under half"),
    ],
)  # fmt: skip
def test_a_rate_is_drift_only_if_it_is_lower_beyond_doubt(known: Profile, now: Rates, reason: str | None) -> None:
    result = checked(known, now)
    assert (result.verdict, result.exit_code) == ((Verdict.FITS, 0) if reason is None else (Verdict.DRIFTED, 5))
    assert (result.reasons == ()) if reason is None else re.search(reason, " ".join(result.reasons))
    assert result.share is None or result.share <= 1


@pytest.mark.parametrize(
    ("before", "now", "overtaken"), [(700, 0.9, 0), (700, 1.2, 1), (1200, 1.22, 0), (700, 1.03, 0)]
)
def test_what_was_beaten_and_is_faster_now_is_drift(before: float, now: float, overtaken: int) -> None:
    known = profile(trials=(trial(RIVAL, before),))
    found = checked(known, dataclasses.replace(rates(990.0), others={NAME: within(now, 0.02)}))
    assert found.verdict is (Verdict.DRIFTED if overtaken else Verdict.FITS)
    assert [NAME in each for each in found.reasons] == [True] * overtaken


def test_next_to_a_winner_come_its_strongest_rival_of_another_kind_and_the_fastest_plain_code() -> None:
    def foreign(code: str, rate: float) -> Trial:
        return trial(PipelineConfig(loader=Foreign(code=code), finish="host").model_dump(mode="json"), rate)

    ran = (
        trial(config(loader=Threads(workers=4)), 990.0),
        trial(config(keep="array"), 1500.0),  # has to be converted
        trial(RIVAL, 600.0),
        foreign("bench.py:mine", 950.0),  # the artifact does not choose what runs
        foreign("keras", 400.0),
        foreign("tf.data", 1100.0),
    )
    found = [(each.loader, round(ratio, 6)) for each, ratio in pick.contenders(profile(trials=ran))]
    assert found == [(Processes(workers=2), 1.0), (Foreign(code="tf.data"), 1.1)]
    assert [each.loader for each, _ in pick.contenders(profile(trials=ran[:1]))] == [Threads(workers=4)]
    raced = [Raced(config=config(loader=Processes(workers=each)), images_per_second=1e3 * each) for each in (3, 4)]
    alone = pick.contenders(profile(raced=tuple(raced), config=config(steps_per_execution=8)))
    assert [(each.loader, each.steps_per_execution) for each, _ in alone] == [(Processes(workers=4), 8)]
    # The last trial of a rival alone is one reading: in its rounds it was 3 % ahead, by which it cost more.
    contest = Contest(key=PipelineConfig.model_validate(RIVAL).key(), config=RIVAL, ratio=1 / 1.03, low=0.9, pairs=4)
    ((_, ratio),) = pick.contenders(profile(trials=(trial(RIVAL, 700.0),), contests=(contest,)))
    assert ratio == pytest.approx(1.03)


def test_a_share_is_that_of_each_round_as_sure_as_windows_and_rounds_are_together() -> None:
    swaying = by_turns((860.0, 1000.0), (430.0, 500.0), (1720.0, 2000.0))
    share = known(swaying.share)
    assert (share.value, share.low, share.high) == pytest.approx((0.86, 0.86 * 0.99, 0.86 * 1.01))
    assert swaying.images_per_second.value == pytest.approx(860.0)
    assert swaying.images_per_second.high > 1400.0
    model, whole, short = within(1000.0), within(600.0), within(600.0, spread=1.0)  # too short for an interval
    assert known(Rates.by_turns([(whole, model), (whole, model), (short, model)]).share).high == pytest.approx(0.606)
    for rounds in (1, 2):  # too few to disagree
        share = known(by_turns(*[(800.0, 1000.0), (820.0, 1000.0)][:rounds], spread=0.1).share)
        assert share.high == pytest.approx(1.1 * share.value)


def test_only_rounds_that_agree_are_drift_and_not_what_sways_from_trial_to_trial_as_in_the_tune() -> None:
    # What a neighbour took of the model in one round hides nothing.
    for shares, is_drift in ((0.60, 0.70, 0.80), False), ((0.69, 0.70, 0.71), True), ((0.60, 0.60, 0.90), True):
        found = checked(profile(), by_turns(*((1000 * share, 1000.0) for share in shares)))
        assert (found.verdict is Verdict.DRIFTED) is is_drift
    for noise, is_drift in ((0.01, True), (0.1, False)):
        known = profile(trials=swayed(noise))
        assert (drift.noise(known), drift.noise(profile())) == pytest.approx((noise, USUAL_NOISE))
        now = Rates.by_turns([(within(850.0), within(1250.0))], {NAME: [within(920.0)]}, drift.noise(known))
        assert (checked(known, now).verdict is Verdict.DRIFTED) is is_drift


@dataclasses.dataclass
class Machine:
    """A machine that is faster at some readings than at others: (model, pipeline) in each round."""

    paces: Sequence[tuple[float, float]] = ((1.0, 1.0),) * 3
    asked: list[str] = dataclasses.field(default_factory=list)
    wanted: list[JsonObject] = dataclasses.field(default_factory=list)

    def ceiling(self, setup: ModelSetup, options: JsonObject | None = None) -> facts.Ceiling:
        rate = 1000.0 * self.paces[len(self.asked) // 2][0]
        self.asked.append("model")
        self.wanted.append(options or {})
        return facts.Ceiling(model_images_per_second=within(rate), model_core_seconds_per_image=0.0, **setup._asdict())

    def measure(self, config: PipelineConfig, options: JsonObject) -> Measurement:
        rate = SHARE * 1000.0 * self.paces[len(self.asked) // 2][1]
        self.asked.append("pipeline")
        return measurement(config, [0.99 * rate, rate, 1.01 * rate] * 4, batch_size=8)


@pytest.fixture(autouse=True)
def _own_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "MEASURING", f"autopipe-test-{os.getpid()}")


def measured(machine: Any, here: fingerprint.Hardware | None = None) -> Result:
    now = datetime.datetime.now(datetime.UTC)
    known = shaken(alone=1000 * SHARE / 0.74, workload=DESCRIBED.digest, measured_at=now)
    return tuning.check_with(tuning.Processes(machine), DESCRIBED, known, here or hardware())


@pytest.mark.parametrize(
    "paces",
    [
        pytest.param([(0.8, 1.0), (1.0, 1.0), (1.0, 1.0)], id="the first reading of the model is disturbed"),
        pytest.param([(1.0, 1.0), (1.0, 0.8), (1.0, 1.0)], id="one of the pipeline is"),
        pytest.param([(1.0, 1.0), (0.5, 0.5), (2.0, 2.0)], id="all of the machine gets slower, and faster"),
    ],
)
def test_now_and_then_are_the_share_that_was_told_however_the_machine_sways(paces: list[tuple[float, float]]) -> None:
    machine = Machine(paces)
    result = measured(machine)
    assert (result.share, result.recorded_share) == (pytest.approx(SHARE), SHARE)  # type: ignore[comparison-overlap]
    assert (result.verdict, result.reasons) == (Verdict.FITS, ())
    assert machine.asked == ["model", "pipeline"] * 3
    assert machine.wanted == [{"model_only": True, "again": True}] * 3


def test_a_machine_without_a_profile_is_stale_and_not_measured() -> None:
    result = measured(machine := Machine(), hardware(cores=4))
    assert (result.verdict, result.exit_code, result.profile, machine.asked) == (Verdict.STALE, 4, None, [])
    assert "usable cores: 2 there, 4 here" in result.reasons[0]


def test_a_slow_model_is_measured_once_unless_that_speaks_against_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_LONG_SECONDS", 0.0)
    machines = Machine(), Machine([(1.0, 0.5), (1.0, 1.0), (1.0, 1.0)]), Machine([(1.0, 0.5)] * 3)
    assert [measured(each).verdict for each in machines] == [Verdict.FITS, Verdict.FITS, Verdict.DRIFTED]
    assert [machine.asked for machine in machines[::2]] == [["model", "pipeline"], ["model", "pipeline"] * 3]


def test_a_round_that_fails_after_the_first_takes_nothing_from_it() -> None:
    class Failing(Machine):
        def measure(self, *arguments: Any) -> Any:
            answer = super().measure(*arguments)
            if self.asked.count("pipeline") < 2:
                return answer
            return TrialFailure(kind=FailureKind.CRASHED, phase=Phase.FIRST_BATCH, message="it crashed", log_tail="")

    assert measured(Failing()).share == pytest.approx(SHARE)
