"""The summary of searches over the analytic surface, and its three forms."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from rich.console import Console, RenderableType

from autopipe.report import document, text
from autopipe.report.summary import Summary, summary_of
from autopipe.search import library, study
from autopipe.search.result import SearchResult
from autopipe.search.settings import Settings
from tests.fakes.surface import Surface

KEYS = [
    "best",
    "images_per_second",
    "baselines",
    "ceiling",
    "conversions",
    "trials",
    "failed",
    "seconds",
    "measuring_seconds",
    "stopped",
    "warnings",
]


@pytest.fixture(scope="module")
def result() -> SearchResult:
    surface = Surface(cores=4, model_rate=60_000.0, noise=0.01, seed=1)
    space = library.load("quick", {"cores": 4, "gpus": 0})
    return study.run(space, surface, surface.facts(), Settings(clock=surface.clock, trials=10))


@pytest.fixture
def summary(result: SearchResult) -> Summary:
    return summary_of(result)


def shown(renderable: RenderableType, width: int = 100) -> str:
    written = io.StringIO()
    Console(file=written, width=width).print(renderable)
    return written.getvalue()


def test_a_baselines_gain_is_the_proofs(result: SearchResult, summary: Summary) -> None:
    for line, baseline in zip(summary.baselines, result.baselines, strict=True):
        assert baseline.gain is not None
        assert (line.name, line.gain, line.proved) == (baseline.name, baseline.gain.ratio, baseline.gain)


def test_without_a_proof_a_gain_is_the_ratio_of_the_rates(result: SearchResult) -> None:
    unproved = dataclasses.replace(result, baselines=[dataclasses.replace(result.baselines[0], gain=None)])
    (line,) = summary_of(unproved).baselines
    assert line.rate is not None
    assert result.estimate is not None
    assert line.gain == pytest.approx(result.estimate.value / line.rate.value)
    assert line.proved is None


def test_a_baseline_that_is_the_best_is_said_to_be(result: SearchResult) -> None:
    assert result.best_config is not None
    same = dataclasses.replace(result.baselines[0], config=result.best_config, gain=None)
    summary = summary_of(dataclasses.replace(result, baselines=[same]))
    assert summary.baselines[0].is_best
    assert "it is the best" in shown(text.render(summary))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"interrupted": True}, "The search was interrupted"),
        ({"drift": -0.3}, "The baselines ran 30% slower at the end than at the beginning"),
        ({"drift": 0.2}, "The baselines ran 20% faster at the end than at the beginning"),
    ],
    ids=str,
)
def test_what_to_know_before_believing_the_figures_is_said(
    result: SearchResult, change: dict[str, object], said: str
) -> None:
    summary = summary_of(dataclasses.replace(result, **change))  # type: ignore[arg-type]
    assert summary.warnings[0].startswith(said)


def test_a_quiet_search_has_no_warnings(result: SearchResult) -> None:
    assert summary_of(dataclasses.replace(result, drift=0.01)).warnings == ()


def test_the_text_has_the_best_each_baseline_the_ceiling_and_why_it_stopped(summary: Summary) -> None:
    lines = shown(text.render(summary)).splitlines()
    first = [line.split("  ")[0] for line in lines]
    assert first[:5] == ["pipeline", "best", "keras", "tfdata", "the model alone (ceiling)"]
    for label in ("best config", "reached", "bottleneck", "stopped", "trials"):
        assert label in first
    assert max(map(len, lines)) <= 100


def test_a_baseline_that_failed_has_no_rate_but_its_reason(result: SearchResult) -> None:
    failed = dataclasses.replace(result.baselines[0], estimate=None, gain=None)
    assert "failed" in shown(text.render(summary_of(dataclasses.replace(result, baselines=[failed]))))


def test_a_search_that_found_nothing_says_so(result: SearchResult) -> None:
    nothing = dataclasses.replace(result, best_config=None, estimate=None, measurement=None)
    assert "No configuration could be measured." in shown(text.render(summary_of(nothing)))
    assert document.document(summary_of(nothing), None)["best"] is None


def test_the_document_has_its_keys_and_is_json(summary: Summary) -> None:
    found = json.loads(json.dumps(document.document(summary, "tuned/autopipe.json")))
    assert list(found) == [*KEYS, "artifact"]
    assert set(found["images_per_second"]) == {"value", "low", "high", "proved"}
    assert found["baselines"]["keras"]["times_faster"] > 1
    assert found["ceiling"]["model_images_per_second"]["value"] > 0
    assert found["artifact"] == "tuned/autopipe.json"
