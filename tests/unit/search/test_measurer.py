from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import pytest

from autopipe.errors import NothingMeasuredError, WorkloadError
from autopipe.measure.facts import CODE, Ceiling, Impossible, Limits, WrappedDataset
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.eject import module
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.search.measurer import TrialMeasurer, succeeded
from autopipe.search.settings import Settings
from autopipe.search.space import to_config
from autopipe.values import Estimate
from tests.fakes.facts import DESCRIBED
from tests.fakes.measurements import measurement

THREADS = to_config({"loader": "threads", "threads.workers": 2})


def failure(kind: FailureKind) -> TrialFailure:
    return TrialFailure(kind=kind, phase=Phase.FIRST_BATCH, message="Broken.", hint="Mend it.", log_tail="last words")


class Runner:
    """Notes what it is asked, and lets every trial fail unless it has a rate; the model alone strays so far."""

    pid = None
    until = 0.0
    closed = begun = False
    strays = 0.0
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

    def ceiling(self, setup: ModelSetup, options: dict[str, Any]) -> Ceiling:
        self.asked.append(options)
        rate = Estimate(value=100.0, low=100.0 * (1 - self.strays), high=100.0)
        return Ceiling(**setup._asdict(), model_images_per_second=rate, model_core_seconds_per_image=0.0)

    def close(self) -> None:
        self.closed = True


def measurer(
    runner: Runner | None = None,
    *foreign: Runner,
    against: Mapping[str, str] = {},
    described: Mapping[str, Any] = {},
    **chosen: Any,
) -> TrialMeasurer:
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


@pytest.mark.parametrize("kind", [FailureKind.IMPORT, FailureKind.BUILD, FailureKind.BAD_DATA, FailureKind.UNSUPPORTED])
def test_what_is_the_workloads_fault_is_said_as_it_is(kind: FailureKind) -> None:
    with pytest.raises(WorkloadError) as caught:
        succeeded(failure(kind))
    assert (caught.value.message, caught.value.hint) == ("Broken.", "Mend it.")


@pytest.mark.parametrize("kind", [FailureKind.CRASHED, FailureKind.HUNG, FailureKind.OUT_OF_MEMORY])
def test_what_the_trial_met_is_said_with_the_phase_and_its_last_words(kind: FailureKind) -> None:
    with pytest.raises(NothingMeasuredError) as caught:
        succeeded(failure(kind))
    assert caught.value.message == "Broken. (in phase: first batch)\n\nThe end of the log:\nlast words"


def test_a_budget_that_ends_before_the_model_was_measured_is_said_to_be_too_short() -> None:
    with pytest.raises(NothingMeasuredError) as caught:
        succeeded(failure(FailureKind.INTERRUPTED))
    assert "The budget was used up" in caught.value.message
    assert "--budget" in str(caught.value.hint)


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
    alone = Runner()
    measurer(alone).measure(THREADS)  # all loaders of autopipe's keep it
    assert len(alone.asked) == 1


def test_foreign_code_runs_in_a_process_of_its_own_that_ends_with_the_search() -> None:
    keras = Runner("keras")
    made = measurer(None, keras, against=without("directory", "keras-workers"))
    *_, baseline = made.baselines()
    made.measure(baseline.config)
    assert [each["code"] for each in keras.asked] == ["keras"]
    made.close()
    assert keras.closed


@pytest.mark.parametrize(("accelerators", "kept"), [(1, {"tf.data", "keras", "bench.py:mine"}), (0, None)])
def test_on_an_accelerator_processes_of_baselines_beside_a_proof_end(accelerators: int, kept: set[str] | None) -> None:
    rates = {"bench.py:mine": 10.0, "fit": 50.0, "tf.data": 400.0, "keras": 100.0, "directory": 60.0}
    runners = [Runner(code) for code in rates]
    for runner in runners:
        runner.rate = rates[str(runner.code)]
    mine = "bench.py:mine"
    against = without("tf.data-cache", "keras-workers")
    made = measurer(None, *runners, against=against, described={"accelerators": accelerators}, baseline=mine)
    for baseline in made.baselines():
        made.measure(baseline.config)
    made.measure(THREADS)
    assert {runner.code for runner in runners if not runner.closed} == (kept or rates.keys())


@pytest.mark.parametrize(("useful", "workers"), [(1, None), (40, 40), (200, 64)])
def test_a_py_dataset_has_as_many_workers_as_are_of_use_and_its_name_says_how_many(
    monkeypatch: pytest.MonkeyPatch, useful: int, workers: int | None
) -> None:
    monkeypatch.setattr(module, "WORKERS", 2)
    runners = [Runner(code) for code in ("keras-workers", "tf.data", "keras", f"keras-workers={workers}")]
    made = measurer(None, *runners, against=without("fit", "tf.data-cache", "directory"))
    made.start_all()
    assert all(runner.begun for runner in runners[:3])  # side by side
    (fitted,) = [each.with_workers(useful) for each in made.baselines() if each.with_workers is not None]
    code = "keras-workers" if workers is None else f"keras-workers={workers}"
    assert (fitted.name, fitted.config.loader.model_dump()["code"]) == (
        f"Keras PyDataset, {workers or 2} workers",
        code,
    )
    assert runners[0].closed == (workers is not None)


@pytest.mark.parametrize(("strays", "asked"), [(0.001, 0.02), (0.035, 0.035), (0.3, 0.05)])
def test_a_trial_is_asked_for_no_more_than_the_model_alone_shows_on_this_machine(strays: float, asked: float) -> None:
    runner = Runner()
    runner.strays = strays
    made = measurer(runner)
    made.measure(THREADS)
    made.ceiling(ModelSetup())
    made.measure(THREADS)
    before, _, after = (options.get("half_width") for options in runner.asked)
    assert (before, after) == (None, pytest.approx(asked))


def test_the_users_own_baseline_comes_first_is_required_and_is_looked_at_before_anything_runs() -> None:
    name = "bench.py:mine"
    own = measurer(None, Runner(name), baseline=name).baselines()[0]
    assert (own.name, own.required, own.config.loader.whose) == ("mine (yours)", True, "yours: bench.py:mine")
    with pytest.raises(WorkloadError, match="Broken"):
        measurer(None, Runner(name, failure(FailureKind.BUILD)), baseline=name).baselines()
