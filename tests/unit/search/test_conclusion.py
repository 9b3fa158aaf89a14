"""What a search concludes of its trials, and what it asks of the process that measures them."""

import dataclasses
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from autopipe.errors import AutopipeError, NothingMeasuredError, SearchInterruptedError, WorkloadError
from autopipe.measure.facts import CODE, Facts, Impossible, Limits, WrappedDataset
from autopipe.measure.outcome import ConversionCost, FailureKind, Measurement, Phase, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.eject import module
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.reports import verdict
from autopipe.search import space as spaces
from autopipe.search.measurer import Baseline, TrialMeasurer, succeeded
from autopipe.search.result import Reason, Result, Stop, nothing_measured
from autopipe.search.settings import Settings
from autopipe.search.space import Space, from_config, of_wrapped, to_config
from tests.fakes.facts import DESCRIBED, measurement
from tests.fakes.profiles import baseline, config, trial
from tests.fakes.surface import Surface
from tests.unit.search.conftest import run, some, space_of


@dataclass(kw_only=True)
class Converting(Surface):
    """A surface on which a sample takes `convert_seconds` to convert, all cores together."""

    convert_seconds: float = 0.001

    def after(self, config: PipelineConfig, proof: bool, found: Measurement) -> Measurement:
        if config.keep == "none":
            return found
        shard = 10 * 2 * self.convert_seconds
        shards: dict[str, Any] = {"shard_samples": (10,) * 4, "shard_seconds": (shard,) * 4}
        cost = ConversionCost(cut=2, samples=40, bytes=4000, workers=2, seconds=2 * shard, **shards)
        return found.model_copy(update={"conversion": cost})


def test_a_conversion_wins_if_it_pays_or_is_shown_with_figures_of_the_whole_set() -> None:
    cases: list[tuple[int | None, float, str]] = [(50, 0.001, "array"), (2, 0.01, "files"), (None, 1.0, "array")]
    for epochs, convert_seconds, storage in cases:
        space = space_of({"loader": ["threads"], "threads.workers": [1, 2], "keep": ["none", "array"]}, cores=2)
        surface = Converting(cores=2, model_rate=60_000.0, noise=0.001, convert_seconds=convert_seconds)
        ended = run(space, surface, epochs=epochs, budget_seconds=None)
        assert some(ended.best_config).kept.form == storage
        (row,) = ended.result.paybacks
        assert row.overruled == (storage == "files")
        assert epochs is None or (0 < some(row.epochs) < epochs) == (storage == "array")
        assert storage == "array" or row.rate.value > some(ended.result.images_per_second).value
        samples = surface.sample_count
        assert (row.cut, row.bytes) == (2, samples * 100)
        assert row.convert_seconds.value == pytest.approx(samples * convert_seconds)
        plain = [each.outcome for each in ended.rows if each.config.keep == "none"]
        rival = max(each.images_per_second.value for each in plain if isinstance(each, Measurement))
        if epochs == 50:  # both ways begin with the same wait for the first batch, and no cache is filled
            assert row.saved_seconds == pytest.approx(samples / rival - samples / row.rate.value, rel=0.02)
            assert row.epochs == pytest.approx(row.convert_seconds.value / row.saved_seconds)


def test_measured_effects_are_of_one_setting_and_hold_the_true_ratio_nearly_always(space: Space) -> None:
    surface = Surface(model_rate=60_000.0, noise=0.01, seed=5)
    ended = run(space, surface, accelerator=False, trials=40, budget_seconds=None)
    effects, best = ended.result.effects, some(ended.best_config)
    own = dict(from_config(best))
    assert all(own[each.setting] == each.value != each.other for each in effects)
    assert "keep" in {each.setting for each in effects}
    assert abs(1 - effects[0].ratio) >= abs(1 - effects[-1].ratio)  # the largest comes first
    held = []
    for each in effects:
        if each.setting != "loader":  # of another loader it is not said which
            truth = surface.true_rate(best) / surface.true_rate(to_config({**own, each.setting: each.other}))
            held.append(each.low * 0.97 <= truth <= (each.high or math.inf) * 1.03)
    assert len(held) >= 3
    assert held.count(False) <= 1


AS_IT_IS, AROUND = (
    PipelineConfig(loader=Wrapped.model_validate({"freed_memory": memory}), finish="host", device_prefetch=0)
    for memory in ("returned", "kept")
)
FREED = of_wrapped({"freed_memory": ("returned", "kept")}).only("device_prefetch", [AS_IT_IS.device_prefetch])


