from __future__ import annotations

import math

import pytest

from autopipe.core.ceiling import Ceiling
from autopipe.core.value import Estimate
from autopipe.search.stopping import Reason, Standing, budget_stop, ceiling_stop, needed_share, no_gain_stop


def standing(
    *, trials: int = 5, seconds: float = 10.0, best: list[Estimate | None] | None = None, untried: int = 9
) -> Standing:
    return Standing(trials=trials, seconds=seconds, best=best or [], untried=untried)


def rate(value: float, width: float = 0.02) -> Estimate:
    return Estimate(value=value, low=value * (1 - width), high=value * (1 + width))


CEILING = Ceiling(model_images_per_second=rate(1000.0), model_core_seconds_per_image=0.0)


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        (standing(untried=0), Reason.EXHAUSTED, "Every configuration"),
        (standing(trials=30), Reason.TRIALS, "30 trials were allowed and have been used."),
        (standing(trials=31), Reason.TRIALS, "30 trials were allowed, and 31 have run, the baselines among them."),
        (standing(seconds=90.0), Reason.TIME, "90 s of 120 s"),
    ],
)
def test_a_budget_that_is_used_up_is_said(state: Standing, reason: Reason, said: str) -> None:
    stop = budget_stop(state, trials=30, budget_seconds=120.0, trial_seconds=5.0, confirmation_seconds=25.0)
    assert stop is not None
    assert stop.reason is reason
    assert said in stop.message


def test_a_confirmation_run_that_there_is_no_time_for_is_not_spoken_of() -> None:
    def said(confirmation_seconds: float) -> str:
        spent = standing(seconds=18.0)
        stop = budget_stop(
            spent, trials=30, budget_seconds=20.0, trial_seconds=3.0, confirmation_seconds=confirmation_seconds
        )
        assert stop is not None
        return stop.message

    assert said(0.0).endswith("18 s of 20 s are spent, and one more trial takes about 3 s.")
    assert said(6.0).endswith("18 s of 20 s are spent, and one more trial, with the confirmation run, takes about 9 s.")


def test_a_model_of_eight_images_a_second_keeps_its_digits() -> None:
    slow = CEILING.model_copy(update={"model_images_per_second": rate(8.45)})
    stop = ceiling_stop(rate(8.32), slow, share=0.97, what="The best")
    assert stop is not None
    assert stop.message.startswith("The best reaches 8.32 images/s, 98% of the 8.45 that the model takes when")


@pytest.mark.parametrize(
    ("ran", "said"), [(1, "1 trial was allowed and has been used."), (2, "1 trial was allowed, and 2 have run, the ")]
)
def test_one_trial_that_was_allowed_is_called_that(ran: int, said: str) -> None:
    stop = budget_stop(standing(trials=ran), trials=1, budget_seconds=None, trial_seconds=0.0, confirmation_seconds=0.0)
    assert stop is not None
    assert stop.message.startswith(said)


def test_a_budget_that_is_left_stops_nothing() -> None:
    assert (
        budget_stop(
            standing(seconds=89.0), trials=30, budget_seconds=120.0, trial_seconds=5.0, confirmation_seconds=25.0
        )
        is None
    )
    assert (
        budget_stop(standing(seconds=1e9), trials=30, budget_seconds=None, trial_seconds=5.0, confirmation_seconds=25.0)
        is None
    )


def test_at_the_ceiling_there_is_nothing_to_gain() -> None:
    stop = ceiling_stop(rate(971.0), CEILING, share=0.97, what="The baseline keras")
    assert stop is not None
    assert stop.message.startswith("The baseline keras reaches 971 images/s, 97% of the 1,000")


def test_more_than_the_ceiling_is_said_to_be_all_of_it() -> None:
    stop = ceiling_stop(rate(1150.0), CEILING, share=0.97, what="it")
    assert stop is not None
    assert "1,150 images/s, 100% of the 1,000" in stop.message


def test_what_has_to_be_reached_follows_from_what_can_be_told_apart() -> None:
    still = CEILING.model_copy(update={"model_images_per_second": rate(1000.0, 0.001)})
    assert needed_share(rate(900.0, 0.001), still, 0.97) == 0.97
    assert needed_share(rate(900.0, 0.5), still, 0.97) == pytest.approx(0.95)
    assert 0.95 < needed_share(rate(900.0, 0.028), still, 0.97) < 0.97
    assert needed_share(rate(900.0, 0.5), still, math.inf) == math.inf  # a search that is never to end for it


def test_below_the_ceiling_or_without_one_the_search_goes_on() -> None:
    assert ceiling_stop(rate(960.0), CEILING, share=0.97, what="it") is None


def test_no_gain_means_none_beyond_the_interval_of_the_best_before() -> None:
    flat: list[Estimate | None] = [rate(100.0), *[rate(101.0)] * 4]
    stop = no_gain_stop(standing(best=flat), patience=4)
    assert stop is not None
    assert stop.reason is Reason.NO_GAIN
    assert no_gain_stop(standing(best=flat), patience=5) is None
    assert no_gain_stop(standing(best=[*flat[:-1], rate(103.0)]), patience=4) is None


def test_a_best_that_was_read_in_one_window_rules_out_no_gain() -> None:
    """Steps of eight seconds: the best rose from 100 to 195 images/s, which once was taken for none."""
    rose: list[Estimate | None] = [Estimate.of_one(100.0), *[Estimate.of_one(195.0)] * 4]
    assert no_gain_stop(standing(best=rose), patience=4) is None
    assert no_gain_stop(standing(best=[Estimate.of_one(100.0)] * 5), patience=4) is None
    assert no_gain_stop(standing(best=[rate(100.0), *[Estimate.of_one(101.0)] * 4]), patience=4) is not None


def test_failures_alone_are_not_taken_for_a_plateau() -> None:
    assert no_gain_stop(standing(best=[None] * 9), patience=4) is None
