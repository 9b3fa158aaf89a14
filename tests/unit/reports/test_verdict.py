"""What a result means, in sentences: headline, action, trust and notes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from autopipe.measure import stats
from autopipe.measure.facts import SampleTail
from autopipe.measure.outcome import FailureKind, Phase, TrialFailure
from autopipe.pipeline.loaders.threads import Threads
from autopipe.pipeline.loaders.wrapped import Foreign, Wrapped
from autopipe.reports import verdict
from autopipe.search.result import Baseline, Contest, Effect, Payback, Reason, Result, Stop
from autopipe.values import Estimate
from tests.fakes import ceilings, findings, profiles
from tests.fakes.findings import payback
from tests.fakes.profiles import baseline


def effect(setting: str, other: Any, ratio: float, low: float, value: Any = "a", **changes: Any) -> Effect:
    high = ratio * ratio / low if low else None
    plain = {"setting": setting, "value": value, "other": other, "ratio": ratio, "low": low, "high": high}
    return Effect(**{**plain, **changes})


READS = effect("threads.read_ahead", 0, 12.0, 11.0, 24)
THREADS = effect("loader", "tfdata", 1.3, 1.2, "threads")
OVER_KERAS = effect("loader", "keras", 1.5, 1.4, "threads")
CASTS = effect("finish", "host", 1.1, 1.06, "device")
MINE, THEIRS = baseline("mine", 74.0), baseline("theirs", 60.0, keep="memory")
OWN = "make_dataset (yours)"


def contest(of: Baseline, ratio: float, low: float, pairs: int = 3) -> Contest:
    return Contest(
        key=of.key,
        config=of.config,
        baseline=of.name,
        ratio=ratio,
        low=low,
        high=2 * ratio - low,
        pairs=pairs,
        blocks=(ratio,) * pairs,
    )


def result(*contests: Contest, **changes: Any) -> Result:
    """Return a result whose reads wait: 1000 images/s by reading ahead, of 1250 that the model takes."""
    plain: dict[str, Any] = {
        "ceiling": findings.result().ceiling,
        "config": profiles.config(loader=Threads(workers=2, read_ahead=24)),
        "baselines": (MINE, THEIRS),
        "contests": contests,
        "share_of_model": 0.8,
        "effects": (READS, THREADS, CASTS),
    }
    return profiles.profile(**{**plain, **changes}).result


# ---------------------------------------------------------------- the headline


def test_the_headline_says_the_bottleneck_what_is_done_and_what_that_brings() -> None:
    found = result(contest(MINE, 13.5, 12.0))
    assert verdict.headline(found) == (
        "Waiting for reads was the bottleneck (1 ms per read). Reading 24 samples at a time and casting on the device: "
        "74 -> 1,000 images/s, 80% of the model's own speed."
    )
    assert verdict.action(found) == "Train with it. What still limits it is named below."
    limited = result(contest(MINE, 13.5, 12.0), share_of_model=0.99)
    assert verdict.action(limited) == "Train with it. The model is the limit now: no pipeline can be faster."


def test_the_baseline_that_comes_nearest_in_the_proof_counts_and_not_the_luckiest() -> None:
    found = result(contest(THEIRS, 10.0, 9.0))
    assert "60 -> 1,000" in verdict.headline(found)
    assert verdict.compared_with(found) == THEIRS
    of_mine = result(contest(THEIRS, 10.0, 9.0), baselines=(own(74.0), THEIRS))  # which these rounds do not prove
    assert "74 -> 1,000 images/s, 80% of the model's own speed, not proved yet." in verdict.headline(of_mine)


def own(value: float) -> Baseline:
    return baseline(OWN, value, loader=Foreign(code="bench.py:make_dataset"), device_prefetch=0)


USUAL = {"loader": Foreign(code="tf.data"), "device_prefetch": 0}


def test_the_users_own_pipeline_is_compared_with_and_the_others_stand_beside_it() -> None:
    mine, usual = own(74.0), baseline("tf.data AUTOTUNE", 500.0, **USUAL)
    found = result(contest(mine, 13.5, 12.0), contest(usual, 2.0, 1.9), baselines=(mine, usual))
    assert verdict.headline(found) == (
        "Reading 24 samples at a time, loading with threads (2 workers) and casting on the device: 74 -> 1,000 "
        "images/s, 80% of the model's own speed. For comparison: tf.data AUTOTUNE 500 images/s."
    )


KEEPS = effect("keep", "none", 2.8, 2.5, "memory")
CACHED = {"loader": Foreign(code="tf.data-cache"), "device_prefetch": 0, "keep": "memory"}
CACHES = "Caching prepared samples in memory and loading with threads (2 workers): 500 -> 1,000 images/s"


@pytest.mark.parametrize(
    ("theirs", "effects", "said"),
    [
        (USUAL, (KEEPS, THREADS), CACHES),
        (USUAL, (THREADS, KEEPS), CACHES),  # the largest first
        (CACHED, (KEEPS, THREADS), "Loading with threads (2 workers): 500 -> 1,000 images/s"),
        (CACHED, (KEEPS,), "The winner: 500 -> 1,000 images/s"),
        (
            USUAL,
            (KEEPS, effect("finish", "host", 1.04, 1.01, "device")),
            CACHES.replace(" and loading with threads (2 workers)", ""),
        ),
        (USUAL, (effect("keep", "none", 2.8, 0.9, "memory"),), "The winner: 500"),  # not decided
        (CACHED, (effect("loader", "tfdata", 1.01, 0.98, "threads"), OVER_KERAS), "The winner: 500"),
    ],
)
def test_a_headline_names_what_the_rival_does_not_do_and_what_has_an_effect(
    theirs: dict[str, Any], effects: tuple[Effect, ...], said: str
) -> None:
    usual, winner = baseline("tf.data AUTOTUNE", 500.0, **theirs), profiles.config(keep="memory")
    found = result(contest(usual, 2.0, 1.9), baselines=(usual,), config=winner, effects=effects, ceiling=None)
    assert verdict.headline(found).startswith(said)


def test_the_bottleneck_of_a_rival_that_caches_is_none_that_its_cache_spares() -> None:
    found = [
        verdict.headline(result(contest(usual, 2.0, 1.9), baselines=(usual,)))
        for usual in (baseline("plain", 300.0, **USUAL), baseline("cached", 300.0, **CACHED))
    ]
    assert ["Decode was the bottleneck" in each for each in found] == [True, False]


def test_sharing_the_cores_explains_no_rate_far_below_what_both_reach() -> None:
    ceiling = ceilings.ceiling(model=1600.0, model_core_seconds=1.2e-3)  # with 0.79 ms: 1,005 images/s on two cores
    found = [
        verdict.headline(result(contest(usual, 2.0, 1.9), baselines=(usual,), ceiling=ceiling))
        for usual in (baseline("near", 900.0, **USUAL), baseline("far", 500.0, **USUAL))
    ]
    assert ["shared the cores (1.2 ms and 0.79 ms per image)" in each for each in found] == [True, False]


def test_a_baseline_that_beats_the_winner_is_advised_though_the_users_own_is_beaten() -> None:
    mine, usual = own(74.0), baseline("tf.data AUTOTUNE", 2000.0, **USUAL)
    found = result(contest(mine, 13.5, 12.0), contest(usual, 0.5, 0.4), baselines=(mine, usual))
    said = "tf.data AUTOTUNE is faster still: `autopipe eject --to tf.data` prints it. Or search on: "
    assert verdict.action(found).startswith(said)
    former = baseline("the former configuration", 2000.0)
    kept = result(contest(mine, 13.5, 12.0), contest(former, 0.5, 0.4), baselines=(mine, former))
    assert verdict.action(kept).startswith("the former configuration is faster still. Or search on: ")


@pytest.mark.parametrize(
    ("study", "proved", "seconds", "said"),
    [
        ("autopipe", False, 30.0, "the same command again continues the study."),
        (
            "autopipe",
            False,
            118.0,
            "the same command with a longer `--budget` continues the study, and with `--fresh` ",
        ),
        ("autopipe", True, 30.0, "the same command with `--fresh` starts a new study."),
        ("autopipe", True, 118.0, "the same command with a longer `--budget` continues the study, "),
        ("retune-2026-01-01T00:00:00", False, 30.0, "give `autopipe retune` a longer `--budget`."),
    ],
)
def test_a_next_step_is_one_that_does_something(study: str, proved: bool, seconds: float, said: str) -> None:
    asked = {"study": study, "study_url": "sqlite:////tuned/study.db", "budget_seconds": 120.0}
    found = result(contest(MINE, 2.2, 0.9), proved=proved, seconds=seconds, **asked)
    assert f"Search on until it is proved: {said}" in verdict.action(found)
    in_memory = verdict.action(result(contest(MINE, 2.2, 0.9), proved=False))
    assert in_memory.endswith("its study was in memory, so give the next one a longer budget.")


@pytest.mark.parametrize(
    ("changes", "case"),
    [
        ({"baselines": (), "ceiling": None}, verdict.Case.ALONE),
        ({"key": MINE.key}, verdict.Case.SAME),
        ({"contests": (contest(MINE, 1.01, 0.9),)}, verdict.Case.CLOSE),
        ({"contests": (contest(MINE, 2.2, 0.9),)}, verdict.Case.UNSTEADY),
        ({"share_of_model": 0.96, "baselines": (baseline("mine", 990.0),)}, verdict.Case.BUSY),
        ({"baselines": (baseline("mine", 1100.0),)}, verdict.Case.BEHIND),
        ({"baselines": (baseline("mine", 1100.0),), "contests": (contest(MINE, 1.3, 1.2),)}, verdict.Case.SIDE_BY_SIDE),
        ({"contests": (contest(MINE, 13.5, 12.0),)}, verdict.Case.LIFT),
        ({"contests": (contest(MINE, 13.5, 12.0, 2),), "proved": False}, verdict.Case.LIFT),
    ],
    ids=str,
)
def test_figures_decide_the_case_and_so_sentence_and_action(changes: dict[str, Any], case: verdict.Case) -> None:
    found = result(**changes) if "contests" not in changes else result(*changes.pop("contests"), **changes)
    assert verdict.case_of(found) is case
    assert verdict.headline(found).endswith(".")
    assert ("->" in verdict.headline(found)) is (case is verdict.Case.LIFT)  # no lower rate is promised
    leaves = case in (verdict.Case.SAME, verdict.Case.BUSY, verdict.Case.CLOSE)
    assert verdict.action(found).startswith("Leave the pipeline as it is") is leaves


@pytest.mark.parametrize(
    ("best", "ahead", "said"),
    [
        ({"calls": 4, "prefetch": 2}, 0, "with calls=4:"),
        ({"calls": 4, "prefetch": 1}, 2, "with calls=4 and prefetch=1 and putting 2 batches on the device ahead:"),
        ({"calls": 1, "prefetch": 2}, 2, "putting 2 batches on the device ahead:"),
    ],
)
def test_of_a_wrapped_dataset_the_arguments_that_differ_are_named(best: dict[str, Any], ahead: int, said: str) -> None:
    effects = [effect(f"wrapped.{name}", "", 1.5, 1.4, best[name]) for name in ("calls", "prefetch")]
    now = {"calls": 1, "prefetch": 2}
    effects = [each.model_copy(update={"other": now[each.setting.partition(".")[2]]}) for each in effects]
    effects.append(effect("device_prefetch", "", 1.2, 1.1, ahead).model_copy(update={"other": 0}))
    as_it_is = Wrapped.model_validate({"calls": 1, "prefetch": 2})
    usual = baseline("the dataset as it is", 74.0, loader=as_it_is, device_prefetch=0)
    tuned = profiles.config(loader=Wrapped.model_validate(best), finish="host", device_prefetch=ahead)
    found = result(contest(usual, 13.5, 12.0), baselines=(usual,), config=tuned, effects=tuple(effects))
    assert said in verdict.headline(found).lower()


# ---------------------------------------------------------------- trust


CEILING = Stop(reason=Reason.CEILING, message="The model is the limit.")
CUT = Stop(reason=Reason.INTERRUPTED, message="Interrupted.")
HOLD = "The ratios hold: they were measured side by side."


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stop": CUT, "proved": False}, "low: interrupted, so nothing was proved."),
        ({"proved": False}, "low: nothing was proved."),
        ({"drift": -0.3}, f"low: the baselines ended 30% slower. {HOLD}"),
        ({"others_cores": 1.4}, f"low: other programs took 1.4 of the cores. {HOLD}"),
        (
            {"rate": Estimate(value=50.0, low=34.0, high=65.0)},
            f"low: the winner's rate is unsteady. {HOLD}",
        ),
        (
            {"rate": Estimate(value=50.0, low=34.0, high=65.0), "contests": (1.01, 0.8)},
            "low: the winner's rate is unsteady.",
        ),
        ({"drift": 0.01}, "good: proved side by side, on cores that little else used."),
        (
            {"contests": (13.5, 12.0, 2), "proved": False},
            "low: a proof needs 3 rounds side by side, and there was time for 2.",
        ),
        (
            {"proved": False, "stop": CEILING, "baselines": (baseline("mine", 1000.0),)},
            "good: a baseline is as fast as the model alone, so no gain is claimed.",
        ),
        ({"proved": False, "stop": CEILING, "baselines": ()}, "low: nothing was proved."),
        ({"contests": (1.5, 0.9)}, "low: the rounds show no clear difference between the winner and mine."),
        ({"contests": (0.8, 0.6)}, "low: the rounds show no clear difference between the winner and mine."),
        (
            {"contests": (1.01, 0.98)},
            "good: no measurable difference from mine in 3 rounds side by side, on cores that little else used.",
        ),
        (
            {"key": MINE.key},
            "good: nothing was measurably faster than mine in 0 rounds side by side, on cores that little else used.",
        ),
        ({"contests": (1.5, 1.4)}, "good: proved side by side in 3 rounds, on cores that little else used."),
    ],
    ids=str,
)
def test_how_far_to_trust_the_figures_is_said(changes: dict[str, Any], said: str) -> None:
    ratio, rate = changes.pop("contests", None), changes.pop("rate", None)
    found = result(*([] if ratio is None else [contest(MINE, *ratio)]), **changes)
    if rate is not None and found.winner is not None:
        found = found.model_copy(update={"winner": found.winner.model_copy(update={"images_per_second": rate})})
    assert verdict.trust_text(found) == said


def test_as_many_more_rounds_as_it_says_decide_if_they_vary_alike() -> None:
    first, second = [1.10, 1.04, 1.16], [1.0, 1.03, 1.0]
    gain = stats.compare_pairs(first, second)
    so_far = contest(MINE, gain.ratio, gain.low).model_copy(update={"high": gain.high})
    more = verdict.rounds_to_decide(so_far)
    assert not so_far.decided
    assert more is not None
    alike = (3 + more + 2) // 3
    assert stats.compare_pairs(first * alike, second * alike).faster


@pytest.mark.parametrize(
    ("ratio", "low", "high", "pairs"),
    [
        (1.0001, 0.9, 1.11, 3),  # too close
        (1.03, 0.86, 1.24, 3),  # more than a tune has
        (1.3, 0.99, 1.7, 12),  # all that a tune has
        (2.0, 0.0, None, 1),
        (1.02, 0.97, 1.07, 2),
    ],
)
def test_what_no_tune_decides_is_not_promised(ratio: float, low: float, high: float | None, pairs: int) -> None:
    unsure = contest(MINE, ratio, low, pairs).model_copy(update={"high": high})
    assert verdict.rounds_to_decide(unsure) is None


def test_gains_are_against_the_next_best_value_and_what_has_no_effect_is_named() -> None:
    effects = (
        effect("keep", "none", 2.8, 2.5),
        effect("loader", "keras", 1.6, 1.5),
        effect("loader", "tfdata", 1.2, 1.1),
        effect("device_prefetch", "0", 1.3, 0.9),
        effect("finish", "host", 1.02, 0.9),
    )
    said = (
        "keep=a instead of none: 2.8x; loader=a instead of tfdata: 1.20x. Not proved: device_prefetch. No measurable "
        "effect: finish"
    )
    assert verdict.gains(result(effects=effects)) == said
    unproved = verdict.gains(result(effects=effects, proved=False))
    assert unproved == said.replace("1.20x", "1.20x, by trials one after the other")


# ---------------------------------------------------------------- notes


def noted(*contests: Contest, **changes: Any) -> list[str]:
    """Return the notes of a search with trials beside its baselines."""
    trials = (profiles.trial(profiles.config(), 900.0), profiles.trial(MINE.config, 74.0))
    return verdict.notes(result(*contests, **{"ceiling": profiles.ceiling(1250.0), "trials": trials, **changes}))


@pytest.mark.parametrize("wrapped", [True, False])
def test_why_no_workers_were_tried_for_a_dataset_of_ones_own_is_told_once(wrapped: bool) -> None:
    out = {f"loader {kind}: it has one reader": 4 for kind in ("two", "one")}
    ceiling = profiles.ceiling(1250.0) if wrapped else findings.result().ceiling
    found = noted(left_out={**out, "other: no": 1}, ceiling=ceiling)
    assert found == (["Not tried: loading with one and two. It has one reader"] if wrapped else [])


def test_that_it_was_interrupted_is_a_note() -> None:
    assert noted(stop=CUT) == ["The search was interrupted. This is the best so far, and not proved."]
    nothing = result(stop=CUT).model_copy(update={"winner": None})
    assert verdict.notes(nothing) == ["The search was interrupted before anything to use was measured."]
    assert verdict.headline(nothing) == "No configuration could be measured."


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (Reason.TIME, "a trial takes 2.8 s here. `--budget 2m` has time for some."),
        (Reason.CEILING, "there is nothing to gain."),
        (Reason.EXHAUSTED, "nothing else can run here."),
        (Reason.TRIALS, "no more trials were allowed. `--trials 22` leaves some for the search."),
    ],
)
def test_that_nothing_beside_the_baselines_was_tried_is_said_with_what_it_takes(reason: Reason, said: str) -> None:
    trial = profiles.trial(MINE.config, 74.0).model_copy(update={"key": MINE.key, "seconds": 2.8})
    stop = Stop(reason=reason, message="Over.")
    assert noted(trials=(trial,), seconds=30.0, stop=stop) == [f"Only the baselines were tried: {said}"]


def cold(epochs: int | None, share: float | None, regime: str) -> dict[str, Any]:
    return {"epochs": epochs, "resident_share": share, "page_cache": regime}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"epochs": 2}, None),
        ({"epochs": 1, "whole_training": True}, "Ratios cover the whole training of 1 epoch and its one-time costs"),
        ({"epochs": 2, "whole_training": True}, "Ratios cover the whole training of 2 epochs and its one-time costs"),
        ({"unsaved": "the disk is full"}, "The study could not be written completely: the disk is full. The figures"),
        # A single epoch is told of the cold.
        (cold(1, 0.25, "warm"), r".*75% of them were not in memory .* --page-cache cold"),
        *((cold(*known), None) for known in ((1, 0.25, "cold"), (1, 0.95, "warm"), (1, None, "warm"))),
        *((cold(epochs, 0.25, "warm"), None) for epochs in (2, None)),
        ({"progressive_share": 0.0}, None),
        ({"progressive_share": 0.75}, "(?=.*`jpegtran -copy all -optimize`).*75% "),
        # A batch size that suits the model much better.
        ({"doubled_images_per_second": 1.2 * 1250.0}, None),
        ({"doubled_images_per_second": 1.5 * 1250.0}, "(?=.*--batch-sizes).*1.5x as fast with a batch of"),
    ],
    ids=str,
)
def test_what_the_figures_mean_is_noted(changes: dict[str, Any], said: str | None) -> None:
    found = noted(**changes)
    assert len(found) == (said is not None)
    assert said is None or re.match(said, found[0])


def test_if_no_baseline_can_be_written_the_reason_and_what_can_be_done_are_said() -> None:
    message = "its samples are behind a URL (s3://); those on a disk can"
    failure = TrialFailure(kind=FailureKind.NOT_PLAIN, phase=Phase.BUILD, message=message)
    none = [each.model_copy(update={"images_per_second": None, "failure": failure}) for each in (MINE, THEIRS)]
    assert noted(baselines=tuple(none)) == [
        "The winner was compared with nothing: mine and theirs cannot be written without autopipe, because its samples "
        "are behind a URL (s3://); those on a disk can. --baseline FILE.py:function compares with a pipeline of your "
        "own."
    ]
    assert noted(baselines=(MINE, none[1])) == []
    crashed = none[0].model_copy(update={"failure": failure.model_copy(update={"kind": FailureKind.CRASHED})})
    assert noted(baselines=(crashed, none[1])) == []


@pytest.mark.parametrize(("regime", "other"), [("warm", "cold"), ("cold", "warm")])
def test_a_baseline_whose_files_there_was_no_time_for_is_named(regime: str, other: str) -> None:
    slow = MINE.model_copy(update={"files_ready": False})
    (said,) = noted(baselines=(slow, THEIRS), page_cache=regime)
    assert said.startswith("The rate of mine may be wrong: there was no time to ")
    assert said.endswith(f"with --page-cache {other}.")


def test_a_winner_whose_pixels_differ_is_told_of() -> None:
    dali = pytest.importorskip("autopipe.extensions.dali.loader").Dali(num_threads=2)
    assert noted(config=profiles.config(loader=dali)) == [dali.pixels_differ()]


@pytest.mark.parametrize(
    ("samples", "share", "said"),
    [
        (200, 0.17, r"slowest 1 % of the reads take 17% .*2 s and more .*less than 80 ms.*photo 7.*read_ahead"),
        (200, 0.05, None),
        (12, 0.17, "not known: 12 reads could be timed, and 100 are needed"),
    ],
)
def test_reads_of_which_few_take_most_of_the_time_are_told_of(samples: int, share: float, said: str | None) -> None:
    tail = SampleTail(
        samples=samples, p50_seconds=0.08, p95_seconds=0.1, p99_seconds=2.0, slowest_share=share, slowest="photo 7"
    )
    waiting = ceilings.reads(12.0, 48.0, latency=0.08, tail=tail)
    found = noted(ceiling=profiles.ceiling(1250.0).model_copy(update={"reads": waiting}))
    assert len(found) == (said is not None)
    assert said is None or re.search(said, found[0])


@pytest.mark.parametrize(
    ("row", "epochs", "said"),
    [
        (
            payback(overruled=True),
            2,
            "threads(workers=2) keep=array would win with 21,000 images/s, but its conversion pays after 3.2 "
            "epochs, and the training has 2.",
        ),
        (
            payback(epochs=1.3, advice=True),
            None,
            "Converted to array: 21,000 images/s, 30 s to convert, pays after 1.3 epochs. `--convert` uses it, and "
            "`--epochs N` decides whether it pays.",
        ),
        (
            payback(),
            None,
            "The number of epochs is not known (`--epochs`), so the costs of conversions were not counted.",
        ),
        (payback(), 10, None),
    ],
)
def test_what_is_to_be_known_of_conversions_is_said(row: Payback, epochs: int | None, said: str | None) -> None:
    assert noted(paybacks=(row,), epochs=epochs) == ([] if said is None else [said])
