from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FailureKind, Phase, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.workers import Threads
from autopipe.reports import notebook
from autopipe.search.result import AskedBy, TrialFinished, TrialStarted
from autopipe.values import Estimate
from tests.fakes.measurements import measurement

CONFIG = PipelineConfig(loader=Threads(workers=2))
FAILED = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.WARM_UP, message="no matter")


def _started(number: int, origin: str) -> TrialStarted:
    return TrialStarted(number=number, origin=AskedBy.parse(origin), config=CONFIG, seconds_left=None)


def test_the_line_tells_what_is_done_and_the_best_so_far() -> None:
    shown: list[dict[str, str]] = []
    live = notebook.live(shown.append, 120.0, clock=iter([0.0, 2.0, 5.0, 7.0]).__next__)
    live(_started(3, "surrogate"))
    live(
        TrialFinished(
            number=3, origin=AskedBy.parse("surrogate"), config=CONFIG, outcome=FAILED, value=None, best=1465.2
        )
    )
    live(_started(4, "proof:1"))
    lines = [each["text/plain"] for each in shown]
    assert lines[0] == "trial 4: threads(workers=2) (2 s of 120 s)"  # as the command line counts
    assert lines[2] == "confirmation: threads(workers=2) (7 s of 120 s, best so far 1,465 images/s)"


def test_the_picture_has_every_trial_the_time_and_the_best_and_is_drawn_in_place() -> None:
    shown: list[dict[str, str]] = []
    live = notebook.live(shown.append, 120.0, clock=lambda: 42.0)
    ceiling = Ceiling(
        model_images_per_second=Estimate(value=4000.0, low=3900.0, high=4100.0), model_core_seconds_per_image=0.0
    )
    live(ceiling)
    for number, rate in enumerate((500.0, 900.0)):
        measured = measurement(CONFIG, [rate] * 4, batch_size=8)
        live(
            TrialFinished(
                number=number, origin=AskedBy.parse("seed:x"), config=CONFIG, outcome=measured, value=rate, best=rate
            )
        )
    assert "<svg" not in shown[0]["text/html"]
    drawn = shown[-1]["text/html"]
    assert "<b>900 images/s</b> at best, 0 s of 120 s" in drawn
    assert "2 trials" in drawn
    assert "model alone 4,000" in drawn
    assert "<script" not in drawn


@pytest.mark.parametrize("shell", [None, types.SimpleNamespace()], ids=["script", "terminal"])
def test_only_a_notebook_has_a_line(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: shell  # type: ignore[attr-defined]  # as IPython's own
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert notebook.progress() is None


@pytest.mark.slow
def test_a_cell_shows_the_line_in_its_own_place() -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    cell = (
        "from autopipe.reports import notebook\nfrom tests.unit.reports.test_notebook import _started\n"
        "line = notebook.progress()\nline(_started(1, 'seed'))\nline(_started(2, 'seed'))"
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    nbclient.NotebookClient(book, timeout=60).execute()
    (output,) = book.cells[0].outputs
    assert output["data"]["text/plain"].startswith("trial 3: threads(workers=2)")
