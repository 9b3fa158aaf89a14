"""What a result means, in sentences: headline, action, trust and notes."""

from __future__ import annotations

from typing import Any

import pytest

from autopipe.measure.facts import SampleTail
from autopipe.measure.outcome import FailureKind, Phase, TrialFailure
from autopipe.pipeline.loaders.workers import Threads
from autopipe.pipeline.loaders.wrapped import Foreign, Wrapped
from autopipe.reports import verdict
from autopipe.search.result import BaselineResult, Contest, Effect, Reason, Result, Stop
from autopipe.values import Estimate
from tests.fakes import ceilings, findings, profiles
from tests.fakes.findings import payback
from tests.fakes.profiles import baseline, contest
from tests.fakes.reports import Approved


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


def own(value: float) -> BaselineResult:
    return baseline(OWN, value, loader=Foreign(code="bench.py:make_dataset"), device_prefetch=0)


OWN_74, TF_DATA = own(74.0), {"loader": Foreign(code="tf.data"), "device_prefetch": 0}
CACHED = {"loader": Foreign(code="tf.data-cache"), "device_prefetch": 0, "keep": "memory"}
KEEPS = effect("keep", "none", 2.8, 2.5, "memory")
LIFT = contest(MINE, 13.5, 12.0)


def against(name: str, rate: float, **changes: Any) -> Result:
    """Return a result whose winner, which keeps samples in memory, is twice as fast as its only baseline."""
    config = {name: changes.pop(name) for name in ("loader", "device_prefetch", "keep") if name in changes}
    usual = baseline(name, rate, **config)
    return result(contest(usual, 2.0, 1.9), baselines=(usual,), **changes)


def kept(usual: dict[str, Any], *effects: Effect) -> Result:
    winner = profiles.config(keep="memory")
    return against("tf.data AUTOTUNE", 500.0, **usual, config=winner, effects=effects, ceiling=None)


def beside_own(name: str, **changes: Any) -> Result:
    """Return a result whose winner is ahead of the user's own pipeline, and behind another."""
    other = baseline(name, 2000.0, **changes)
    return result(contest(OWN_74, 13.5, 12.0), contest(other, 0.5, 0.4), baselines=(OWN_74, other))


def study(name: str | None, proved: bool, seconds: float = 0.0) -> Result:
    url = None if name is None else "sqlite:////tuned/study.db"
    asked = {"study": name, "study_url": url, "budget_seconds": 120.0}
    return result(contest(MINE, 2.2, 0.9), proved=proved, seconds=seconds, **asked)


def of_wrapped(best: dict[str, Any], ahead: int) -> Result:
    now = {"calls": 1, "prefetch": 2}
    effects = [effect(f"wrapped.{name}", now[name], 1.5, 1.4, best[name]) for name in now]
    effects.append(effect("device_prefetch", 0, 1.2, 1.1, ahead))
    usual = baseline("the dataset as it is", 74.0, loader=Wrapped.model_validate(now), device_prefetch=0)
    tuned = profiles.config(loader=Wrapped.model_validate(best), finish="host", device_prefetch=ahead)
    return result(contest(usual, 13.5, 12.0), baselines=(usual,), config=tuned, effects=tuple(effects))


