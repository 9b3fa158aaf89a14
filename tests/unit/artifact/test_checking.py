from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from replaying.synthetic import measurement

from autopipe.api import retuning
from autopipe.artifact.artifact import Stored
from autopipe.artifact.drift import Result, Verdict
from autopipe.artifact.schema import Profile
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.measure.trial import protocol
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.search import lock
from autopipe.search.searching import workload_digest
from autopipe.values import Estimate, JsonObject
from tests.fakes.facts import DESCRIBED
from tests.fakes.profiles import artifact, ceiling, hardware, profile

SHARE = 0.86


@dataclasses.dataclass
class Machine:
    """A machine that is faster at some readings than at others: (model, pipeline) in each round."""

    paces: Sequence[tuple[float, float]] = ((1.0, 1.0),) * 3
    asked: list[str] = dataclasses.field(default_factory=list)
    wanted: list[JsonObject] = dataclasses.field(default_factory=list)

    def ceiling(self, setup: ModelSetup, options: JsonObject | None = None) -> Ceiling:
        rate = 1000.0 * self.paces[len(self.asked) // 2][0]
        self.asked.append("model")
        self.wanted.append(options or {})
        return Ceiling(
            model_images_per_second=Estimate(value=rate, low=0.99 * rate, high=1.01 * rate),
            model_core_seconds_per_image=0.0,
            **setup._asdict(),
        )

    def measure(self, config: PipelineConfig, options: JsonObject) -> Measurement:
        rate = SHARE * 1000.0 * self.paces[len(self.asked) // 2][1]
        self.asked.append("pipeline")
        return measurement(config, [0.99 * rate, rate, 1.01 * rate] * 4, batch_size=8)


@pytest.fixture(autouse=True)
def _own_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "MEASURING", f"autopipe-test-{os.getpid()}")


def known() -> Profile:
    """Return a profile whose tune told 86 %, where the model alone was once read at a faster moment."""
    return profile(
        ceiling=ceiling(1000 * SHARE / 0.74),
        share_of_model=SHARE,
        workload=workload_digest(DESCRIBED),
        measured_at=datetime.datetime.now(datetime.UTC),
    )


def checked(machine: Any) -> Result:
    stored = Stored(
        path=Path("autopipe.json"), artifact=artifact(known()), workload=protocol.Reference(text="train.py:w")
    )
    return retuning.check_with(machine, DESCRIBED, stored, hardware(), quick=False)


@pytest.mark.parametrize(
    "paces",
    [
        pytest.param([(0.8, 1.0), (1.0, 1.0), (1.0, 1.0)], id="the first reading of the model is disturbed"),
        pytest.param([(1.0, 1.0), (1.0, 0.8), (1.0, 1.0)], id="one of the pipeline is"),
        pytest.param([(1.0, 1.0), (0.5, 0.5), (2.0, 2.0)], id="all of the machine gets slower, and faster"),
    ],
)
def test_now_and_then_are_the_share_that_was_told_however_the_machine_sways(paces: list[tuple[float, float]]) -> None:
    result = checked(Machine(paces))
    assert (result.share, result.recorded_share) == (pytest.approx(SHARE), SHARE)  # type: ignore[comparison-overlap]
    assert (result.verdict, result.reasons) == (Verdict.FITS, ())


def test_a_pipeline_that_is_slower_in_each_round_has_drifted() -> None:
    result = checked(Machine([(1.0, 0.7)] * 3))
    assert result.verdict is Verdict.DRIFTED
    assert result.reasons == ("it reaches 60% of what the model can take, but 86% when it was tuned",)


def test_the_model_alone_and_the_pipeline_are_measured_by_turns_and_each_time_anew() -> None:
    machine = Machine()
    checked(machine)
    assert machine.asked == ["model", "pipeline"] * 3
    assert machine.wanted == [{"model_only": True, "again": True}] * 3


def test_a_model_that_takes_long_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retuning, "_LONG_SECONDS", 0.0)
    machine = Machine()
    checked(machine)
    assert machine.asked == ["model", "pipeline"]


def test_a_round_that_fails_after_the_first_takes_nothing_from_it() -> None:
    class Failing(Machine):
        def measure(self, *arguments: Any) -> Any:
            answer = super().measure(*arguments)
            if self.asked.count("pipeline") < 2:
                return answer
            return TrialFailure(kind=FailureKind.CRASHED, phase=Phase.FIRST_BATCH, message="it crashed", log_tail="")

    assert checked(Failing()).share == pytest.approx(SHARE)
