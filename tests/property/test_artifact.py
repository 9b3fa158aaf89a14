"""Whatever an artifact's file holds, reading it gives an artifact or says what is wrong with it."""

import contextlib
import datetime
import io
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from autopipe.artifact import artifact as files
from autopipe.artifact import factory, pick
from autopipe.artifact.schema import Artifact, Profile
from autopipe.errors import ArtifactError
from autopipe.measure import fingerprint
from autopipe.measure.fingerprint import Hardware
from autopipe.reports import profile_report
from autopipe.reports import text as reports_text
from autopipe.workload.workload import Workload
from tests.fakes import profiles

ASSETS = Path(__file__).parents[1] / "assets" / "artifacts"
TEXT = (ASSETS / "v1.json").read_bytes()
CONTENT = json.loads(TEXT)

_HOSTILE = ["../../etc/passwd", "/dev/zero", "os:system", "!!python/object", "__import__('os')", "\x00", "\udc80"]
_NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=True, allow_infinity=True)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(max_size=20) | st.sampled_from(_HOSTILE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in _places(item, (*path, key)))]


PLACES = _places(CONTENT)


def _changed(place: tuple[Any, ...], new: Any, text: bytes = TEXT) -> Any:
    if not place:
        return new
    content = json.loads(text)
    owner = content
    for key in place[:-1]:
        owner = owner[key]
    owner[place[-1]] = new
    return content


def _read(text: bytes) -> Artifact | None:
    """Return the artifact, or None if it was refused in a way that helps."""
    try:
        return files.parse(text, "this.json")
    except ArtifactError as error:
        message = error.message
    assert ("this.json" in message, len(message) < 1000) == (True, True)
    return None


@given(st.binary(max_size=200) | st.integers(0, len(TEXT) - 3).map(lambda length: TEXT[:length]))
def test_any_bytes_and_a_file_cut_anywhere_are_refused(text: bytes) -> None:
    assert _read(text) is None


@given(st.integers(0, len(TEXT) - 1), st.integers(0, 255))
def test_a_byte_changed_anywhere(position: int, byte: int) -> None:
    _read(TEXT[:position] + bytes([byte]) + TEXT[position + 1 :])


@given(st.sampled_from(PLACES), st.integers(1, 100_000), st.sampled_from(["[", '{"a":']))
def test_any_depth_anywhere_is_refused(place: tuple[Any, ...], depth: int, opening: str) -> None:
    marker = "6f1d"
    text = json.dumps(_changed(place, marker)).replace(f'"{marker}"', opening * depth)
    assert _read(text.encode()) is None


@given(st.sampled_from(PLACES), _VALUES)
def test_any_value_anywhere_is_refused_or_can_be_picked_from_and_locates_nothing_outside(
    place: tuple[Any, ...], new: Any
) -> None:
    if (read := _read(json.dumps(_changed(place, new)).encode())) is None:
        return

    def never() -> Workload:
        pytest.fail("something was imported")

    for here in (profiles.hardware(), profiles.hardware(cpu_model="another"), *(p.hardware for p in read.profiles)):
        with contextlib.suppress(ArtifactError):
            choice = pick.pick(read, here)
            assert factory.of_profile(choice.profile, never, named=read.workload).config.loader.kind


_FOUND = [place for place in PLACES if place[:3] == ("profiles", 0, "result") and "config" not in place]
_FOUND += [("profiles", 0, "result", "ceiling", name) for name in ("read_bytes_per_second", "bytes_per_image")]
_FOUND += [("profiles", 0, "result", "counted")]
_ODD: st.SearchStrategy[Any] = st.sampled_from([None, 0.0, 1e-9, 0.5, 1, 1e9, 2**50, "", "x" * 60, [], {}, True, False])


@given(st.lists(st.tuples(st.sampled_from(_FOUND), _ODD), max_size=8))
def test_a_report_is_made_of_whatever_a_search_found(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    text = TEXT
    for place, odd in changes:  # of which each leaves an artifact
        with contextlib.suppress(LookupError, TypeError):
            changed = json.dumps(_changed(place, odd, text)).encode()
            text = changed if _read(changed) is not None else text
    artifact = files.parse(text, "this.json")
    profile = artifact.profiles[0]
    found = profile.result
    if found is None or found.winner is None or not found.winner.images_per_second.value:
        return
    assert len(profile_report.html_page(artifact, profile)) < 300_000
    json.loads(profile_report.json_text(profile_report.document(artifact, profile)))
    json.loads(json.dumps(reports_text.document(found, None)))
    Console(file=io.StringIO(), width=100).print(reports_text.render(found))
    assert profile_report.piece(profile)


_HARDWARE = st.builds(
    Hardware,
    cpu_model=st.sampled_from(["A", "B"]),
    cores=st.integers(1, 64),
    memory_bytes=st.integers(0, 2**40),
    gpus=st.lists(st.just(profiles.H200), max_size=3).map(tuple),
    storage=st.sampled_from(["unknown", "ext4", "nfs"]),
    system=st.just("Linux"),
    python=st.sampled_from(["3.11.1", "3.12.0"]),
)


@given(_HARDWARE, _HARDWARE)
def test_comparing_machines_is_symmetric_and_every_machine_is_like_itself(first: Hardware, second: Hardware) -> None:
    there, back = fingerprint.compare_hardware(first, second), fingerprint.compare_hardware(second, first)
    assert there.level is back.level
    assert [found.field for found in there.differences] == [found.field for found in back.differences]
    assert fingerprint.compare_hardware(first, first) == fingerprint.Match(level=fingerprint.MatchLevel.SAME)


@given(st.lists(_HARDWARE, min_size=1, max_size=5), st.data())
def test_a_machine_with_a_profile_gets_one_that_is_the_same(machines: list[Hardware], data: st.DataObject) -> None:
    artifact = profiles.artifact(*(profiles.profile(hardware=hardware) for hardware in machines))
    here = data.draw(st.sampled_from(machines))
    choice = pick.pick(artifact, here, strict=True)
    assert (choice.match.level, choice.warning) == (fingerprint.MatchLevel.SAME, None)
    assert choice.config.model_dump(mode="json") == choice.profile.winner.config
    once = pick.merge([artifact])
    assert pick.merge([once, once]) == once


_PROFILES = st.builds(
    lambda cores, days, rate: profiles.profile(
        hardware=profiles.hardware(cores=cores),
        measured_at=profiles.NOON + datetime.timedelta(days=days),
        images_per_second=profiles.about(rate),
    ),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from([500.0, 1000.0, 2000.0]),
)


@given(st.lists(_PROFILES, min_size=1, max_size=100), st.randoms(use_true_random=False), st.integers(1, 11))
def test_the_order_of_artifacts_and_steps_do_not_matter_and_the_latest_stays(
    found: list[Profile], random: Random, cut: int
) -> None:
    artifacts = [profiles.artifact(each) for each in found]
    shuffled = random.sample(artifacts, len(artifacts))
    in_steps = [pick.merge(part) for part in (artifacts[:cut], artifacts[cut:]) if part]
    one, *others = (sorted(pick.merge(each).profiles, key=str) for each in (artifacts, shuffled, in_steps))
    assert [one, one] == others
    latest: dict[int, datetime.datetime] = {}
    for each in found:
        latest[each.hardware.cores] = max(each.measured_at, latest.get(each.hardware.cores, each.measured_at))
    assert {each.hardware.cores: each.measured_at for each in one} == latest
