"""Pictures: how they are drawn, in a notebook too; and that those of README and docs are as the script draws them."""

from __future__ import annotations

import re
import runpy
import sys
import types
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import autopipe as ap
from autopipe.artifact import artifact as files
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.reports import drawing as pictures
from autopipe.reports import notebook, text
from autopipe.reports.drawing import Drawing, Scale
from autopipe.search.result import AskedBy, TrialFinished, TrialStarted
from autopipe.values import Estimate
from tests.fakes.findings import HOSTILE
from tests.fakes.measurements import measurement
from tests.fakes.reports import printed


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


def test_a_scale_places_values_and_keeps_them_on_the_axis() -> None:
    up, down = Scale(0.0, 10.0, 100.0, 200.0), Scale(0.0, 10.0, 200.0, 100.0)
    found = up(5.0), down(2.0), up(99.0), Scale(0.1, 10.0, 0.0, 100.0, log=True)(1.0)
    assert found == pytest.approx((150.0, 180.0, 200.0, 50.0))


LOGARITHMIC = [Scale(*ends, 0.0, 1.0, log=True) for ends in ((0.94, 1.4), (0.5, 4.0), (0.01, 60.0), (1.0, 1.06))]


@pytest.mark.parametrize(
    ("scale", "fewest", "most"),
    [(Scale(0.0, last, 0.0, 1.0), 3, 7) for last in (0.0003, 0.9, 1.0, 7.0, 12.5, 4480.0, 1e7)]
    + [(scale, 1, 6) for scale in LOGARITHMIC],
)
def test_ticks_are_few_round_and_on_the_axis(scale: Scale, fewest: int, most: int) -> None:
    ticks = scale.ticks(6)
    assert fewest <= len(ticks) <= most
    assert all(0.99 * scale.first <= tick <= scale.last * 1.01 for tick in ticks)
    short = pictures.fitted("processes(workers=4) keep=memory", 100.0, 13.0)
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


def _finished(outcome: Measurement | TrialFailure, best: float) -> TrialFinished:
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


@pytest.mark.slow
def test_a_cell_shows_the_line_in_its_own_place() -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    imports = "from autopipe.reports import notebook\nfrom tests.unit.reports.test_drawing import _started\n"
    cell = "line = notebook.progress()\nline(_started(1, 'seed'))\nline(_started(2, 'seed'))"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(imports + cell)])
    nbclient.NotebookClient(book, timeout=60).execute()
    (output,) = book.cells[0].outputs
    assert output["data"]["text/plain"].startswith("trial 3: threads(workers=2)")
