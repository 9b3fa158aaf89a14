"""Whether a training, or a profile, is as fast as it was promised. With a real child: tests/integration."""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import re
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from autopipe import again
from autopipe.api import tuning
from autopipe.artifact import drift, pick
from autopipe.artifact.drift import (
    DriftMonitor,
    DriftWarning,
    Promise,
    Rates,
    Result,
    Verdict,
    judge,
    shortfall,
    with_rates,
)
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
from tests.fakes.facts import DESCRIBED, known
from tests.fakes.measurements import measurement
from tests.fakes.profiles import NOON, about, ceiling, config, digest, hardware, profile, trial

KEY = "0123456789ab"
LIES = "/my models/retune/autopipe.json"
PROMISE = Promise(profile=profile(hardware=hardware(cores=4)), artifact=Path(LIES))


def fell(rate: float, waits: float, *, others: float = 0.0, cores: int = 4, promise: Promise = PROMISE) -> str | None:
    return shortfall(
        promise, EpochFigures(images_per_second=rate, data_wait_share=waits, cores_of_others=others), cores
    )


@pytest.mark.parametrize("rate", [2000.0, 1000.0, 961.0])
def test_a_training_within_the_interval_keeps_the_promise(rate: float) -> None:
    assert fell(rate, 0.9, others=3.0, cores=1) is None


def test_a_training_that_waits_for_data_is_told_to_retune() -> None:
    assert fell(800.0, 0.25, others=0.2) == (
        "The training takes 800 images/s, 20% less than the 1,000 when its pipeline was tuned, "
        f"and waits for data 25% of the time (5% then). Run: {again.autopipe('retune', LIES)}"
    )


@pytest.mark.parametrize(
    ("waits", "others", "cores", "said", "command"),
    [
        (0.25, 1.5, 4, "others on this machine keep 1.5 of", "check"),
        (0.06, 1.5, 4, "waits no longer for data (6% of the time)", "check"),
        (0.06, 0.0, 2, "it may use 2 of the 4 cores that it had then.", "retune"),
        (0.25, 0.0, 2, "it may use 2 of the 4 cores that it had then.", "retune"),
    ],
    ids=str,
)
def test_what_is_in_the_way_of_a_slow_training_is_told_with_what_to_run(
    waits: float, others: float, cores: int, said: str, command: str
) -> None:
    found = known(fell(800.0, waits, others=others, cores=cores))
    assert said in found
    assert found.endswith(f"Run: {again.autopipe(command, LIES)}")


@pytest.mark.parametrize(("noise", "warns"), [(0.01, True), (0.1, False)])
def test_a_machine_whose_trials_differed_by_as_much_in_the_tune_keeps_the_promise(noise: float, warns: bool) -> None:
    swaying = Promise(profile=profile(hardware=hardware(cores=4), trials=swayed(noise)))
    assert (fell(900.0, 0.25, promise=swaying) is not None) is warns


def swayed(noise: float) -> tuple[Trial, ...]:
    """Return trials of the winner of a profile with so much noise, and one of its rival."""
    of_it = [trial(config(), 1000.0 * math.exp(by * noise)) for by in (-1, 0, 1)]
    return (*(each.model_copy(update={"key": KEY}) for each in of_it), trial(RIVAL, 900.0))


def test_half_of_the_promise_is_too_little_whatever_its_interval_or_cores() -> None:
    one_window = profile(hardware=hardware(cores=4), images_per_second=Estimate.of_one(1000.0))  # steps of many seconds
    once = Promise(profile=one_window)
    assert fell(510.0, 0.25, promise=once) is None
    assert fell(490.0, 0.25, promise=once) is not None


def test_the_first_epoch_does_not_count_if_a_cache_fills_in_it() -> None:
    judge = DriftMonitor()._judge
    cached = types.SimpleNamespace(promise=Promise(profile=profile(config=config(keep="memory"))))
    slow = EpochFigures(images_per_second=1.0, data_wait_share=1.0)
    judge(cached, 0, slow)  # a warning would be an error
    with pytest.warns(DriftWarning):
        judge(cached, 1, slow)
    judge(cached, 2, slow)  # told once


def test_a_failure_to_compare_ends_no_training_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> int:
        raise ValueError("invalid literal for int(): 'max'")  # what a kernel of tomorrow may make of a file of limits

    judge, trainer = DriftMonitor()._judge, types.SimpleNamespace(promise=PROMISE)
    slow = EpochFigures(images_per_second=1.0, data_wait_share=1.0)
    with monkeypatch.context() as patch:
        patch.setattr("autopipe.hardware.machine.usable_cores", unreadable)
        with pytest.warns(DriftWarning, match="cannot be compared"):
            judge(trainer, 0, slow)
        judge(trainer, 1, slow)
    with pytest.warns(DriftWarning, match="takes 1 images/s"):
        judge(trainer, 2, slow)


# ---------------------------------------------------------------- check

TOMORROW = NOON + datetime.timedelta(days=1)
SHARE = 0.86