@dataclass(kw_only=True)
class Wrapping(Surface):
    """A machine on which a wrapped dataset is so many times as fast if freed memory is kept."""

    gain: float = 1.0
    compared: Sequence[Baseline] | None = (Baseline(name="the dataset as it is", config=AS_IT_IS),)

    def true_rate(self, config: PipelineConfig) -> float:
        return 1000.0 * (self.gain if config == AROUND else 1.0)

    def facts(self) -> Facts:
        wrapped = WrappedDataset(as_it_is=AS_IT_IS, choices={})
        found = super().facts()
        return dataclasses.replace(found, workload=found.workload.model_copy(update={"wrapped": wrapped}))


@pytest.mark.parametrize("blocks", [(3, 6), (0, 0)])
@pytest.mark.parametrize(("gain", "seed"), [(1.0, 0), (1.0, 1), (1.0, 2), (1.02, 3), (1.5, 4)])
def test_a_dataset_stays_as_it_is_unless_settings_gain_time(gain: float, seed: int, blocks: tuple[int, int]) -> None:
    surface = Wrapping(gain=gain, seed=seed, model_rate=60_000.0, noise=0.01)
    ended = run(FREED, surface, budget_seconds=None, blocks=blocks)
    assert ended.best_config == (AROUND if gain > 1.1 else AS_IT_IS)
    if gain < 1.1 and blocks[1]:
        said = verdict.trust_text(ended.result)
        assert re.match(r"good: nothing was measurably faster than the dataset as it is in \d rounds", said)


CUT = {"stop": Stop(reason=Reason.INTERRUPTED, message="Interrupted.")}
NONE_RAN: dict[str, Any] = {"trials": (), "left_out": {}}
FORKS = {"wrapped with use_multiprocessing: forks": 4, "none": 0}
FORMER = baseline("the former configuration", 1.0).model_copy(update={"images_per_second": None, "incumbent": True})
UNMEASURED = {"baselines": (FORMER,), "trials": (trial(config(), 900.0),)}


class Failing(Surface):
    """A machine on which nothing runs."""

    def before(self, config: PipelineConfig, proof: bool) -> TrialFailure:
        self.now += 1.0
        hang = "Forked children hang."
        return TrialFailure(kind=FailureKind.UNSUPPORTED, phase=Phase.OPEN, message=hang, hint="Use threads.")


LIMITS = "No configuration keeps the limits: 4 were measured and took more than is allowed"
NOTHING = "No configuration could be measured"
UNTRIED = f"{NOTHING}, because none could be tried"
INTERRUPTED = "The search was interrupted before any configuration could be measured"
KEPT = "The former configuration was not measured before the search ended, so nothing is proved to be faster."
REASON, CHANGE = "The reason of the last: Forked children hang.", "Change what the reasons name"


def test_why_nothing_was_measured_is_said() -> None:
    quick = spaces.load("quick", {"cores": 2, "gpus": 0})
    failed = run(quick, Failing(), trials=3).result
    one_failed = run(quick, Failing(compared=()), trials=1).result
    exceeding = run(quick, Surface(), trials=4, limits=Limits(memory_bytes=2**30), blocks=(0, 0)).result
    cases: list[tuple[Result, dict[str, Any], str, str | None]] = [
        (failed, {}, f"{NOTHING}: all of 3 trials failed. {REASON}", "Use threads."),
        (one_failed, {}, f"{NOTHING}: the one trial failed. The reason: Forked children hang.", "Use threads."),
        (failed, NONE_RAN, f"{UNTRIED}. 3 trials were allowed and have been used.", CHANGE),
        (failed, NONE_RAN | {"left_out": FORKS}, f"{UNTRIED}: wrapped with use_multiprocessing: forks.", CHANGE),
        (failed, NONE_RAN | CUT, f"{INTERRUPTED}.", None),
        (failed, CUT, f"{INTERRUPTED}. Trials that failed: 3. {REASON}", "Use threads."),
        (exceeding, {}, f"{LIMITS}, the least 1 GiB of memory.", "Allow more with --max-memory."),
        (exceeding, CUT, f"{INTERRUPTED} that keeps the limits; 4 took more than is allowed.", None),
        (failed, UNMEASURED, KEPT, "It stays"),
        (failed, UNMEASURED | CUT, KEPT, "It stays"),
    ]
    for found, update, said, hint in cases:
        error = nothing_measured(found.model_copy(update=update))
        assert (error.message, found.winner) == (said, None)
        assert error.hint is None if hint is None else str(error.hint).startswith(hint)
        assert isinstance(error, SearchInterruptedError) == ("stop" in update)


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
    for each in made.baselines():
        made.measure(each.config)
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
