"""Reports of a search over the analytic surface: what each section says, and that nothing of a user's gets through."""

from __future__ import annotations

import html.parser
import itertools
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import autopipe as ap
from autopipe.api import loading
from autopipe.artifact import artifact as files
from autopipe.artifact import pick
from autopipe.artifact.schema import Artifact, FileReference, Profile
from autopipe.measure.bottleneck import bottleneck
from autopipe.measure.costs import bounds
from autopipe.measure.outcome import FailureKind, Phase, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.reports import ladder, profile_report
from autopipe.reports.page import Section
from autopipe.search.result import Raced, Reason, Result, Stop
from autopipe.values import Estimate
from tests.fakes import findings, profiles
from tests.fakes.facts import known
from tests.fakes.findings import HOSTILE

KEYS = ["ladder", "rows", "costs", "proof", "settings", "history", "payback", "circumstances"]


@pytest.fixture(scope="module")
def profile() -> Profile:
    return findings.profile()


def section(profile: Profile, key: str) -> Section:
    return next(each for each in profile_report.sections(profile) if each.key == key)


def words(drawn: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(drawn).iter("text")]


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[tuple[str, dict[str, str | None]]] = []
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append((tag, dict(attrs)))


def hostile(profile: Profile) -> Artifact:
    """Return an artifact in which every word that can come from a user is HTML."""
    found, best = profile.result, profile.winner
    ceiling = known(found.ceiling)
    ops = tuple(op.model_copy(update={"name": HOSTILE}) for op in ceiling.op_costs)
    bad = found.model_copy(
        update={
            "winner": best.model_copy(update={"limit": HOSTILE}),
            "ceiling": ceiling.model_copy(update={"op_costs": ops}),
            "command": HOSTILE,
            "space": HOSTILE,
            "baselines": tuple(each.model_copy(update={"name": HOSTILE}) for each in found.baselines),
            "contests": tuple(each.model_copy(update={"baseline": HOSTILE}) for each in found.contests),
            "unsaved": HOSTILE,
            "left_out": dict.fromkeys([HOSTILE], 4),
        }
    )
    machine = profile.hardware.model_copy(update={"cpu_model": HOSTILE, "system": HOSTILE, "packages": {HOSTILE: "1"}})
    changed = profile.model_copy(update={"result": bad, "hardware": machine})
    return profiles.artifact(changed, workload=FileReference(path=f"{HOSTILE}.py"))


def test_a_report_has_all_sections_and_each_its_figures(profile: Profile) -> None:
    found = profile_report.document(profiles.artifact(profile), profile)
    assert [key for key in found if isinstance(found[key], dict) and "rows" in found[key]] == KEYS
    assert all(found[key]["rows"] for key in KEYS)
    assert json.loads(profile_report.json_text(found)) == found
    costs = {row["name"]: row for row in section(profile, "costs").table.rows}
    assert costs["read"]["wait_seconds"] == pytest.approx(0.0009)
    assert costs["Decode"]["lock_seconds"] == pytest.approx(0.00004)
    assert costs["the model's own"]["core_seconds"] == pytest.approx(0.0002)
    for row, contest in zip(found["proof"]["rows"], profile.result.contests, strict=True):
        assert row["blocks"] == list(contest.blocks)
        assert row["interval"][0] <= row["ratio"] <= row["interval"][1]
    assert any(row["interval"][0] > 1 for row in found["settings"]["rows"])
    assert {"baseline", "race", "confirmation"} <= {row["origin"] for row in found["history"]["rows"]}
    assert len(found["history"]["rows"]) == len(profile.result.trials)


def test_the_ladder_says_what_one_process_allows(profile: Profile) -> None:
    def told(native: bool) -> tuple[str, bool]:
        ceiling = known(profile.result.ceiling)
        ops = tuple(op.model_copy(update={"native": native}) for op in ceiling.op_costs)
        found = profile.result.model_copy(update={"ceiling": ceiling.model_copy(update={"op_costs": ops})})
        shown = ladder.ladder(found)
        return shown.text, any("one process" in row["name"] for row in shown.table.rows)

    assert told(native=False)[1] == pick.parse_config(known(profile.result.winner).config).loader.shares_lock()
    assert "Python" in told(native=False)[0]
    assert told(native=True)[1] is False
    assert "one process may use all cores" in told(native=True)[0]


def test_every_picture_says_what_it_shows(profile: Profile) -> None:
    for each in profile_report.sections(profile)[:-1]:
        if each.key != "rows":
            drawn = known(each.picture)
            assert len(ET.fromstring(drawn.render()).attrib["aria-label"]) > 30
            shown = words(drawn.render())
            assert shown
            if each.key == "payback":  # its lines are called by the unit of their axis
                (unit,) = {"hours", "minutes", "seconds"} & set(shown)
                assert drawn.label.startswith(f"{unit.capitalize()} of training")


