from __future__ import annotations

import datetime
import re

import pytest

from autopipe.artifact.drift import Rates, Verdict, check, judge
from autopipe.artifact.schema import Artifact
from autopipe.pipeline.config import PipelineConfig
from autopipe.values import Estimate
from tests.fakes.profiles import NOON, about, artifact, ceiling, digest, hardware, profile

TOMORROW = NOON + datetime.timedelta(days=1)


def _rates(rate: float, ceiling: float | None = 1250.0, spread: float = 0.01) -> Rates:
    def about(value: float) -> Estimate:
        return Estimate(value=value, low=(1 - spread) * value, high=(1 + spread) * value)

    return Rates(images_per_second=about(rate), share=None if ceiling is None else about(rate / ceiling))


def _by_turns(*rounds: tuple[float, float], spread: float = 0.01) -> Rates:
    """Return what rounds of (pipeline, model alone) say, whose windows stray by so much."""

    def about(value: float) -> Estimate:
        return Estimate(value=value, low=(1 - spread) * value, high=(1 + spread) * value)

    return Rates.by_turns([(about(rate), about(alone)) for rate, alone in rounds])


def _shaken(share_of_model: float = 0.86, alone: float = 1350.0) -> Artifact:
    """Return the artefact of a tune on a machine whose fastest moment gave the model alone this rate: 74 % by that."""
    return artifact(profile(ceiling=ceiling(alone), share_of_model=share_of_model))


def test_the_same_machine_workload_and_speed_fit() -> None:
    result = check(artifact(), hardware(), TOMORROW, workload=digest(), measure=lambda config: _rates(990.0))
    assert (result.verdict, result.exit_code, result.reasons) == (Verdict.FITS, 0, ())
    assert result.age_days == 1
    assert result.share == pytest.approx(0.792)
    assert result.recorded_share == pytest.approx(0.8)


def test_a_machine_without_a_profile_is_stale_and_not_measured() -> None:
    def never(config: PipelineConfig) -> Rates:
        pytest.fail("measured")

    result = check(artifact(), hardware(cores=4), TOMORROW, measure=never)
    assert (result.verdict, result.exit_code, result.profile) == (Verdict.STALE, 4, None)
    assert "usable cores: 2 there, 4 here" in result.reasons[0]


@pytest.mark.parametrize(
    ("versions", "batch_size", "age_days", "only"),
    [("2.22.0", 32, 0, True), ("2.21.0", 32, 0, False), ("2.22.0", 8, 0, False), ("2.22.0", 32, 400, False)],
)
def test_versions_may_be_all_that_has_changed(versions: str, batch_size: int, age_days: int, only: bool) -> None:
    here = hardware(packages={"tensorflow": versions, "keras": "3.15.0"})
    now = NOON + datetime.timedelta(days=age_days)
    found = judge(profile(), here, now, digest(batch_size=batch_size))
    assert found.only_software is only
    assert not only or found.reasons == ("tensorflow was 2.21 and is 2.22 now",)


def test_another_workload_makes_a_profile_stale_with_every_reason() -> None:
    result = check(artifact(), hardware(), TOMORROW, workload=digest(samples=90_000, batch_size=64))
    assert result.verdict is Verdict.STALE
    assert result.reasons == (
        "the workload's number of samples was 2000 and is 90000 now",
        "the workload's batch size was 32 and is 64 now",
    )


def test_an_old_profile_is_stale() -> None:
    result = check(artifact(), hardware(), NOON + datetime.timedelta(days=200))
    assert result.verdict is Verdict.STALE
    assert "200 days" in result.reasons[0]


ONE_WINDOW = profile(images_per_second=Estimate.of_one(1000.0), ceiling=None)


