"""Merging artefacts: whatever their number and order, the latest profile of each machine stays."""

from __future__ import annotations

import datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from autopipe.artifact import pick
from tests.fakes.profiles import NOON, about, artifact, hardware, profile

PROFILES = st.builds(
    lambda cores, days, rate: profile(
        hardware=hardware(cores=cores), measured_at=NOON + datetime.timedelta(days=days), images_per_second=about(rate)
    ),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from([500.0, 1000.0, 2000.0]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(PROFILES, min_size=1, max_size=100), st.randoms(use_true_random=False))
def test_the_order_of_artefacts_does_not_matter_and_the_latest_stays(profiles: list, random) -> None:  # type: ignore[no-untyped-def,type-arg]  # hypothesis's
    artifacts = [artifact(each) for each in profiles]
    shuffled = random.sample(artifacts, len(artifacts))
    one, other = (sorted(pick.merge(each).profiles, key=str) for each in (artifacts, shuffled))
    assert one == other
    every = {each.hardware.cores for each in profiles}
    latest = {cores: max(each.measured_at for each in profiles if each.hardware.cores == cores) for cores in every}
    assert {each.hardware.cores: each.measured_at for each in one} == latest


@settings(deadline=None, max_examples=30)
@given(st.lists(PROFILES, min_size=2, max_size=12), st.integers(1, 11))
def test_merging_in_two_steps_is_merging_at_once(profiles: list, cut: int) -> None:  # type: ignore[type-arg]
    artifacts = [artifact(each) for each in profiles]
    cut = min(cut, len(artifacts) - 1)
    twice = pick.merge([pick.merge(artifacts[:cut]), pick.merge(artifacts[cut:])])
    assert sorted(twice.profiles, key=str) == sorted(pick.merge(artifacts).profiles, key=str)