def test_the_ladder_names_the_limit_and_shows_both_baselines(profile: Profile) -> None:
    rows = section(profile, "ladder").table.rows
    (limits,) = [row["name"] for row in rows if row["limits"]]
    assert limits == "model alone"
    assert [row["name"] for row in rows if row["in_training"]] == ["keras", "tfdata", "the winner"]
    spared = {row["name"] for row in rows if row["spared"]}
    assert "Decode on 4 cores" in spared  # the winner keeps samples in memory


def test_the_limit_of_the_ladder_is_the_bottleneck_of_the_winner(profile: Profile) -> None:
    ceiling, best = known(profile.result.ceiling), profile.winner
    config, rate = pick.config_of(profile), best.images_per_second.value
    for times, loader in itertools.product((1.0, 1.5, 4.0), (None, 1.02 * rate)):
        changed = ceiling.model_copy(update={"model_images_per_second": Estimate.of_one(times * rate)})
        found = bottleneck(bounds(changed, config), rate, 1 / times, loader)
        raced = [Raced(config=best.config, images_per_second=loader)] if loader is not None else []
        told = best.model_copy(
            update={
                "share_of_model": 1 / times,
                "limit_kind": found.limit and found.limit.kind,
                "limit": found.sentence,
            }
        )
        rungs = ladder.rungs(_found(ceiling=changed, winner=told, raced=tuple(raced)).result)
        limits = [each.images_per_second for each in rungs if each.limits]
        assert limits == ([] if found.limit is None else [found.limit.images_per_second])


def test_the_waterfalls_bars_add_up_to_what_an_image_costs_the_winner(profile: Profile) -> None:
    rows = section(profile, "costs").table.rows
    paid = sum(row["core_seconds"] + row["wait_seconds"] for row in rows if not row["spared"])
    assert f"{1e3 * paid:.3g} ms" in words(known(section(profile, "costs").picture).render())


def test_what_training_has_left_behind_is_not_the_limit(profile: Profile) -> None:
    ceiling = known(profile.result.ceiling)
    slow = known(ceiling.reads).model_copy(
        update={"latency_seconds": 10.0, "cpu_seconds": 0.0}
    )  # read beside something else
    uncached = pick.config_of(profile).model_copy(update={"keep": "none"})
    best = profile.winner.model_copy(update={"config": uncached.model_dump(mode="json")})
    shown = _found(ceiling=ceiling.model_copy(update={"reads": slow}), winner=best)
    rate = profile.winner.images_per_second.value
    limits = [row for row in section(shown, "ladder").table.rows if row["limits"]]
    assert all(1.1 * row["images_per_second"] >= rate for row in limits)
    assert any(row["images_per_second"] < 0.1 * rate for row in section(shown, "ladder").table.rows)


def test_a_gain_that_is_not_proved_is_not_shown_as_if_it_were(profile: Profile) -> None:
    def shown(low: float, pairs: int = 3) -> str:
        update = {"low": low, "pairs": pairs}
        contests = [each.model_copy(update=update) for each in profile.result.contests if each.baseline]
        found = _found(contests=tuple(contests))
        return profile_report.html_page(profiles.artifact(found), found)

    assert "the fastest baseline</small>" in shown(1.1)
    assert "the fastest baseline, not proved</small>" in shown(0.9)
    assert "the fastest baseline, not proved</small>" in shown(1.1, pairs=2)


def test_a_trial_that_was_cut_off_is_told_and_not_called_failed(profile: Profile) -> None:
    first, *rest = profile.result.trials
    cut = first.model_copy(update={"images_per_second": None})
    shown = section(_found(trials=(cut, *rest)), "history")
    assert shown.text.startswith(f"{len(rest) + 1} trials, 1 cut off, ")
    assert f"{PipelineConfig.model_validate(first.config).short()}: cut off before its end" in known(shown.more)[1]
    failed = cut.model_copy(update={"failure": TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message="no")})
    assert "trials, 1 failed, 1 cut off, " in section(_found(trials=(failed, cut, *rest[1:])), "history").text


def test_rounds_are_compared_by_what_counts_over_the_whole_training() -> None:
    ended = findings.searched()
    run = known(ended.confirmation)
    assert ended.result.contests
    mine = run.scores[run.winner]
    ratios = [[mine[at] / value for at, value in sorted(ran.items()) if at in mine] for ran in run.scores.values()]
    assert all(list(each.blocks) in ratios for each in ended.result.contests)


