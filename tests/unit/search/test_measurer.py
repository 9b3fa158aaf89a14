from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from autopipe.errors import NothingMeasuredError, WorkloadError
from autopipe.measure.facts import CODE, Ceiling, Description, Impossible, WrappedDataset
from autopipe.measure.outcome import CeilingOptions, FailureKind, Phase, TrialFailure
from autopipe.pipeline.config import ModelSetup, PipelineConfig, to_config
from autopipe.pipeline.eject import module
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.search.measurer import TrialMeasurer, succeeded
from autopipe.search.settings import Settings
from autopipe.values import Estimate

THREADS = to_config({"loader": "threads", "threads.workers": 2})


def failure(kind: FailureKind) -> TrialFailure:
    return TrialFailure(kind=kind, phase=Phase.FIRST_BATCH, message="Broken.", hint="Mend it.", log_tail="last words")


def test_what_runs_is_told_when_it_has_to_end_and_is_cut_soon_after() -> None:
    class Noting(Runner):
        until = 0.0

        def measure(self, config: Any, options: dict[str, Any]) -> TrialFailure:
            self.asked.append({**options, "until": self.until})
            return failure(FailureKind.CRASHED)

    runner = Noting()
    made = TrialMeasurer(runner, described(), Settings(budget_seconds=100.0))  # type: ignore[arg-type]  # a fake
    made.measure(THREADS)
    made.allow(20.0)
    made.measure(THREADS)
    free, bound = runner.asked
    assert "ends_at" not in free
    assert free["until"] == math.inf
    assert bound["ends_at"] == pytest.approx(time.monotonic() + 20.0, abs=5.0)
    assert 0.0 < bound["until"] - bound["ends_at"] <= 5.0


def test_the_cores_elsewhere_are_counted_once(elsewhere: Callable[[int], PipelineConfig]) -> None:
    class Noting(Runner):
        def ceiling(self, setup: ModelSetup, options: dict[str, Any]) -> Ceiling:
            self.asked.append(options)
            rate = Estimate(value=1.0, low=1.0, high=1.0)
            return Ceiling(**setup._asdict(), model_images_per_second=rate, model_core_seconds_per_image=0.0)

    runner, config = Noting(), elsewhere(2)
    made = TrialMeasurer(runner, described(), Settings(), elsewhere=config)  # type: ignore[arg-type]  # a fake
    made.ceilings([ModelSetup(), ModelSetup(finish="host")])
    first, second = (CeilingOptions.model_validate(each) for each in runner.asked)
    assert (first.elsewhere, second.elsewhere) == (config, None)


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


class Runner:
    """Answers as it is told to, and counts its requests."""

    pid = None

    def __init__(self, code: str = "", start: TrialFailure | None = None) -> None:
        self.code, self._start, self.closed, self.begun = code, start, False, False
        self.asked: list[dict[str, Any]] = []

    def begin(self) -> None:
        self.begun = True

    def start(self) -> TrialFailure | None:
        return self._start

    def measure(self, config: Any, options: dict[str, Any]) -> TrialFailure:
        self.asked.append({"code": config.loader.code, **options})
        return failure(FailureKind.CRASHED)

    def close(self) -> None:
        self.closed = True


def described(*impossible: tuple[str, str], wrapped: WrappedDataset | None = None) -> Description:
    return Description(
        samples=8,
        batch_size=2,
        compact_bytes=1,
        finished_bytes=1,
        mean_bytes=1,
        data_digest="",
        ops_digest="",
        model_digest="",
        backend="jax",
        impossible=tuple(Impossible(parameter=CODE, value=form, reason=reason) for form, reason in impossible),
        wrapped=wrapped,
    )


def measurer(description: Description, made: Sequence[Runner] = (), own: str | None = None) -> TrialMeasurer:
    runners = {each.code: each for each in made}
    settings = Settings(baseline=own)
    return TrialMeasurer(Runner(), description, settings, foreign=runners.__getitem__)  # type: ignore[arg-type]  # fakes


