"""Reports of a search over the analytic surface, and pictures: of them, of README and docs, and of a notebook."""

import html.parser
import itertools
import json
import re
import runpy
import sys
import types
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import autopipe as ap
from autopipe.api import loading
from autopipe.artifact import artifact as files
from autopipe.artifact import pick
from autopipe.artifact.schema import FileReference, Profile
from autopipe.measure.bottleneck import bottleneck
from autopipe.measure.costs import bounds
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FailureKind, Phase, TrialFailure
from autopipe.reports import drawing, ladder, notebook, profile_report, text
from autopipe.reports.drawing import Drawing, Scale
from autopipe.reports.page import Section
from autopipe.search.result import AskedBy, Raced, Reason, Result, Stop, TrialFinished, TrialStarted
from autopipe.values import Estimate
from tests.fakes import findings, profiles
from tests.fakes.facts import known, measurement
from tests.fakes.findings import HOSTILE
from tests.fakes.reports import printed

KEYS = ["ladder", "rows", "costs", "proof", "settings", "history", "payback", "circumstances"]
PROFILE = findings.profile()
FOUND = PROFILE.result
CEILING, BEST = known(FOUND.ceiling), PROFILE.winner


def but(model: Any, **changes: Any) -> Any:
    return model.model_copy(update=changes)


def profile(**changes: Any) -> Profile:
    """Return the profile of the search but for what changes in its result."""
    return but(PROFILE, result=Result(**{**dict(FOUND), **changes}))  # type: ignore[no-any-return]


def section(key: str, **changes: Any) -> Section:
    return next(each for each in profile_report.sections(profile(**changes)) if each.key == key)


def page(**changes: Any) -> str:
    found = profile(**changes)
    return profile_report.html_page(profiles.artifact(found), found)


def words(shown: Section) -> list[str]:
    return [each.text or "" for each in ET.fromstring(known(shown.picture).render()).iter("text")]


def test_a_report_has_all_sections_and_each_its_figures() -> None:
    found = profile_report.document(profiles.artifact(PROFILE), PROFILE)
    assert [key for key in found if isinstance(found[key], dict) and "rows" in found[key]] == KEYS
    assert all(found[key]["rows"] for key in KEYS)
    assert json.loads(profile_report.json_text(found)) == found
    costs = {row["name"]: row for row in section("costs").table.rows}
    assert costs["read"]["wait_seconds"] == pytest.approx(0.0009)
    assert costs["Decode"]["lock_seconds"] == pytest.approx(0.00004)
    assert costs["the model's own"]["core_seconds"] == pytest.approx(0.0002)
    paid = sum(row["core_seconds"] + row["wait_seconds"] for row in costs.values() if not row["spared"])
    assert f"{1e3 * paid:.3g} ms" in words(section("costs"))  # to which the waterfall's bars add up
    for row, contest in zip(found["proof"]["rows"], FOUND.contests, strict=True):
        assert row["blocks"] == list(contest.blocks)
        assert row["interval"][0] <= row["ratio"] <= row["interval"][1]
    assert any(row["interval"][0] > 1 for row in found["settings"]["rows"])
    assert {"baseline", "race", "confirmation"} <= {row["origin"] for row in found["history"]["rows"]}
    assert len(found["history"]["rows"]) == len(FOUND.trials)


def test_the_ladder_says_what_one_process_allows() -> None:
    def told(native: bool) -> tuple[str, bool]:
        ops = tuple(but(op, native=native) for op in CEILING.op_costs)
        shown = ladder.ladder(profile(ceiling=but(CEILING, op_costs=ops)).result)
        return shown.text, any("one process" in row["name"] for row in shown.table.rows)

    (python, locked), (native, no_lock) = told(native=False), told(native=True)
    assert (locked, no_lock) == (pick.parse_config(BEST.config).loader.shares_lock(), False)
    assert "Python" in python
    assert "one process may use all cores" in native


def test_the_ladder_names_the_limit_and_shows_both_baselines() -> None:
    rows = section("ladder").table.rows
    assert [row["name"] for row in rows if row["limits"]] == ["model alone"]
    assert [row["name"] for row in rows if row["in_training"]] == ["keras", "tfdata", "the winner"]
    spared = {row["name"] for row in rows if row["spared"]}
    assert "Decode on 4 cores" in spared  # the winner keeps samples in memory