def within(value: float, spread: float = 0.01) -> Estimate:
    return Estimate(value=value, low=(1 - spread) * value, high=(1 + spread) * value)


def rates(rate: float, ceiling: float | None = 1250.0, spread: float = 0.01) -> Rates:
    share = None if ceiling is None else within(rate / ceiling, spread)
    return Rates(images_per_second=within(rate, spread), share=share)


def by_turns(*rounds: tuple[float, float], spread: float = 0.01) -> Rates:
    """Return the rates of rounds of (pipeline, model alone). Their windows stray by `spread`."""
    return Rates.by_turns([(within(rate, spread), within(alone, spread)) for rate, alone in rounds])


def checked(known: Profile, now: Rates, at: datetime.datetime = TOMORROW) -> Result:
    return with_rates(judge(known, hardware(), at, known.workload), known, now)


def shaken(share_of_model: float = SHARE, alone: float = 1350.0, **more: Any) -> Profile:
    """Return the profile of a machine whose fastest moment gave the model alone this rate: 74 % by that."""
    return profile(ceiling=ceiling(alone), share_of_model=share_of_model, **more)


def test_the_same_machine_workload_and_speed_fit() -> None:
    result = checked(profile(), rates(990.0))
    assert (result.verdict, result.exit_code, result.reasons) == (Verdict.FITS, 0, ())
    assert result.age_days == 1
    assert judge(profile(), hardware(), NOON - datetime.timedelta(days=2)).age_days == 0  # another machine's clock
    assert (result.share, result.recorded_share) == pytest.approx((0.792, 0.8))


@pytest.mark.parametrize(
    ("versions", "batch_size", "age_days", "is_comparable", "reasons"),
    [("2.22.0", 32, 0, True, 1), ("2.21.0", 32, 0, True, 0), ("2.22.0", 8, 0, False, 2), ("2.22.0", 32, 400, True, 2)],
)
def test_the_figures_of_another_version_or_year_can_be_compared_and_those_of_another_workload_cannot(
    versions: str, batch_size: int, age_days: int, is_comparable: bool, reasons: int
) -> None:
    here = hardware(packages={"tensorflow": versions, "keras": "3.15.0"})
    now = NOON + datetime.timedelta(days=age_days)
    found = judge(profile(), here, now, digest(batch_size=batch_size))
    assert (found.is_comparable, len(found.reasons)) == (is_comparable, reasons)


def test_another_workload_and_age_make_a_profile_stale_with_every_reason() -> None:
    result = judge(profile(), hardware(), NOON + datetime.timedelta(days=200), digest(samples=90_000, batch_size=64))
    assert (result.verdict, result.exit_code) == (Verdict.STALE, 4)
    assert result.reasons == (
        "the workload's number of samples was 2000 and is 90000 now",
        "the workload's batch size was 32 and is 64 now",
        "it was measured 200 days ago, more than 180",
    )


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


RIVAL = config(loader=Processes(workers=2))
NAME = PipelineConfig.model_validate(RIVAL).short()


@pytest.mark.parametrize(
    ("before", "now", "overtaken"),
    [(700.0, 0.9, False), (700.0, 1.2, True), (1200.0, 1.22, False), (700.0, 1.03, False)],
)
def test_what_was_beaten_and_is_faster_now_is_drift(before: float, now: float, overtaken: bool) -> None:
    known = profile(trials=(trial(RIVAL, before),))
    found = checked(known, dataclasses.replace(rates(990.0), others={NAME: within(now, 0.02)}))
    assert found.verdict is (Verdict.DRIFTED if overtaken else Verdict.FITS)
    assert not overtaken or (len(found.reasons) == 1 and NAME in found.reasons[0])


def test_next_to_a_winner_come_its_strongest_rival_of_another_kind_and_the_fastest_plain_code() -> None:
    def foreign(code: str) -> JsonObject:
        return PipelineConfig(loader=Foreign(code=code), finish="host").model_dump(mode="json")

    ran = (
        trial(config(loader=Threads(workers=4)), 990.0),
        trial(config(keep="array"), 1500.0),  # has to be converted
        trial(RIVAL, 600.0),
        trial(foreign("bench.py:mine"), 950.0),  # the artifact does not choose what runs
        trial(foreign("keras"), 400.0),
        trial(foreign("tf.data"), 1100.0),
    )
    slower, faster = (
        Raced(config=config(loader=Processes(workers=workers)), images_per_second=rate)
        for workers, rate in ((3, 5000.0), (4, 6000.0))
    )
    found = pick.contenders(profile(trials=ran))
    assert [(each.loader, ratio) for each, ratio in found] == [
        (Processes(workers=2), 1.0),
        (Foreign(code="tf.data"), pytest.approx(1.1)),
    ]
    alone = pick.contenders(profile(raced=(slower, faster), config=config(steps_per_execution=8)))
    assert [(each.loader, each.steps_per_execution) for each, _ in alone] == [(Processes(workers=4), 8)]
    assert [each.loader for each, _ in pick.contenders(profile(trials=ran[:1]))] == [Threads(workers=4)]


