"""What a training has learnt, in the artifact: written at the ends of epochs, used on the same machine, and shown."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

import autopipe as ap
from autopipe.artifact import artifact as files
from autopipe.artifact import factory, pick
from autopipe.artifact.schema import Artifact, Live
from autopipe.errors import ArtifactError
from autopipe.measure import fingerprint
from autopipe.measure.fingerprint import Hardware
from autopipe.measure.outcome import FailureKind, Phase, TrialFailure
from autopipe.pipeline.switching import SwitchingLoader
from autopipe.reports import profile_report, tables
from autopipe.search.result import BaselineResult, Change, Learnt
from autopipe.values import Estimate
from tests.fakes.profiles import NOON, baseline, hardware, of_this_machine, profile
from tests.fakes.reports import printed

RATE = Estimate(value=500.0, low=490.0, high=510.0)
AFTER = ap.PipelineConfig(loader=ap.Threads(workers=7))
HOUR = datetime.timedelta(hours=1)


def live(**changes: Any) -> Live:
    plain: dict[str, Any] = {
        "hardware": hardware(),
        "config": AFTER.model_dump(mode="json"),
        "images_per_second": RATE,
        "data_wait_share": 0.25,
        "trained_at": NOON + HOUR,
        "changes": (
            Change(epoch=0, before="threads(workers=2)", after="threads(workers=7)", ratio=1.5, kept=True),
            Change(epoch=1, before="threads(workers=7)", after="processes(workers=2)", kept=False, failure="no room"),
        ),
    }
    return Live(**{**plain, **changes})


LARGE = hardware(cores=32)


@pytest.mark.parametrize(
    ("learnt", "here", "used"),
    [
        (live(), hardware(), True),
        (live(trained_at=NOON - HOUR), hardware(), False),  # a later tune counts more
        (live(hardware=hardware(cpu_model="Another")), hardware(), False),
        (live(hardware=LARGE), LARGE, True),  # a machine without a profile
    ],
)
def test_a_machine_begins_with_what_its_last_training_has_learnt(learnt: Live, here: Hardware, used: bool) -> None:
    known = Artifact(profiles=(profile(),), live=(learnt,))
    choice = pick.pick(known, here)
    assert (choice.config, choice.live) == ((AFTER, learnt) if used else (pick.config_of(profile()), None))
    assert choice.warning is None
    if here is LARGE:
        with pytest.raises(ArtifactError, match="not of this machine"):
            pick.pick(known, here, strict=True)


def test_the_last_training_on_a_machine_replaces_those_before_it() -> None:
    others, later = live(hardware=hardware(cores=32)), live(trained_at=NOON + 2 * HOUR)
    known = Artifact(profiles=(profile(),), live=(live(), others))
    assert pick.with_live(known, later).live == (others, later)
    assert pick.merge([pick.with_live(known, later), known]).live == (others, later)
    assert pick.with_profile(known, profile(measured_at=NOON)).live == known.live


def test_it_is_written_beside_the_profiles_and_read_again_unless_nothing_was_tried(tmp_path: Path) -> None:
    path = of_this_machine(tmp_path, below="tuned", hardware=fingerprint.detect())
    before, tuned = path.read_bytes(), factory.load(path)
    tuned._keep(Learnt(**live(changes=()).model_dump(exclude={"hardware"})))
    assert path.read_bytes() == before
    known = live(trained_at=datetime.datetime.now(datetime.UTC))
    tuned._keep(Learnt(**known.model_dump(exclude={"hardware"})))
    found = files.read(path)
    assert found.profiles == files.parse(before).profiles
    assert [each.changes for each in found.live] == [known.changes]
    assert factory.load(path).config == AFTER


def test_show_tells_what_was_changed_and_what_that_brought() -> None:
    known = Artifact(profiles=(profile(),), live=(live(),))
    said = printed(tables.profiles(known, known.profiles[0], None, here=hardware(), now=NOON, live=live()), 200)
    assert "live, of a training (used on this machine)" in said
    assert "epoch 1: threads(workers=7) in place of threads(workers=2), 1.5x" in said
    assert "no room" in said


def test_show_says_of_each_baseline_without_a_rate_what_the_tune_said() -> None:
    def without_a_rate(name: str, kind: FailureKind | None) -> BaselineResult:
        failure = None if kind is None else TrialFailure(kind=kind, phase=Phase.BUILD, message="it says why")
        return baseline(name, 1.0).model_copy(update={"images_per_second": None, "failure": failure})

    kinds = {"first": None, "second": FailureKind.NOT_PLAIN, "third": FailureKind.CRASHED}
    known = Artifact(profiles=(profile(baselines=tuple(map(without_a_rate, kinds, kinds.values()))),))
    said = printed(tables.profiles(known, known.profiles[0], None, here=hardware(), now=NOON), 200)
    assert "first: not measured, second: left out, third: it failed" in said


def test_the_report_tells_what_a_training_has_changed() -> None:
    known = Artifact(profiles=(profile(),), live=(live(),))
    page, document = profile_report.html_page(known, profile()), profile_report.document(known, profile())
    assert "What did a training change?" in page
    assert "<td>threads(workers=7)</td><td>threads(workers=2)</td>" in page
    assert "no room" in page
    assert [row["ratio"] for row in document["live"]["rows"]] == [1.5, None]
    assert "live" not in profile_report.document(known, profile(hardware=hardware(cores=32)))


def test_the_loader_of_an_artifact_may_tune_itself(tmp_path: Path) -> None:
    tuned = factory.load(of_this_machine(tmp_path, below="tuned", hardware=fingerprint.detect()))
    with tuned.make_loader(tune="live") as loader:
        assert isinstance(loader, SwitchingLoader)
        assert sum(len(x) for x, _ in loader.batches(0)) == 256
