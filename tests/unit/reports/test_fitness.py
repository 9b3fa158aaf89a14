from __future__ import annotations

import dataclasses
import io
import json

from rich.console import Console

from autopipe.core.value import Estimate
from autopipe.reports import fitness
from autopipe.tuned.check import Result, Verdict

RATE = Estimate(value=900.0, low=880.0, high=920.0)
DRIFTED = Result(
    verdict=Verdict.DRIFTED,
    reasons=("it is slower",),
    age_days=3,
    profile=None,
    recorded_share=0.9,
    share=0.6,
    images_per_second=RATE,
)


def shown(result: Result) -> list[list[str]]:
    written = io.StringIO()
    Console(file=written, width=100).print(fitness.render(result))
    return [line.split(maxsplit=1) for line in written.getvalue().splitlines()]


def test_the_text_has_the_verdict_its_reasons_and_both_shares() -> None:
    assert [row[0] for row in shown(DRIFTED)] == ["verdict", "because", "age", "images/s", "share"]
    text = " ".join(" ".join(row) for row in shown(DRIFTED))
    assert "60% now, 90% when it was tuned" in text
    assert "900 (880 to 920) now" in text


def test_a_quick_check_shows_no_figures() -> None:
    quick = Result(verdict=Verdict.FITS, age_days=0, profile=None)
    assert [row[0] for row in shown(quick)] == ["verdict", "age"]


def test_one_day_is_called_that() -> None:
    ages = [shown(dataclasses.replace(DRIFTED, age_days=days))[2][1].strip() for days in (0, 1, 2)]
    assert ages == ["0 days", "1 day", "2 days"]


def test_the_document_is_json_and_complete() -> None:
    assert json.loads(json.dumps(fitness.document(DRIFTED))) == {
        "verdict": "drifted",
        "reasons": ["it is slower"],
        "age_days": 3,
        "share": 0.6,
        "recorded_share": 0.9,
        "images_per_second": {"value": 900.0, "low": 880.0, "high": 920.0},
    }
