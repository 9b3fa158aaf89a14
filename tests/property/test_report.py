"""Whatever a search found, a report can be made of it: each tune ends by writing one, and must not fail by it."""

from __future__ import annotations

import io
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from autopipe.artifact.schema import Profile
from autopipe.measure.facts import Ceiling, OpCost, ReadCosts, ReadRung
from autopipe.measure.outcome import FailureKind, Phase, TrialFailure
from autopipe.reports import profile_report, text
from autopipe.search.result import (
    Baseline,
    Contest,
    Effect,
    LeftOut,
    Origin,
    Payback,
    Reason,
    Result,
    Stop,
    Trial,
    Way,
    Winner,
)
from autopipe.values import Estimate
from tests.fakes import profiles

_RATES = st.one_of(st.just(0.0), st.floats(1e-6, 1e9))
_POSITIVE = st.floats(1e-9, 1e12)
_SECONDS = st.one_of(st.just(0.0), st.floats(1e-9, 1e6))
_TEXTS = st.text(max_size=60)


def _estimates(values: st.SearchStrategy[float]) -> st.SearchStrategy[Estimate]:
    three = st.tuples(values, values, values).map(sorted)
    return three.map(lambda each: Estimate(low=each[0], value=each[1], high=each[2]))


_OPS = st.builds(
    OpCost,
    name=_TEXTS,
    part=st.sampled_from(["fixed", "fresh", "finish"]),
    seconds_per_image=_SECONDS,
    wait_seconds_per_image=_SECONDS,
    lock_seconds_per_image=_SECONDS,
)
_READS = st.builds(
    ReadCosts,
    latency_seconds=st.floats(1e-6, 10.0),
    cpu_seconds=st.floats(0.0, 1.0),
    rungs=st.lists(
        st.builds(ReadRung, at_once=st.integers(1, 64), images_per_second=_POSITIVE), min_size=1, max_size=3
    ).map(tuple),
    bytes_per_image=_SECONDS,
)
_CEILINGS = st.builds(
    Ceiling,
    model_images_per_second=_estimates(st.floats(1e-6, 1e9)),
    model_core_seconds_per_image=_SECONDS,
    loader_images_per_second=st.none() | _estimates(_RATES),
    op_costs=st.lists(_OPS, max_size=4).map(tuple),
    reads=st.none() | _READS,
    cores=st.none() | st.floats(0.5, 256.0),
    compact_bytes=st.none() | st.integers(0, 2**32),
    finished_bytes=st.none() | st.integers(0, 2**32),
)
_RATIOS = st.floats(1e-6, 1e6)
_PLAIN = profiles.config()
_CONFIGS = st.sampled_from([_PLAIN, profiles.config(cache="memory"), {"loader": {"kind": "of a plugin"}}, {}])
_FAILURES = st.builds(
    TrialFailure, kind=st.sampled_from(FailureKind), phase=st.sampled_from(Phase), message=_TEXTS.filter(str.strip)
)
_BASELINES = st.lists(
    st.builds(
        Baseline,
        name=_TEXTS,
        key=st.sampled_from("abc"),
        config=st.just(profiles.config(cache="memory")),
        images_per_second=st.none() | _estimates(_RATES),
        failure=st.none() | _FAILURES,
        files_ready=st.booleans(),
    ),
    max_size=3,
)
_CONTESTS = st.lists(
    st.builds(
        Contest,
        key=st.sampled_from("abc"),
        config=_CONFIGS,
        baseline=st.none() | _TEXTS,
        ratio=_RATIOS,
        low=st.just(0.0) | _RATIOS,
        high=st.none() | _RATIOS,
        pairs=st.integers(0, 6),
        blocks=st.lists(_RATIOS, max_size=3).map(tuple),
    ),
    max_size=3,
)
_EFFECTS = st.lists(
    st.builds(
        Effect,
        setting=_TEXTS,
        value=_TEXTS,
        other=_TEXTS | st.integers() | st.booleans(),
        ratio=_RATIOS,
        low=st.just(0.0) | _RATIOS,
        high=_RATIOS,
        measured=st.booleans(),
        paired=st.none() | _estimates(_RATIOS),
    ),
    max_size=4,
)
_TRIALS = st.lists(
    st.builds(
        Trial,
        origin=st.sampled_from(Origin),
        key=st.sampled_from("abc"),
        config=_CONFIGS,
        images_per_second=st.none() | _estimates(_RATES),
        failure=st.none() | _FAILURES,
        block=st.none() | st.integers(0, 3),
        seconds=_SECONDS,
    ),
    max_size=4,
)
_WAYS = st.lists(st.builds(Way, config=_CONFIGS, images_per_second=_POSITIVE, once_seconds=_SECONDS), max_size=3)
_PAYBACKS = st.lists(
    st.builds(
        Payback,
        config=_CONFIGS,
        storage=_TEXTS,
        cut=st.integers(0, 9),
        rate=_estimates(_RATES),
        convert_seconds=_estimates(_SECONDS),
        bytes=st.integers(0, 2**50),
        free_bytes=st.none() | st.integers(0, 2**50),
        saved_seconds=st.floats(-1e6, 1e6),
        epochs=st.none() | _SECONDS,
        overruled=st.booleans(),
        advice=st.booleans(),
    ),
    max_size=2,
)
_WINNERS = st.builds(
    Winner,
    config=st.just(_PLAIN),
    key=st.sampled_from("abc"),
    images_per_second=_estimates(_RATES),
    data_wait_share=st.floats(0.0, 1.0),
    share_of_model=st.none() | st.floats(0.0, 1.0),
    limit=st.none() | _TEXTS,
)
_RESULTS = st.builds(
    Result,
    winner=_WINNERS,
    proved=st.booleans(),
    ceiling=st.none() | _CEILINGS,
    baselines=_BASELINES.map(tuple),
    contests=_CONTESTS.map(tuple),
    whole_training=st.booleans(),
    effects=_EFFECTS.map(tuple),
    ways=_WAYS.map(tuple),
    paybacks=_PAYBACKS.map(tuple),
    trials=_TRIALS.map(tuple),
    left_out=st.lists(st.builds(LeftOut, reason=_TEXTS, configs=st.integers(0, 10**6)), max_size=2).map(tuple),
    stop=st.builds(Stop, reason=st.sampled_from(Reason), message=_TEXTS),
    seconds=_SECONDS,
    ended_at=st.just(profiles.NOON),
    drift=st.none() | st.floats(-1.0, 10.0),
    command=_TEXTS,
    space=_TEXTS,
    epochs=st.none() | st.just(3),
    unsaved=st.none() | _TEXTS,
)


@settings(deadline=None, max_examples=25)
@given(found=_RESULTS, samples=st.integers(0, 10**9))
def test_a_report_is_made_of_whatever_was_found(found: Result, samples: int) -> None:
    profile = profiles.profile(workload=profiles.digest(samples=samples))
    profile = Profile.model_validate(dict(profile.model_copy(update={"result": found})))
    assert Profile.model_validate_json(profile.model_dump_json()) == profile
    artifact = profiles.artifact(profile)
    assert len(profile_report.html_page(artifact, profile)) < 300_000
    json.loads(profile_report.json_text(profile_report.document(artifact, profile)))
    json.loads(json.dumps(text.document(found, None)))
    Console(file=io.StringIO(), width=100).print(text.render(found))
    assert profile_report.piece(profile)
    assert profile_report.comparison_page([(artifact, profile)] * 2)
    assert profile_report.note(profile)
