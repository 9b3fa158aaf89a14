"""The verdict in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from autopipe.core.config import PipelineConfig
from autopipe.core.value import Estimate
from autopipe.loaders.foreign import Foreign
from autopipe.loaders.threads import Threads
from autopipe.loaders.wrapped import Wrapped
from autopipe.reports import headline
from autopipe.tuned.findings import Asked, Contest, Findings
from autopipe.tuned.schema import Baseline, Profile
from tests.fakes import findings, profiles


def rate(value: float) -> Estimate:
    return Estimate(value=value, low=0.97 * value, high=1.03 * value)


def baseline(name: str, value: float, **config: Any) -> Baseline:
    plain = {"loader": Threads(workers=1), "finish": "host", **config}
    shown = PipelineConfig(**plain).model_dump(mode="json")
    return Baseline(name=name, images_per_second=rate(value), config=shown)


def contest(name: str, ratio: float, low: float) -> Contest:
    return Contest(name=name, baseline=True, ratio=ratio, low=low, high=2 * ratio - low, pairs=3, blocks=(ratio,) * 3)


def profile(*contests: Contest, proved: bool = True, **changes: Any) -> Profile:
    """Return a profile whose reads wait: 1000 images/s by reading ahead, of 1250 that the model takes."""
    known = findings.profile().findings
    assert known is not None
    found = Findings(ceiling=known.ceiling, contests=contests, proved=proved, share_of_model=0.8)
    plain: dict[str, Any] = {
        "config": profiles.config(loader=Threads(workers=2, read_ahead=24)),
        "baselines": (baseline("mine", 74.0), baseline("theirs", 60.0)),
        "findings": found,
    }
    return profiles.profile(**{**plain, **changes})


def test_it_says_what_waits_what_is_done_about_it_and_what_that_brings() -> None:
    said = headline.sentence(profile(contest("mine", 13.5, 12.0)))
    assert said == (
        "Reads wait 1 ms each; reading 24 at a time and casting on the device lift you from 74 to 1,000 images/s, "
        "80% of what the model takes."
    )
    assert headline.action(profile(contest("mine", 13.5, 12.0))).startswith("Train with it; what is still in the way")


def test_the_baseline_that_comes_nearest_in_the_proof_counts_and_not_the_luckiest() -> None:
    found = profile(contest("theirs", 10.0, 9.0))
    assert "from 60 to 1,000" in headline.sentence(found)
    assert headline.gain(found) == (10.0, "theirs")


OWN = "make_dataset (yours)"


def own(value: float) -> Baseline:
    return baseline(OWN, value, loader=Foreign(code="bench.py:make_dataset"), device_prefetch=0)


def test_the_users_own_pipeline_is_what_the_verdict_compares_with_and_the_others_stand_beside_it() -> None:
    usual = baseline("tf.data AUTOTUNE", 500.0, loader=Foreign(code="tf.data"), device_prefetch=0)
    found = profile(contest(OWN, 13.5, 12.0), contest("tf.data AUTOTUNE", 2.0, 1.9), baselines=(own(74.0), usual))
    assert headline.sentence(found) == (
        "Reading 24 at a time and loading by threads with 2 workers lift you from 74 to 1,000 images/s, 80% of what "
        "the model takes. Beside it: tf.data AUTOTUNE 500 images/s."
    )
    assert headline.gain(found) == (13.5, OWN)


def test_of_the_users_own_pipeline_nothing_is_said_to_be_proved_by_another_ones_rounds() -> None:
    found = profile(contest("theirs", 10.0, 9.0), baselines=(own(74.0), baseline("theirs", 60.0)))
    assert "from 74 to 1,000 images/s, 80% of what the model takes, not proved yet." in headline.sentence(found)


def test_a_baseline_that_beats_the_winner_is_advised_though_the_users_own_is_beaten() -> None:
    usual = baseline("tf.data AUTOTUNE", 2000.0, loader=Foreign(code="tf.data"), device_prefetch=0)
    found = profile(contest(OWN, 13.5, 12.0), contest("tf.data AUTOTUNE", 0.5, 0.4), baselines=(own(74.0), usual))
    assert headline.action(found).startswith(
        "tf.data AUTOTUNE is faster still: `autopipe eject autopipe.json --to tf.data` prints it. Or search on: "
    )
    former = baseline("the former configuration", 2000.0)
    kept = profile(contest(OWN, 13.5, 12.0), contest(former.name, 0.5, 0.4), baselines=(own(74.0), former))
    assert headline.action(kept).startswith("the former configuration is faster still. Or search on: ")


def test_without_a_proof_it_says_so_and_to_search_on() -> None:
    found = profile(proved=False)
    assert headline.sentence(found).endswith("80% of what the model takes, not proved yet.")
    assert headline.action(found) == (
        "Search on until it is proved: its study was in memory, so give the next one a longer budget."
    )
    kept = found.model_copy(update={"study_url": "sqlite:////tuned/study.db"})
    assert headline.action(kept).endswith("the same command again goes on with the study.")


@pytest.mark.parametrize(
    ("study", "proved", "seconds", "said"),
    [
        ("autopipe", False, 30.0, "the same command again goes on with the study."),
        (
            "autopipe",
            False,
            118.0,
            "the same command with a longer `--budget` goes on with the study, and with `--fresh` ",
        ),
        ("autopipe", True, 30.0, "the same command with `--fresh` begins a new study."),
        (
            "autopipe",
            True,
            118.0,
            "the same command with a longer `--budget` goes on with the study, and with `--fresh` ",
        ),
        ("joint-0123abcd-1", True, 30.0, "the same command with `--fresh` begins a new study."),
        ("retune-2026-01-01T00:00:00", False, 30.0, "give `autopipe retune` a longer `--budget`."),
    ],
)
def test_a_next_step_is_one_that_does_something(study: str, proved: bool, seconds: float, said: str) -> None:
    known = profile(contest("mine", 2.2, 0.9), study=study, study_url="sqlite:////tuned/study.db").findings
    assert known is not None
    asked = Asked(command="autopipe tune train.py:workload", seed=0, space="default", budget_seconds=120.0)
    found = known.model_copy(update={"proved": proved, "seconds": seconds, "asked": asked})
    shown = profile(study=study, study_url="sqlite:////tuned/study.db", findings=found)
    assert f"Search on until it is proved: {said}" in headline.action(shown)


def test_where_a_baseline_keeps_the_model_busy_nothing_is_left_to_gain() -> None:
    found = profile(proved=False, baselines=(baseline("mine", 990.0),))
    assert found.findings is not None
    busy = found.model_copy(update={"findings": found.findings.model_copy(update={"share_of_model": 0.96})})
    assert headline.sentence(busy) == (
        "The model is the limit: mine keeps it busy already, at 990 images/s; nothing is left to gain."
    )
    assert headline.action(busy).startswith("Leave the pipeline as it is")


@pytest.mark.parametrize(
    ("ratio", "said", "todo"),
    [
        (2.2, "about 2.2x, but what was measured is too unsteady to prove it.", "Search on until it is proved"),
        (1.01, "Nothing was found that is faster than mine, which reaches 74 images/s", "Leave the pipeline as it is"),
    ],
)
def test_what_is_not_proved_is_not_promised(ratio: float, said: str, todo: str) -> None:
    found = profile(contest("mine", ratio, 0.9))
    assert said in headline.sentence(found)
    assert headline.action(found).startswith(todo)


@pytest.mark.parametrize(
    ("low", "said"),
    [
        (1.2, "casting on the device bring 1.30x what mine does, by turns with it, 80% of what the model takes."),
        (0.9, "casting on the device seem to bring about 1.3x what mine does, by turns with it, but what was measured"),
    ],
)
def test_nobody_is_lifted_to_a_lower_rate(low: float, said: str) -> None:
    """As where a baseline ran in one round, before the machine became slower, or pays more once."""
    found = profile(contest("mine", 1.3, low), baselines=(baseline("mine", 1100.0),))
    assert said in headline.sentence(found)
    assert "lift" not in headline.sentence(found)


def test_where_the_model_is_the_limit_nothing_more_is_to_be_had() -> None:
    known = profile(contest("mine", 13.5, 12.0))
    assert known.findings is not None
    at_the_limit = known.model_copy(update={"findings": known.findings.model_copy(update={"share_of_model": 0.99})})
    assert headline.action(at_the_limit).endswith("the model is the limit now.")


def test_a_profile_without_baselines_or_findings_has_a_sentence_too() -> None:
    bare = profiles.profile(baselines=(), ceiling=None)
    assert headline.sentence(bare) == "Loading by threads with 2 workers reaches 1,000 images/s."
    assert headline.gain(bare) is None


@pytest.mark.parametrize(
    ("best", "ahead", "said"),
    [
        ({"calls": 4, "prefetch": 2}, 0, "loading with calls=4 lifts"),
        ({"calls": 4, "prefetch": 1}, 2, "loading with calls=4 and prefetch=1 lift"),
        ({"calls": 1, "prefetch": 2}, 2, "putting 2 batches on the device ahead lifts"),
    ],
)
def test_of_a_dataset_of_ones_own_the_arguments_that_differ_are_named(
    best: dict[str, Any], ahead: int, said: str
) -> None:
    as_it_is = Wrapped.model_validate({"calls": 1, "prefetch": 2})
    usual = baseline("the dataset as it is", 74.0, loader=as_it_is, device_prefetch=0)
    tuned = profiles.config(loader=Wrapped.model_validate(best), finish="host", device_prefetch=ahead)
    found = profile(contest("the dataset as it is", 13.5, 12.0), baselines=(usual,), config=tuned)
    assert said in headline.sentence(found).lower()
