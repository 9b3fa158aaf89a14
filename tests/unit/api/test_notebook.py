from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from autopipe.api import notebook
from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import FailureKind, Phase, TrialFailure
from autopipe.loaders.threads import Threads
from autopipe.search.events import TrialFinished, TrialStarted

CONFIG = PipelineConfig(loader=Threads(workers=2))
FAILED = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.WARM_UP, message="no matter")


def _started(number: int, origin: str) -> TrialStarted:
    return TrialStarted(number=number, origin=origin, config=CONFIG, predicted=None, seconds_left=None)


def test_the_line_tells_what_is_done_and_the_best_so_far() -> None:
    shown: list[str] = []
    line = notebook.Line(shown.append, clock=iter([0.0, 2.0, 7.0]).__next__)
    line(_started(3, "surrogate"))
    line(TrialFinished(number=3, origin="surrogate", config=CONFIG, outcome=FAILED, value=None, best=1465.2))
    line(_started(4, "proof:1"))
    assert shown == ["trial 3: threads(workers=2) (2 s)", "proof: threads(workers=2) (7 s, best so far 1,465 images/s)"]


@pytest.mark.parametrize("shell", [None, types.SimpleNamespace()], ids=["script", "terminal"])
def test_only_a_notebook_has_a_line(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: shell  # type: ignore[attr-defined]  # as IPython's own
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert notebook.progress() is None


def test_a_cell_shows_the_line_in_its_own_place() -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    cell = (
        "from autopipe.api import notebook\nfrom tests.unit.api.test_notebook import _started\n"
        "line = notebook.progress()\nline(_started(1, 'seed'))\nline(_started(2, 'seed'))"
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    nbclient.NotebookClient(book, timeout=60).execute()
    (output,) = book.cells[0].outputs
    assert output["data"]["text/plain"].startswith("trial 2: threads(workers=2)")