def test_drift_outweighs_staleness_and_keeps_its_reasons() -> None:
    result = checked(profile(), rates(500.0, ceiling=None), NOON + datetime.timedelta(days=200))
    assert (result.verdict, len(result.reasons)) == (Verdict.DRIFTED, 2)


def test_a_share_is_that_of_each_round_however_fast_the_machine_was_in_it() -> None:
    found = by_turns((860.0, 1000.0), (430.0, 500.0), (1720.0, 2000.0))
    assert found.share is not None
    assert (found.share.value, found.share.low, found.share.high) == pytest.approx((0.86, 0.86 * 0.99, 0.86 * 1.01))
    assert found.images_per_second.value == pytest.approx(860.0)
    assert found.images_per_second.high > 1400.0


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ((0.60, 0.70, 0.80), Verdict.FITS),
        ((0.69, 0.70, 0.71), Verdict.DRIFTED),
        ((0.60, 0.60, 0.90), Verdict.DRIFTED),  # what a neighbour took of the model in one round hides nothing
    ],
)
def test_only_rounds_that_agree_are_drift(shares: tuple[float, ...], verdict: Verdict) -> None:
    assert checked(profile(), by_turns(*((1000 * share, 1000.0) for share in shares))).verdict is verdict


def test_a_round_too_short_for_an_interval_hides_no_drift() -> None:
    model, whole, short = within(1000.0), within(600.0), within(600.0, spread=1.0)
    found = Rates.by_turns([(whole, model), (whole, model), (short, model)])
    assert found.share is not None
    assert found.share.high == pytest.approx(0.606)


@pytest.mark.parametrize("rounds", [1, 2])
def test_too_few_rounds_to_disagree_are_as_uncertain_as_the_windows_of_one(rounds: int) -> None:
    found = by_turns(*[(800.0, 1000.0), (820.0, 1000.0)][:rounds], spread=0.1)
    assert found.share is not None
    assert found.share.high == pytest.approx(1.1 * found.share.value)


@pytest.mark.parametrize(("noise", "verdict"), [(0.01, Verdict.DRIFTED), (0.1, Verdict.FITS)])
def test_a_machine_that_sways_from_trial_to_trial_as_in_the_tune_is_no_drift(noise: float, verdict: Verdict) -> None:
    known = profile(trials=swayed(noise))
    assert drift.noise(known) == pytest.approx(noise)
    now = Rates.by_turns([(within(850.0), within(1250.0))], {NAME: [within(920.0)]}, drift.noise(known))
    assert checked(known, now).verdict is verdict


def test_without_repeated_trials_the_noise_is_the_usual_one() -> None:
    assert drift.noise(profile()) == USUAL_NOISE


def test_a_rival_has_to_beat_what_it_was_in_the_same_rounds() -> None:
    """The last trial of a rival alone is one reading: in its rounds it was 3 % ahead, by which it cost more."""
    contest = Contest(key=PipelineConfig.model_validate(RIVAL).key(), config=RIVAL, ratio=1 / 1.03, low=0.9, pairs=4)
    assert [ratio for _, ratio in pick.contenders(profile(trials=(trial(RIVAL, 700.0),), contests=(contest,)))] == [
        pytest.approx(1.03)
    ]


# ---------------------------------------------------------------- the rounds of a check


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
    known = shaken(
        alone=1000 * SHARE / 0.74, workload=DESCRIBED.digest, measured_at=datetime.datetime.now(datetime.UTC)
    )
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
    machine = Machine()
    result = measured(machine, hardware(cores=4))
    assert (result.verdict, result.exit_code, result.profile, machine.asked) == (Verdict.STALE, 4, None, [])
    assert "usable cores: 2 there, 4 here" in result.reasons[0]


def test_a_model_that_takes_long_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_LONG_SECONDS", 0.0)
    machine = Machine()
    measured(machine)
    assert machine.asked == ["model", "pipeline"]


def test_a_round_that_speaks_against_the_profile_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_LONG_SECONDS", 0.0)
    disturbed, drifted = Machine([(1.0, 0.5), (1.0, 1.0), (1.0, 1.0)]), Machine([(1.0, 0.5)] * 3)
    assert [measured(each).verdict for each in (disturbed, drifted)] == [Verdict.FITS, Verdict.DRIFTED]
    assert drifted.asked == ["model", "pipeline"] * 3


def test_a_round_that_fails_after_the_first_takes_nothing_from_it() -> None:
    class Failing(Machine):
        def measure(self, *arguments: Any) -> Any:
            answer = super().measure(*arguments)
            if self.asked.count("pipeline") < 2:
                return answer
            return TrialFailure(kind=FailureKind.CRASHED, phase=Phase.FIRST_BATCH, message="it crashed", log_tail="")

    assert measured(Failing()).share == pytest.approx(SHARE)