USUAL_500 = baseline("tf.data AUTOTUNE", 500.0, **TF_DATA)
RESULTS = {
    "proved": result(LIFT),
    "proved, and at the limit of the model": result(LIFT, share_of_model=0.99),
    "likely": result(contest(MINE, 13.5, 12.0, 2), proved=False),
    "the baseline nearest in the proof, not the luckiest": result(contest(THEIRS, 10.0, 9.0)),
    "rounds without the user's own": result(contest(THEIRS, 10.0, 9.0), baselines=(OWN_74, THEIRS)),
    "the user's own beside the usual": result(
        contest(OWN_74, 13.5, 12.0), contest(USUAL_500, 2.0, 1.9), baselines=(OWN_74, USUAL_500)
    ),
    "it caches": kept(TF_DATA, KEEPS, THREADS),
    "it caches, effects in another order": kept(TF_DATA, THREADS, KEEPS),
    "so does its rival": kept(CACHED, KEEPS, THREADS),
    "so does its rival, no other effect": kept(CACHED, KEEPS),
    "an effect that is too small": kept(TF_DATA, KEEPS, effect("finish", "host", 1.04, 1.01, "device")),
    "an effect that is not decided": kept(TF_DATA, effect("keep", "none", 2.8, 0.9, "memory")),
    "no effect over the nearest loader": kept(CACHED, effect("loader", "tfdata", 1.01, 0.98, "threads"), OVER_KERAS),
    "plain code is faster still": beside_own("tf.data AUTOTUNE", **TF_DATA),
    "the former configuration is faster still": beside_own("the former configuration"),
    "unsteady, time left": study("autopipe", proved=False, seconds=30.0),
    "unsteady, no time left": study("autopipe", proved=False, seconds=118.0),
    "unsteady, proved, time left": study("autopipe", proved=True, seconds=30.0),
    "unsteady, of a retune": study("retune-2026-01-01T00:00:00", proved=False, seconds=30.0),
    "unsteady, in memory": study(None, proved=False),
    "compared with nothing": result(baselines=(), ceiling=None),
    "the baseline itself": result(key=MINE.key),
    "close": result(contest(MINE, 1.01, 0.9)),
    "the baseline keeps the model busy": result(share_of_model=0.96, baselines=(baseline("mine", 990.0),)),
    "behind, not side by side": result(baselines=(baseline("mine", 1100.0),)),
    "ahead side by side alone": result(contest(MINE, 1.3, 1.2), baselines=(baseline("mine", 1100.0),)),
    "wrapped, one argument": of_wrapped({"calls": 4, "prefetch": 2}, 0),
    "wrapped, two, and ahead": of_wrapped({"calls": 4, "prefetch": 1}, 2),
    "wrapped, ahead": of_wrapped({"calls": 1, "prefetch": 2}, 2),
}


def test_headline_and_action(approved: Approved) -> None:
    approved({name: f"{verdict.headline(found)}\n{verdict.action(found)}" for name, found in RESULTS.items()})


# ---------------------------------------------------------------- trust


CUT = Stop(reason=Reason.INTERRUPTED, message="Interrupted.")
UNSTEADY = {"images_per_second": Estimate(value=50.0, low=34.0, high=65.0)}
AT_CEILING = {"proved": False, "stop": Stop(reason=Reason.CEILING, message="The model is the limit.")}
TRUSTED = {
    "interrupted": result(stop=CUT, proved=False),
    "not proved": result(proved=False),
    "drifted": result(drift=-0.3),
    "hardly drifted": result(drift=0.01),
    "beside other programs": result(others_cores=1.4),
    "unsteady": result(**UNSTEADY),
    "unsteady and undecided": result(contest(MINE, 1.01, 0.8), **UNSTEADY),
    "too few rounds": result(contest(MINE, 13.5, 12.0, 2), proved=False),
    "at the ceiling": result(baselines=(baseline("mine", 1000.0),), **AT_CEILING),
    "at the ceiling, compared with nothing": result(baselines=(), **AT_CEILING),
    "no difference": result(contest(MINE, 1.5, 0.9)),
    "no difference, below": result(contest(MINE, 0.8, 0.6)),
    "the same rate": result(contest(MINE, 1.01, 0.98)),
    "the baseline itself": result(key=MINE.key),
    "proved": result(contest(MINE, 1.5, 1.4)),
}


def test_trust(approved: Approved) -> None:
    approved({name: verdict.trust_text(found) for name, found in TRUSTED.items()})


def test_gains(approved: Approved) -> None:
    effects = (
        effect("keep", "none", 2.8, 2.5),
        effect("loader", "keras", 1.6, 1.5),
        effect("loader", "tfdata", 1.2, 1.1),
        effect("device_prefetch", "0", 1.3, 0.9),
        effect("finish", "host", 1.02, 0.9),
    )
    approved({f"{proved=}": verdict.gains(result(effects=effects, proved=proved)) for proved in (True, False)})


# ---------------------------------------------------------------- notes


TRIED = (profiles.trial(profiles.config(), 900.0), profiles.trial(MINE.config, 74.0))
ALONE = profiles.ceiling(1250.0)
MINE_ONLY = profiles.trial(MINE.config, 74.0).model_copy(update={"key": MINE.key, "seconds": 2.8})
PLAIN = TrialFailure(
    kind=FailureKind.NOT_PLAIN, phase=Phase.BUILD, message="its samples are behind a URL (s3://); those on a disk can"
)