def test_baselines_are_plain_code_with_the_reason_against_what_cannot_be_written() -> None:
    optional = [(form, "no such") for form in ("fit", "tf.data-cache", "keras-workers", "directory")]
    found = measurer(described(*optional, ("tf.data", "no TensorFlow half"))).baselines()
    assert [(each.name, each.config.loader.whose) for each in found] == [
        ("tf.data AUTOTUNE", "plain code: autopipe eject --to tf.data"),
        ("Keras PyDataset, defaults", "plain code: autopipe eject --to keras"),
    ]
    reasons = [None if each.unable is None else each.unable.message for each in found]
    assert reasons == ["no TensorFlow half", None]
    assert [each.config.loader.model_dump()["code"] for each in measurer(described()).baselines()] == [
        "fit", "tf.data", "tf.data-cache", "keras", "keras-workers", "directory",
    ]  # fmt: skip


def test_a_wrapped_dataset_is_compared_with_itself() -> None:
    as_it_is = PipelineConfig(loader=Wrapped())
    found = measurer(described(wrapped=WrappedDataset(as_it_is=as_it_is, choices={}))).baselines()
    assert [each.name for each in found] == ["the dataset as it is"]


def test_foreign_code_runs_in_a_process_of_its_own_that_ends_with_the_search() -> None:
    keras = Runner("keras")
    made = measurer(described(("directory", "no folder"), ("keras-workers", "no threads")), [keras])
    *_, baseline = made.baselines()
    made.measure(baseline.config)
    assert [each["code"] for each in keras.asked] == ["keras"]
    made.close()
    assert keras.closed


@pytest.mark.parametrize(("useful", "workers"), [(1, None), (40, 40), (200, 64)])
def test_a_py_dataset_has_as_many_workers_as_are_of_use_and_its_name_says_how_many(
    monkeypatch: pytest.MonkeyPatch, useful: int, workers: int | None
) -> None:
    monkeypatch.setattr(module, "WORKERS", 2)
    usual = Runner("keras-workers")
    made = measurer(described(*((form, "no") for form in ("fit", "tf.data-cache", "directory"))), [
        Runner("tf.data"), Runner("keras"), usual, Runner(f"keras-workers={workers}"),
    ])  # fmt: skip
    made.start_all()
    fitted = [each.with_workers(useful) for each in made.baselines() if each.with_workers is not None]
    (found,) = ((each.name, each.config.loader.model_dump()["code"]) for each in fitted)
    if workers is None:
        assert (found, usual.closed) == (("Keras PyDataset, 2 workers", "keras-workers"), False)
    else:
        assert (found, usual.closed) == ((f"Keras PyDataset, {workers} workers", f"keras-workers={workers}"), True)


def test_processes_of_foreign_code_that_can_run_are_started_side_by_side() -> None:
    runners = [Runner("keras"), Runner("keras-workers"), Runner("tf.data")]
    against = [(form, "no such") for form in ("fit", "tf.data-cache", "directory")]
    measurer(described(*against), runners).start_all()
    assert all(runner.begun for runner in runners)


@pytest.mark.parametrize(("strays", "asked"), [(0.001, 0.02), (0.035, 0.035), (0.3, 0.05)])
def test_a_trial_is_asked_for_no_more_than_the_model_alone_shows_on_this_machine(strays: float, asked: float) -> None:
    class Machine(Runner):
        def ceiling(self, setup: ModelSetup, options: dict[str, Any]) -> Ceiling:
            rate = Estimate(value=100.0, low=100.0 * (1 - strays), high=100.0)
            return Ceiling(model_images_per_second=rate, model_core_seconds_per_image=0.0, **setup._asdict())

        def measure(self, config: Any, options: dict[str, Any]) -> TrialFailure:
            self.asked.append(options)
            return failure(FailureKind.CRASHED)

    runner = Machine()
    made = TrialMeasurer(runner, described(), Settings())  # type: ignore[arg-type]  # a fake
    made.measure(THREADS)
    made.ceilings([ModelSetup()])
    made.measure(THREADS)
    before, after = (options.get("half_width") for options in runner.asked)
    assert before is None
    assert after == pytest.approx(asked)


def test_the_users_own_baseline_comes_first_is_required_and_is_looked_at_before_anything_runs() -> None:
    own = measurer(described(), [Runner("bench.py:mine")], own="bench.py:mine").baselines()[0]
    assert (own.name, own.required, own.config.loader.whose) == ("mine (yours)", True, "yours: bench.py:mine")
    broken = [Runner("bench.py:mine", failure(FailureKind.BUILD))]
    with pytest.raises(WorkloadError, match="Broken"):
        measurer(described(), broken, own="bench.py:mine").baselines()