@pytest.mark.parametrize(
    ("known", "now", "reason"),
    [
        pytest.param(artifact(), _rates(900.0), "reaches 72% of what the model can take, but 80%", id="a lower share"),
        pytest.param(artifact(), _rates(600.0, ceiling=750.0), None, id="a machine that is slower as a whole"),
        pytest.param(artifact(), _rates(900.0, spread=0.1), None, id="an uncertain measurement"),
        pytest.param(artifact(profile(ceiling=None)), _rates(980.0), None, id="plain rates without a ceiling"),
        pytest.param(artifact(profile(ceiling=None)), _rates(800.0), "feeds 800 images/s, but 1,000", id="lower rate"),
        pytest.param(
            artifact(profile(images_per_second=about(8.4), ceiling=None)), _rates(7.6, ceiling=None),
            "it feeds 7.6 images/s, but 8.4 when it was tuned", id="slow rates, with digits that differ",
        ),
        pytest.param(artifact(profile(ceiling=ceiling(200.0))), _rates(1000.0), None, id="a ceiling read too low then"),
        pytest.param(_shaken(1.0, alone=200.0), _rates(1000.0), None, id="a ceiling read too low, and a share told"),
        pytest.param(_shaken(1.0, alone=950.0), _rates(1060.0, ceiling=1000.0), None, id="no share above all of it"),
        pytest.param(_shaken(), _rates(720.0, ceiling=1000.0), None, id="below one reading of the share then"),
        pytest.param(_shaken(), _rates(660.0, ceiling=1000.0), "reaches 66% of .* but 86%", id="below both readings"),
        pytest.param(artifact(ONE_WINDOW), _rates(600.0, ceiling=None, spread=0.02), None, id="one window, over half"),
        pytest.param(artifact(ONE_WINDOW), _rates(300.0, ceiling=None, spread=0.02), "feeds 300", id="under half"),
    ],
)  # fmt: skip
def test_a_rate_is_drift_only_if_it_is_lower_beyond_doubt(known: Artifact, now: Rates, reason: str | None) -> None:
    result = check(known, hardware(), TOMORROW, measure=lambda config: now)
    assert (result.verdict, result.exit_code) == ((Verdict.FITS, 0) if reason is None else (Verdict.DRIFTED, 5))
    assert (result.reasons == ()) if reason is None else re.search(reason, " ".join(result.reasons))
    assert result.share is None or result.share <= 1


def test_drift_outweighs_staleness_and_keeps_its_reasons() -> None:
    result = check(
        artifact(), hardware(), NOON + datetime.timedelta(days=200), measure=lambda config: _rates(500.0, ceiling=None)
    )
    assert result.verdict is Verdict.DRIFTED
    assert len(result.reasons) == 2


def test_a_share_is_that_of_each_round_however_fast_the_machine_was_in_it() -> None:
    rates = _by_turns((860.0, 1000.0), (430.0, 500.0), (1720.0, 2000.0))
    assert rates.share is not None
    assert rates.share.value == pytest.approx(0.86)
    assert (rates.share.low, rates.share.high) == pytest.approx((0.86 * 0.99, 0.86 * 1.01))
    assert rates.images_per_second.value == pytest.approx(860.0)
    assert rates.images_per_second.high > 1400.0


def test_rounds_that_disagree_are_no_drift_and_rounds_that_agree_are() -> None:
    def checked(*shares: float) -> Verdict:
        rounds = [(1000 * share, 1000.0) for share in shares]
        return check(artifact(), hardware(), TOMORROW, measure=lambda config: _by_turns(*rounds)).verdict

    assert checked(0.60, 0.70, 0.80) is Verdict.FITS
    assert checked(0.69, 0.70, 0.71) is Verdict.DRIFTED
    assert checked(0.60, 0.60, 0.90) is Verdict.DRIFTED  # what a neighbour took of the model in one round hides nothing


def test_a_round_too_short_for_an_interval_hides_no_drift() -> None:
    model = Estimate(value=1000.0, low=990.0, high=1010.0)
    whole, short = Estimate(value=600.0, low=594.0, high=606.0), Estimate(value=600.0, low=0.0, high=1200.0)
    rates = Rates.by_turns([(whole, model), (whole, model), (short, model)])
    assert rates.share is not None
    assert rates.share.high == pytest.approx(0.606)


@pytest.mark.parametrize("rounds", [1, 2])
def test_too_few_rounds_to_disagree_are_as_uncertain_as_the_windows_of_one(rounds: int) -> None:
    rates = _by_turns(*[(800.0, 1000.0), (820.0, 1000.0)][:rounds], spread=0.1)
    assert rates.share is not None
    assert rates.share.high == pytest.approx(1.1 * rates.share.value)