def missing(failure: TrialFailure) -> tuple[BaselineResult, ...]:
    return tuple(each.model_copy(update={"images_per_second": None, "failure": failure}) for each in (MINE, THEIRS))


def stopped(reason: Reason) -> dict[str, Any]:
    return {"trials": (MINE_ONLY,), "seconds": 30.0, "stop": Stop(reason=reason, message="Over.")}


def cold(epochs: int | None, share: float | None, regime: str) -> dict[str, Any]:
    return {"epochs": epochs, "resident_share": share, "page_cache": regime}


def tail(samples: int, share: float) -> dict[str, Any]:
    found: dict[str, Any] = {"p50_seconds": 0.08, "p95_seconds": 0.1, "p99_seconds": 2.0, "slowest": "photo 7"}
    reads = ceilings.reads(12.0, 48.0, latency=0.08, tail=SampleTail(samples=samples, slowest_share=share, **found))
    return {"ceiling": ALONE.model_copy(update={"reads": reads})}


ONE_READER = {"loader two: it has one reader": 4, "loader one: it has one reader": 4, "other: no": 1}
SLOW = MINE.model_copy(update={"files_ready": False})
NOTED: dict[str, dict[str, Any]] = {
    "nothing to say": {},
    "why a dataset of one's own has no workers": {"left_out": ONE_READER},
    "which is nothing new of others": {"left_out": ONE_READER, "ceiling": findings.result().ceiling},
    "interrupted": {"stop": CUT},
    **{f"only the baselines, {reason}": stopped(reason) for reason in Reason if reason is not Reason.INTERRUPTED},
    "two epochs": {"epochs": 2},
    "the whole training of one epoch": {"epochs": 1, "whole_training": True},
    "the whole training of two epochs": {"epochs": 2, "whole_training": True},
    "a full disk": {"unsaved": "the disk is full"},
    "one epoch of files that are not in memory": cold(1, 0.25, "warm"),
    "one epoch, measured cold": cold(1, 0.25, "cold"),
    "one epoch of files in memory": cold(1, 0.95, "warm"),
    "one epoch of nobody knows what": cold(1, None, "warm"),
    "two epochs of files that are not in memory": cold(2, 0.25, "warm"),
    "any number of epochs of them": cold(None, 0.25, "warm"),
    "no progressive files": {"progressive_share": 0.0},
    "progressive files": {"progressive_share": 0.75},
    "a batch size that brings little": {"doubled_images_per_second": 1.2 * 1250.0},
    "a batch size that suits the model much better": {"doubled_images_per_second": 1.5 * 1250.0},
    "no baseline can be written": {"baselines": missing(PLAIN)},
    "one baseline cannot be written": {"baselines": (MINE, missing(PLAIN)[1])},
    "baselines crashed": {"baselines": missing(PLAIN.model_copy(update={"kind": FailureKind.CRASHED}))},
    "no time to read a baseline's files": {"baselines": (SLOW, THEIRS), "page_cache": "warm"},
    "no time to drop a baseline's files": {"baselines": (SLOW, THEIRS), "page_cache": "cold"},
    "few reads take most of the time": tail(200, 0.17),
    "they do not": tail(200, 0.05),
    "too few reads to know": tail(12, 0.17),
    "a conversion that pays too late": {"paybacks": (payback(overruled=True),), "epochs": 2},
    "a conversion that needs a permission": {"paybacks": (payback(epochs=1.3, advice=True),), "epochs": None},
    "a conversion for nobody knows how many epochs": {"paybacks": (payback(),), "epochs": None},
    "a conversion that pays": {"paybacks": (payback(),), "epochs": 10},
}


def noted(**changes: Any) -> list[str]:
    """Return the notes of a search with trials beside its baselines."""
    return verdict.notes(result(**{"ceiling": ALONE, "trials": TRIED, **changes}))


def test_notes(approved: Approved) -> None:
    nothing = result(stop=CUT).model_copy(update={"winner": None})
    last = "\n".join([*verdict.notes(nothing), verdict.headline(nothing)])
    approved({**{name: "\n".join(noted(**changes)) for name, changes in NOTED.items()}, "no winner": last})


def test_a_winner_whose_pixels_differ_is_told_of() -> None:
    dali = pytest.importorskip("autopipe.extensions.dali.loader").Dali(num_threads=2)
    assert noted(config=profiles.config(loader=dali)) == [dali.pixels_differ()]