def test_the_limit_of_the_ladder_is_the_bottleneck_of_the_winner() -> None:
    config, rate = pick.config_of(PROFILE), BEST.images_per_second.value
    for times, loader in itertools.product((1.0, 1.5, 4.0), (None, 1.02 * rate)):
        changed = but(CEILING, model_images_per_second=Estimate.of_one(times * rate))
        limit = bottleneck(bounds(changed, config), rate, 1 / times, loader)
        raced = () if loader is None else (Raced(config=BEST.config, images_per_second=loader),)
        kind = limit.limit and limit.limit.kind
        told = but(BEST, share_of_model=1 / times, limit_kind=kind, limit=limit.sentence)
        rungs = ladder.rungs(profile(ceiling=changed, winner=told, raced=raced).result)
        wanted = [] if limit.limit is None else [limit.limit.images_per_second]
        assert [each.images_per_second for each in rungs if each.limits] == wanted


def test_what_training_has_left_behind_is_not_the_limit() -> None:
    slow = but(known(CEILING.reads), latency_seconds=10.0, cpu_seconds=0.0)  # read beside something else
    uncached = but(BEST, config=but(pick.config_of(PROFILE), keep="none").model_dump(mode="json"))
    rows = section("ladder", ceiling=but(CEILING, reads=slow), winner=uncached).table.rows
    rate = BEST.images_per_second.value
    assert all(1.1 * row["images_per_second"] >= rate for row in rows if row["limits"])
    assert any(row["images_per_second"] < 0.1 * rate for row in rows)


def test_a_gain_that_is_not_proved_is_not_shown_as_if_it_were() -> None:
    def shown(low: float, pairs: int = 3) -> str:
        return page(contests=tuple(but(each, low=low, pairs=pairs) for each in FOUND.contests if each.baseline))

    assert "the fastest baseline</small>" in shown(1.1)
    assert "the fastest baseline, not proved</small>" in shown(0.9)
    assert "the fastest baseline, not proved</small>" in shown(1.1, pairs=2)
    own = but(profiles.baseline("keras", BEST.images_per_second.value), config=BEST.config, key=BEST.key)
    assert "not proved</small>" not in page(baselines=(own,), contests=())  # no proof is needed against itself


def test_the_proof_says_what_rests_on_few_rounds_and_what_was_cut_off() -> None:
    one = but(FOUND.contests[0], baseline="mine", low=2.0, pairs=1)
    note, proved = "Fewer than three rounds prove nothing", "proved faster than mine"
    few, sure = (section("proof", contests=(but(one, pairs=pairs),)) for pairs in (1, 3))
    assert [(note in each.text, proved in each.text) for each in (few, sure)] == [(True, False), (False, True)]
    assert few.table.cells()[0][2].endswith(", likely by 1 round")
    assert "likely" not in sure.table.cells()[0][2]
    stop = Stop(reason=Reason.INTERRUPTED, message="Interrupted.")
    cut = section("proof", contests=(but(one, pairs=3),), proved=False, stop=stop)
    assert "the run was cut off, so nothing is proved" in cut.text
    assert "proved faster" not in cut.text
    open_ended = section("proof", contests=(but(one, low=0.0, high=None),))  # an arrow, and not an error
    assert any("or more" in each for each in words(open_ended))


def test_a_trial_that_was_cut_off_is_told_and_not_called_failed() -> None:
    first, *rest = FOUND.trials
    cut = but(first, images_per_second=None)
    shown = section("history", trials=(cut, *rest))
    assert shown.text.startswith(f"{len(rest) + 1} trials, 1 cut off, ")
    assert f"{ap.PipelineConfig.model_validate(first.config).short()}: cut off before its end" in known(shown.more)[1]
    failed = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message="no")
    trials = but(cut, failure=failed), cut, *rest[1:]
    assert "trials, 1 failed, 1 cut off, " in section("history", trials=trials).text
    assert "crashed in open: no" in page(trials=trials, proved=False, contests=(), effects=())