def test_the_proof_says_what_rests_on_few_rounds_and_what_was_cut_off(profile: Profile) -> None:
    few, note = profile.result.contests[0], "Fewer than three rounds prove nothing"
    shown = section(_found(contests=(few.model_copy(update={"baseline": "mine", "low": 2.0, "pairs": 1}),)), "proof")
    assert note in shown.text
    assert "proved faster" not in shown.text
    assert shown.table.cells()[0][2].endswith(", likely by 1 round")
    whole = section(_found(contests=(few.model_copy(update={"pairs": 3}),)), "proof")
    assert note not in whole.text
    assert "likely" not in whole.table.cells()[0][2]
    sure = few.model_copy(update={"baseline": "mine", "low": 2.0, "pairs": 3})
    assert "proved faster than mine" in section(_found(contests=(sure,)), "proof").text
    stop = Stop(reason=Reason.INTERRUPTED, message="Interrupted.")
    cut = section(_found(contests=(sure,), proved=False, stop=stop), "proof")
    assert "the run was cut off, so nothing is proved" in cut.text
    assert "proved faster" not in cut.text


def test_nothing_of_a_users_gets_through_as_html(profile: Profile) -> None:
    artifact = hostile(profile)
    text = profile_report.html_page(artifact, artifact.profiles[0], use=HOSTILE)
    tags = Tags()
    tags.feed(text)
    assert "script" not in {tag for tag, _ in tags.opened}
    assert not [name for _, attributes in tags.opened for name in attributes if name.startswith("on")]
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 20


def test_nothing_is_fetched_and_a_policy_forbids_it(profile: Profile) -> None:
    text = profile_report.html_page(profiles.artifact(profile), profile)
    tags = Tags()
    tags.feed(text)
    assert not [tag for tag, _ in tags.opened if tag in ("img", "link", "iframe", "object", "embed")]
    assert not [1 for _, attributes in tags.opened if attributes.keys() & {"src", "href"}]
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert len(text.encode()) < 300_000


@pytest.mark.parametrize("epochs", [None, 20])
def test_a_search_without_a_proof_or_with_failures_is_reported_as_well(epochs: int | None) -> None:
    whole = findings.profile(findings.result(epochs=epochs))
    failure = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message="no")
    trial = whole.result.trials[0].model_copy(update={"images_per_second": None, "failure": failure})
    changes: dict[str, Any] = {"proved": False, "contests": (), "effects": (), "trials": (trial,)}
    bare = whole.model_copy(update={"result": whole.result.model_copy(update=changes)})
    text = profile_report.html_page(profiles.artifact(bare), bare)
    assert "crashed in open: no" in text
    assert "Search on until it is proved" in text


def _found(**changes: Any) -> Profile:
    whole = findings.profile()
    return whole.model_copy(update={"result": Result(**{**dict(whole.result), **changes})})


def test_an_open_interval_ends_in_an_arrow_and_not_in_an_error() -> None:
    wide = findings.result().contests[0].model_copy(update={"low": 0.0, "high": None, "pairs": 1})
    shown = section(_found(contests=(wide,)), "proof")
    assert any("or more" in each for each in words(known(shown.picture).render()))


# ---------------------------------------------------------------- what ap.report and ap.load return


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return files.write(profiles.artifact(findings.profile()), tmp_path / "autopipe.json")


def test_a_report_is_made_of_an_artifact_alone_or_of_its_folder(artifact: Path, tmp_path: Path) -> None:
    one, other = ap.report(artifact), ap.report(tmp_path)
    assert one == other
    assert one.save(tmp_path / "report.html").read_text() == one.html
    assert json.loads((tmp_path / "report.json").read_text()) == one.document


@pytest.mark.filterwarnings("ignore:.*not of a machine like this one")
def test_a_notebook_shows_a_tuned_pipeline_by_verdict_and_ladder(artifact: Path) -> None:
    tuned = loading.load(artifact)
    shown = known(tuned._repr_html_())
    assert shown.count("<svg") == 1
    assert "body {" not in shown.replace("body.ap {", "")
    assert " -&gt; " in shown
    assert ap.report(tuned).document == ap.report(artifact).document


def test_a_notebook_shows_a_report_in_a_frame_and_a_console_its_verdict_alone(artifact: Path) -> None:
    report = ap.report(artifact)
    shown = report._repr_html_()
    assert shown.startswith("<iframe ")
    assert "<script" not in shown
    assert " sandbox " in shown
    assert report.document["verdict"] in repr(report)
    assert "<svg" not in repr(report)
    assert len(repr(report)) < 500


def test_the_winner_needs_no_proof_against_itself(profile: Profile) -> None:
    best = profile.winner
    own = profiles.baseline("keras", best.images_per_second.value).model_copy(
        update={"config": best.config, "key": best.key}
    )
    found = _found(baselines=(own,), contests=())
    assert "not proved</small>" not in profile_report.html_page(profiles.artifact(found), found)
