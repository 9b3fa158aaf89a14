from __future__ import annotations

import pytest

from autopipe.core.outcome import FailureKind, Phase
from autopipe.errors import ConfigError
from autopipe.trial import verdict
from autopipe.trial.deadlines import VARIABLE, Deadlines, Watch, asked

DEADLINES = Deadlines(open_seconds=10.0, measure_seconds=5.0, request_seconds=60.0)


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_has_a_deadline(phase: Phase) -> None:
    assert Deadlines().of(phase) > 0


def test_silence_up_to_the_deadline_is_fine_and_beyond_it_is_hung() -> None:
    watch = Watch(DEADLINES, Phase.OPEN, now=100.0)
    assert watch.verdict(109.9) is None
    assert FailureKind.HUNG is watch.verdict(110.0)


def test_a_sign_of_life_starts_the_deadline_again() -> None:
    watch = Watch(DEADLINES, Phase.OPEN, now=0.0)
    watch.heard(9.0)
    assert watch.verdict(18.0) is None


def test_each_phase_brings_its_own_deadline() -> None:
    watch = Watch(DEADLINES, Phase.OPEN, now=0.0)
    watch.enter(Phase.MEASURE, now=9.0)
    assert FailureKind.HUNG is watch.verdict(14.0)


def test_talking_for_ever_is_a_timeout() -> None:
    watch = Watch(DEADLINES, Phase.MEASURE, now=0.0)
    for now in range(1, 61):
        watch.heard(float(now))
    assert FailureKind.TIMEOUT is watch.verdict(60.0)


def test_time_left_is_up_to_whichever_comes_first() -> None:
    watch = Watch(DEADLINES, Phase.OPEN, now=0.0)
    assert watch.left_seconds(4.0) == 6.0
    watch.heard(55.0)
    assert watch.left_seconds(57.0) == 3.0
    assert watch.left_seconds(99.0) == 0.0


def test_time_is_counted_by_phase() -> None:
    watch = Watch(DEADLINES, Phase.OPEN, now=0.0)
    watch.enter(Phase.MEASURE, now=1.0)
    watch.heard(2.0)
    watch.enter(Phase.OPEN, now=4.0)
    watch.heard(4.5)
    assert watch.phase_seconds == {Phase.OPEN: 1.5, Phase.MEASURE: 3.0}
    assert watch.elapsed_seconds(5.0) == 5.0


def test_the_environment_allows_more_time_as_the_hint_says() -> None:
    assert f"{VARIABLE}=4 " in str(verdict.silent(Phase.BUILD, 180.0).hint)
    assert asked({VARIABLE: "4"}).build_seconds == 4 * Deadlines().build_seconds
    assert asked({VARIABLE: "4"}).request_seconds == 4 * Deadlines().request_seconds
    assert asked({}) == asked({VARIABLE: " "}) == Deadlines()


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "much"])
def test_patience_that_is_no_number_of_one_or_more_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=VARIABLE):
        asked({VARIABLE: text})