def opened(text: str) -> tuple[set[str], set[str]]:
    """Return the tags of a page, and their attributes."""
    seen, parser = list[tuple[str, Any]](), html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attrs: seen.append((tag, attrs))  # type: ignore[method-assign]
    parser.feed(text)
    return {tag for tag, _ in seen}, {name for _, attributes in seen for name, _ in attributes}


def test_nothing_of_a_users_gets_through_as_html() -> None:
    ops = tuple(but(op, name=HOSTILE) for op in CEILING.op_costs)
    changes = {
        "winner": but(BEST, limit=HOSTILE),
        "ceiling": but(CEILING, op_costs=ops),
        **dict.fromkeys(["command", "space", "unsaved"], HOSTILE),
        "baselines": tuple(but(each, name=HOSTILE) for each in FOUND.baselines),
        "contests": tuple(but(each, baseline=HOSTILE) for each in FOUND.contests),
        "left_out": {HOSTILE: 4},
    }
    machine = but(PROFILE.hardware, cpu_model=HOSTILE, system=HOSTILE, packages={HOSTILE: "1"})
    bad = but(PROFILE, result=but(FOUND, **changes), hardware=machine)
    artifact = profiles.artifact(bad, workload=FileReference(path=f"{HOSTILE}.py"))
    text = profile_report.html_page(artifact, bad, use=HOSTILE)
    tags, names = opened(text)
    assert "script" not in tags
    assert not [name for name in names if name.startswith("on")]
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 20


def test_nothing_is_fetched_and_a_policy_forbids_it() -> None:
    text = page()
    tags, names = opened(text)
    assert not tags & {"img", "link", "iframe", "object", "embed"}
    assert not names & {"src", "href"}
    assert ("default-src 'none'" in text, "url(" in text) == (True, False)
    assert len(text.encode()) < 300_000


@pytest.mark.filterwarnings("ignore:.*not of a machine like this one")
def test_a_report_is_made_of_an_artifact_its_folder_or_a_pipeline_and_shown_in_a_notebook(tmp_path: Path) -> None:
    artifact = files.write(profiles.artifact(PROFILE), tmp_path / "autopipe.json")
    report = ap.report(artifact)
    assert report == ap.report(tmp_path)
    assert report.save(tmp_path / "report.html").read_text() == report.html
    assert json.loads((tmp_path / "report.json").read_text()) == report.document
    shown = report._repr_html_()  # in a frame
    assert shown.startswith("<iframe ")
    assert (" sandbox " in shown, "<script" in shown) == (True, False)
    console = repr(report)  # the verdict alone
    assert report.document["verdict"] in console
    assert ("<svg" in console, len(console) < 500) == (False, True)
    tuned = loading.load(artifact)
    assert ap.report(tuned).document == report.document
    shown = known(tuned._repr_html_())  # the verdict and the ladder
    assert shown.count("<svg") == 1
    assert "body {" not in shown.replace("body.ap {", "")
    assert " -&gt; " in shown


def test_words_and_classes_are_escaped_and_what_is_behind_comes_first() -> None:
    drawn = Drawing(f"a plot of {HOSTILE}", 100.0, height=20.0)
    drawn.rect(0.0, 0.0, 10.25, 5.0, "win")
    drawn.rect(0.0, 0.0, 0.0, 5.0, "none")
    drawn.text(0.0, 10.0, HOSTILE, 'x" onload="alert(1)', "end")
    drawn.behind(0.0, 0.0, 1.0, 1.0, "grid")
    root = ET.fromstring(drawn.render())
    assert root.attrib["aria-label"] == f"a plot of {HOSTILE}"
    (text,) = root.iter("text")
    assert (text.text, text.attrib["class"]) == (HOSTILE, 'x" onload="alert(1)')
    assert not [each for each in root.iter() if each.tag == "script" or "onload" in each.attrib]
    assert [each.tag for each in root] == ["line", "rect", "text"]  # and no bar without width


