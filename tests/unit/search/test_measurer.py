"""What a search asks of its trials' processes, what it compares with, and what is said of a first failure."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from typing import Any

import pytest

from autopipe.errors import AutopipeError, NothingMeasuredError, WorkloadError
from autopipe.measure.facts import CODE, Impossible, Limits, WrappedDataset
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.eject import module
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.search.measurer import TrialMeasurer, succeeded
from autopipe.search.settings import Settings
from autopipe.search.space import to_config
from tests.fakes.facts import DESCRIBED, measurement

THREADS = to_config({"loader": "threads", "threads.workers": 2})


def failure(kind: FailureKind) -> TrialFailure:
    return TrialFailure(kind=kind, phase=Phase.FIRST_BATCH, message="Broken.", hint="Mend it.", log_tail="last words")


class Runner:
    """Notes what it is asked, and lets every trial fail unless it has a rate."""

    pid = None
    until = 0.0
    closed = begun = False
    rate: float | None = None

    def __init__(self, code: str | None = "", start: TrialFailure | None = None) -> None:
        self.code, self._start = code, start
        self.asked: list[dict[str, Any]] = []

    def begin(self) -> None:
        self.begun = True

    def start(self) -> TrialFailure | None:
        return self._start

    def measure(self, config: PipelineConfig, options: dict[str, Any]) -> Measurement | TrialFailure:
        self.asked.append({"code": getattr(config.loader, "code", None), "until": self.until, **options})
        if self.rate is None:
            return failure(FailureKind.CRASHED)
        return measurement(config, [self.rate], batch_size=32)

    def close(self) -> None:
        self.closed = True


def measurer(
    runner: Runner | None = None, *foreign: Runner,
    against: Mapping[str, str] = {}, described: Mapping[str, Any] = {}, **chosen: Any,
) -> TrialMeasurer:  # fmt: skip
    """Return the measurer of a workload that cannot have these forms of plain code, for the reasons given."""
    impossible = tuple(Impossible(parameter=CODE, value=form, reason=reason) for form, reason in against.items())
    known = DESCRIBED.model_copy(update={"impossible": impossible, **described})
    runners: Any = {each.code: each for each in foreign}
    ours: Any = runner or Runner()
    return TrialMeasurer(ours, known, Settings(**chosen), foreign=runners.__getitem__)


def without(*forms: str) -> dict[str, str]:
    return dict.fromkeys(forms, "no such")


def test_what_runs_is_told_when_it_has_to_end_and_is_cut_soon_after() -> None:
    runner = Runner()
    made = measurer(runner, budget_seconds=100.0)
    made.measure(THREADS)
    made.allow(20.0)
    made.measure(THREADS)
    free, bound = runner.asked
    assert "ends_at" not in free
    assert free["until"] == math.inf
    assert bound["ends_at"] == pytest.approx(time.monotonic() + 20.0, abs=5.0)
    assert 0.0 < bound["until"] - bound["ends_at"] <= 5.0


WORKLOADS = FailureKind.IMPORT, FailureKind.BUILD, FailureKind.BAD_DATA, FailureKind.UNSUPPORTED
TRIALS = FailureKind.CRASHED, FailureKind.HUNG, FailureKind.OUT_OF_MEMORY
MET = "Broken. (in phase: first batch)\n\nThe end of the log:\nlast words"


def test_what_a_first_trial_met_is_said_and_whose_fault_it_is() -> None:
    cases: list[tuple[FailureKind, type[AutopipeError], str, str]] = [
        *((each, WorkloadError, r"Broken\.", "Mend it.") for each in WORKLOADS),
        *((each, NothingMeasuredError, re.escape(MET), "Mend it.") for each in TRIALS),
        (FailureKind.INTERRUPTED, NothingMeasuredError, "The budget was used up.*", "--budget"),
    ]
    for kind, error, said, hint in cases:
        with pytest.raises(error) as caught:
            succeeded(failure(kind))
        assert re.fullmatch(said, caught.value.message)
        assert hint in str(caught.value.hint)


def test_baselines_are_plain_code_with_the_reason_against_what_cannot_be_written() -> None:
    optional = without("fit", "tf.data-cache", "keras-workers", "directory")
    found = measurer(against=optional | {"tf.data": "no TensorFlow half"}).baselines()
    assert [(each.name, each.config.loader.whose, each.unable and each.unable.message) for each in found] == [
        ("tf.data AUTOTUNE", "plain code: autopipe eject --to tf.data", "no TensorFlow half"),
        ("Keras PyDataset, defaults", "plain code: autopipe eject --to keras", None),
    ]
    assert [(each.config.loader.model_dump()["code"], each.config.keep) for each in measurer().baselines()] == [
        ("fit", "memory"), ("tf.data", "none"), ("tf.data-cache", "memory"),
        ("keras", "none"), ("keras-workers", "none"), ("directory", "none"),
    ]  # fmt: skip
    uncached = measurer(limits=Limits(only={"keep": ("none",)})).baselines()
    assert "tf.data AUTOTUNE, cached" not in {each.name for each in uncached}


def test_a_wrapped_dataset_is_compared_with_itself_and_if_it_keeps_freed_memory_has_another_process() -> None:
    wrapped = WrappedDataset(as_it_is=PipelineConfig(loader=Wrapped()), choices={})
    ours, keeping = Runner(), Runner(code=None)
    made = measurer(ours, keeping, described={"wrapped": wrapped})
    assert [each.name for each in made.baselines()] == ["the dataset as it is"]
    for memory in ("returned", "kept", "returned"):
        made.measure(PipelineConfig(loader=Wrapped.model_validate({"freed_memory": memory})))
    assert (len(ours.asked), len(keeping.asked)) == (2, 1)
    made.close()
    assert keeping.closed


@pytest.mark.parametrize(("accelerators", "kept"), [(1, {"tf.data", "keras", "bench.py:mine"}), (0, None)])
def test_processes_of_baselines_end_beside_a_proof_or_with_a_search(accelerators: int, kept: set[str] | None) -> None:
    rates = {"bench.py:mine": 10.0, "fit": 50.0, "tf.data": 400.0, "keras": 100.0, "directory": 60.0}
    runners = {code: Runner(code) for code in rates}
    for code, runner in runners.items():
        runner.rate = rates[code]
    described = {"accelerators": accelerators}
    against = without("tf.data-cache", "keras-workers")
    made = measurer(None, *runners.values(), against=against, described=described, baseline="bench.py:mine")
    for baseline in made.baselines():
        made.measure(baseline.config)
    assert [[each["code"] for each in runner.asked] for runner in runners.values()] == [[code] for code in runners]
    made.measure(THREADS)
    assert {code for code, runner in runners.items() if not runner.closed} == (kept or rates.keys())
    made.close()
    assert all(runner.closed for runner in runners.values())


@pytest.mark.parametrize(("useful", "workers"), [(1, None), (40, 40), (200, 64)])
def test_a_py_dataset_has_useful_workers(monkeypatch: pytest.MonkeyPatch, useful: int, workers: int | None) -> None:
    monkeypatch.setattr(module, "WORKERS", 2)
    runners = [Runner(code) for code in ("keras-workers", "tf.data", "keras", f"keras-workers={workers}")]
    made = measurer(None, *runners, against=without("fit", "tf.data-cache", "directory"))
    made.start_all()
    assert all(runner.begun for runner in runners[:3])  # side by side
    (fitted,) = [each.with_workers(useful) for each in made.baselines() if each.with_workers is not None]
    code = "keras-workers" if workers is None else f"keras-workers={workers}"
    found = fitted.name, fitted.config.loader.model_dump()["code"], runners[0].closed
    assert found == (f"Keras PyDataset, {workers or 2} workers", code, workers is not None)


def test_the_users_own_baseline_comes_first_is_required_and_is_looked_at_before_anything_runs() -> None:
    name = "bench.py:mine"
    own = measurer(None, Runner(name), baseline=name).baselines()[0]
    assert (own.name, own.required, own.config.loader.whose) == ("mine (yours)", True, "yours: bench.py:mine")
    with pytest.raises(WorkloadError, match="Broken"):
        measurer(None, Runner(name, failure(FailureKind.BUILD)), baseline=name).baselines()
