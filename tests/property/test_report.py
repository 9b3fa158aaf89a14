"""Whatever a search found, a report can be made of it: each tune ends by writing one, and must not fail by it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from autopipe.core.facts import Ceiling, OpCost, ReadCosts, ReadRung
from autopipe.core.value import Estimate
from autopipe.reports import comparison, story
from autopipe.tuned.findings import Asked, Attempt, Contest, Findings, LeftOut, Origin, Way, Worth
from autopipe.tuned.schema import Baseline, Limit, Profile
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
_FINDINGS = st.builds(
    Findings,
    ceiling=st.none() | _CEILINGS,
    contests=st.lists(
        st.builds(
            Contest,
            name=_TEXTS,
            baseline=st.booleans(),
            ratio=_RATIOS,
            low=st.just(0.0) | _RATIOS,
            high=st.none() | _RATIOS,
            pairs=st.integers(0, 6),
            blocks=st.lists(_RATIOS, max_size=3).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    effects=st.lists(
        st.builds(
            Worth,
            setting=_TEXTS,
            value=_TEXTS,
            other=_TEXTS,
            ratio=_RATIOS,
            low=st.just(0.0) | _RATIOS,
            high=_RATIOS,
            measured=st.booleans(),
            paired=st.none() | _estimates(_RATIOS),
        ),
        max_size=4,
    ).map(tuple),
    ways=st.lists(
        st.builds(Way, name=_TEXTS, config=_TEXTS, images_per_second=_POSITIVE, once_seconds=_SECONDS), max_size=3
    ).map(tuple),
    trials=st.lists(
        st.builds(
            Attempt,
            origin=st.sampled_from(Origin),
            config=_TEXTS,
            images_per_second=st.none() | _estimates(_RATES),
            failure=st.none() | _TEXTS,
        ),
        max_size=4,
    ).map(tuple),
    left_out=st.lists(st.builds(LeftOut, reason=_TEXTS, configs=st.integers(0, 10**6)), max_size=2).map(tuple),
    limit=st.none() | _TEXTS,
    share_of_model=st.none() | st.floats(0.0, 1.0),
    proved=st.booleans(),
    trust=_TEXTS,
    seconds=_SECONDS,
    asked=st.none()
    | st.builds(Asked, command=_TEXTS, seed=st.integers(0, 9), space=_TEXTS, epochs=st.none() | st.just(3)),
)


@settings(deadline=None, max_examples=25)
@given(found=_FINDINGS, rate=_estimates(_RATES), before=_estimates(_RATES), samples=st.integers(0, 10**9))
def test_a_report_is_made_of_whatever_was_found(
    found: Findings, rate: Estimate, before: Estimate, samples: int
) -> None:
    changes: dict[str, Any] = {
        "findings": found,
        "measurement": profiles.figures(1.0).model_copy(update={"images_per_second": rate}),
        "baselines": (Baseline(name="mine", images_per_second=before, config=profiles.config(cache="memory")),),
        "ceiling": None if found.ceiling is None else Limit.of(found.ceiling),
        "workload": profiles.digest(samples=samples),
    }
    profile = Profile.model_validate(dict(profiles.profile(**changes)))
    artifact = profiles.artifact(profile)
    assert len(story.html_page(artifact, profile)) < 300_000
    json.loads(story.json_text(story.document(artifact, profile)))
    assert story.piece(profile)
    assert comparison.html_page([(artifact, profile)] * 2)
    assert story.note(profile)