def test_a_scale_places_values_and_ticks_on_the_axis_and_a_long_name_is_cut_in_its_middle() -> None:
    up, down = Scale(0.0, 10.0, 100.0, 200.0), Scale(0.0, 10.0, 200.0, 100.0)
    found = up(5.0), down(2.0), up(99.0), Scale(0.1, 10.0, 0.0, 100.0, log=True)(1.0)
    assert found == pytest.approx((150.0, 180.0, 200.0, 50.0))
    plain = [Scale(0.0, last, 0.0, 1.0) for last in (0.0003, 0.9, 1.0, 7.0, 12.5, 4480.0, 1e7)]
    ends = (0.94, 1.4), (0.5, 4.0), (0.01, 60.0), (1.0, 1.06)
    for scale in (*plain, *(Scale(*both, 0.0, 1.0, log=True) for both in ends)):
        ticks = scale.ticks(6)  # few, round and on the axis
        fewest, most = (3, 7) if scale in plain else (1, 6)
        assert fewest <= len(ticks) <= most
        assert all(0.99 * scale.first <= tick <= scale.last * 1.01 for tick in ticks)
    short = drawing.fitted("processes(workers=4) keep=memory", 100.0, 13.0)
    assert len(short) <= 14
    assert (short[:8], short[-4:]) == ("processe", "mory")


ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "pictures" / "draw.py"))
RECORDED = files.read(SCRIPT["RECORDED"]).profiles[0]
PICTURES = SCRIPT["pictures"](RECORDED)


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_picture_is_as_the_script_draws_it_today(name: str) -> None:
    assert (SCRIPT["FOLDER"] / name).read_text() == PICTURES[name], "run: python docs/pictures/draw.py"


def test_there_are_no_others_and_each_that_a_page_shows_is_there() -> None:
    assert {path.name for path in SCRIPT["FOLDER"].glob("*.svg")} == set(PICTURES)
    pages = [page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    shown = {path.rpartition("/")[2] for page in pages for path in re.findall(r"pictures/\w+\.svg", page)}
    assert set() < shown <= set(PICTURES)


def test_the_readme_tells_the_recorded_run_as_a_tune_tells_it_today() -> None:
    lines = [" ".join(line.split()) for line in printed(text.render(RECORDED.result), 102).splitlines()]
    readme = [" ".join(line.split()) for line in (ROOT / "README.md").read_text().splitlines()]
    assert [line for line in lines if line not in readme] == []
    record = SCRIPT["RECORDED"].read_text()  # which tells nothing of where it lay
    assert [words for words in ('origin": "/', "/home/", "sqlite") if words in record] == []


CONFIG = ap.PipelineConfig(loader=ap.Threads(workers=2))
FAILED = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.WARM_UP, message="no matter")


def _started(number: int, origin: str) -> TrialStarted:
    return TrialStarted(number=number, origin=AskedBy.parse(origin), config=CONFIG, seconds_left=None)


def _finished(outcome: Any, best: float) -> TrialFinished:
    by = AskedBy.parse("surrogate")
    return TrialFinished(number=3, origin=by, config=CONFIG, outcome=outcome, value=None, best=best)


def test_the_line_tells_what_is_done_and_the_best_so_far_in_the_picture_too() -> None:
    shown: list[dict[str, str]] = []
    live = notebook.live(shown.append, 120.0, clock=iter([0.0, 1.0, 2.0, 5.0, 6.0, 6.0, 7.0]).__next__)
    alone = Estimate(value=4000.0, low=3900.0, high=4100.0)
    live(Ceiling(model_images_per_second=alone, model_core_seconds_per_image=0.0))
    live(_started(3, "surrogate"))
    live(_finished(FAILED, 900.0))
    for rate in (500.0, 900.0):
        live(_finished(measurement(CONFIG, [rate] * 4, batch_size=8), rate))
    live(_started(4, "proof:1"))
    assert "<svg" not in shown[0]["text/html"]
    lines = [each["text/plain"] for each in shown]
    assert lines[1] == "trial 4: threads(workers=2) (2 s of 120 s)"  # as the command line counts
    assert lines[-1] == "confirmation: threads(workers=2) (7 s of 120 s, best so far 900 images/s)"
    drawn = shown[-1]["text/html"]
    for words in ("<b>900 images/s</b> at best, 7 s of 120 s", "3 trials", "model alone 4,000"):
        assert words in drawn
    assert "<script" not in drawn


@pytest.mark.parametrize("shell", [None, types.SimpleNamespace()], ids=["script", "terminal"])
def test_only_a_notebook_has_a_line(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert notebook.progress() is None
