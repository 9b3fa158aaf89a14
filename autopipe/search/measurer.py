"""The interface between a search and its trials, and the real trials: in child processes, by `TrialRunner`.

Other measurers are recorded tables and arithmetic, for tests and benchmarks. A measurer measures; it neither chooses
configurations nor remembers results.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol, TypeVar

from autopipe.errors import NothingMeasuredError, WorkloadError
from autopipe.hardware import gpu
from autopipe.measure.facts import CODE, Ceiling, Description
from autopipe.measure.outcome import EpochTime, FailureKind, Measurement, Phase, TrialFailure
from autopipe.measure.stats import EQUAL
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import Kept, ModelSetup, PipelineConfig
from autopipe.pipeline.eject import module
from autopipe.pipeline.eject.module import KERAS_WORKERS, WORKERS
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.search.result import WORTH
from autopipe.search.settings import Settings
from autopipe.values import JsonObject
from autopipe.workload.mode import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A configuration that the winner has to beat, with a name."""

    name: str
    config: PipelineConfig
    required: bool = False  # the result needs it, however short the time is
    incumbent: bool = False  # it stays the configuration to use unless another one is proved faster
    unable: TrialFailure | None = None  # the reason why it cannot run here, if any; it is not tried then
    with_workers: Callable[[int], Baseline] | None = None  # the same with so many workers, as reads wait


class Measurer(Protocol):
    """Runs trials, one at a time."""

    def baselines(self) -> Sequence[Baseline]:
        """Return the baselines that the winner has to beat; they are measured like any configuration."""

    def ceiling(self, setup: ModelSetup) -> Ceiling:
        """Measure the model alone in its usual setup, and once the loader's ops."""

    def model_alone(self, setup: ModelSetup, *, again: bool = True) -> Ceiling | None:
        """Measure the model alone in one setup; None if that failed. Without `again`, an earlier reading will do."""

    def loader_alone(self, config: PipelineConfig) -> float | None:
        """Measure a loader without a model, for half a second or so, in images/s; None if it cannot run so."""

    def allow(self, seconds: float | None) -> None:
        """Limit the time of the next measurements; None: no limit. A training ends then; a trial that has not begun to
        train is cut soon after, by a failure of the kind `INTERRUPTED`.
        """

    def measure(
        self, config: PipelineConfig, *, proof: bool = False, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        """Run one trial, and return its measurement or failure. Only bugs and the user's Ctrl-C raise. A block of the
        confirmation run, which is a `proof`, has a fixed length. Another trial is as short as its interval allows, and
        may end early once the upper end of that is below `must_reach` images/s.
        """


T = TypeVar("T")

_SEARCH: JsonObject = {"min_seconds": 0.8, "max_seconds": 2.0}
PROOF: JsonObject = {"min_seconds": 1.5, "max_seconds": 1.5}
GRACE_SHARE = 0.03  # of the budget, beyond which nothing runs that is not measured by then
MOST_OF_OTHERS = 2  # pieces of foreign code that are proved against; of the rest a trial tells enough


BASELINES = (
    ("fit(x, y)", "fit"),
    ("tf.data AUTOTUNE", "tf.data"),
    ("tf.data AUTOTUNE, cached", "tf.data-cache"),
    ("Keras PyDataset, defaults", "keras"),
    (f"Keras PyDataset, {WORKERS} workers", KERAS_WORKERS),
    ("image_dataset_from_directory", "directory"),
)
"""The usual pipelines of today: by the form in which `autopipe eject --to` writes them, with their usual settings."""
_ALWAYS_NAMED = ("tf.data", "keras")  # with the reason if they cannot run; others are left out then


@dataclass(eq=False)
class TrialMeasurer:
    """Measures by trials in a child process, and each piece of foreign code in one of its own, which `close` ends."""

    runner: TrialRunner
    description: Description  # of its workload
    settings: Settings
    _: KW_ONLY
    rivals: Sequence[Baseline] = ()  # to be beaten beside the usual baselines
    # makes the runner of foreign code by its name, or by None another one of the workload; None: no such baselines
    foreign: Callable[[str | None], TrialRunner] | None = None
    elsewhere: PipelineConfig | None = None  # whose workers run on other cores
    _runners: dict[str | None, TrialRunner] = field(default_factory=dict)
    _rates: dict[str, float] = field(default_factory=dict)  # images/s of foreign code that ran, by its name
    _model_rate: float | None = None
    _half_width: float | None = None
    _ends_at: float | None = None

    def __post_init__(self) -> None:
        description, settings = self.description, self.settings
        wrapped = [] if description.wrapped is None else [description.wrapped.as_it_is]
        usual = [Baseline(name="the dataset as it is", config=each) for each in wrapped]
        allowed = settings.limits.only.get("keep", ("memory",))
        # Of samples that are read once, or if the user allows no cache in memory, other people's is no rival.
        may_cache = settings.mode is Mode.TRAIN and any(Kept.of(str(each)).in_memory for each in allowed)
        for name, code in BASELINES if description.wrapped is None and self.foreign is not None else ():
            if code == module.CACHED and not may_cache:
                continue
            against, unable = description.against(CODE, code), None
            if against is not None:
                unable = TrialFailure(kind=FailureKind.NOT_PLAIN, phase=Phase.BUILD, message=against)
            if unable is None or code in _ALWAYS_NAMED:
                fit = self._py_dataset if code == KERAS_WORKERS else None
                usual.append(Baseline(name=name, config=_of_code(code), unable=unable, with_workers=fit))
        if (own := settings.baseline) is not None:
            usual.insert(0, Baseline(name=f"{own.rpartition(':')[2]} (yours)", config=_of_code(own), required=True))
        known = {each.config.key() for each in usual}
        self._baselines = [*usual, *(each for each in self.rivals if each.config.key() not in known)]

    def baselines(self) -> Sequence[Baseline]:
        """Return the baselines that can run. Raises WorkloadError if the user's own cannot, or trains on other data."""
        if self.settings.baseline is not None:
            succeeded(self._runner_of(self.settings.baseline).start())
        against = self.description.against
        return [each for each in self._baselines if against("loader", each.config.loader.kind) is None]

    def _py_dataset(self, useful: int) -> Baseline:
        """Return the PyDataset with the useful number of threads, at most 64, and end the process of the usual one."""
        workers = max(WORKERS, min(64, useful))
        form = module.of_workers(workers)
        if form != KERAS_WORKERS and (begun := self._runners.pop(KERAS_WORKERS, None)) is not None:
            begun.close()
        return Baseline(name=f"Keras PyDataset, {workers} workers", config=_of_code(form))

    def start_all(self, seconds: float = math.inf) -> None:
        """Start the processes of foreign code in parallel, as imports take seconds, and wait for them this long."""
        able = (each.config for each in self._baselines if each.unable is None)
        runners = [self._runner_of(_code(each)) for each in able if each.loader.is_foreign]
        until = time.monotonic() + seconds
        for runner in runners:
            runner.until = until
            runner.begin()
        for runner in runners:
            runner.start()  # a failure happens again in its trial, and is reported there

    def close(self) -> None:
        """End all processes of foreign code, also if Ctrl-C comes meanwhile."""
        with contextlib.ExitStack() as ending:
            for runner in self._runners.values():
                ending.callback(runner.close)

    def _runner_for(self, config: PipelineConfig) -> TrialRunner:
        if config.loader.is_foreign:
            return self._runner_of(_code(config))
        # A process that keeps freed memory cannot measure a dataset as it is any more: each has its own.
        other = self.description.wrapped is not None and config.loader.keeps_freed_memory
        return self._runner_of(None) if other and self.foreign is not None else self.runner

    def _runner_of(self, code: str | None) -> TrialRunner:
        assert self.foreign is not None  # else such a baseline was not named
        if code not in self._runners:
            self._runners[code] = self.foreign(code)
        return self._runners[code]

    def ceiling(self, setup: ModelSetup) -> Ceiling:
        """Measure the model alone, and the loader's ops. Raises as `succeeded`."""
        usual = succeeded(self._ceiling(setup, model_only=False))
        self._model_rate = usual.model_images_per_second.value
        return usual

    def loader_alone(self, config: PipelineConfig) -> float | None:
        runner = self._runner_for(config)
        runner.until = self._until()
        answer = runner.loader(config, {"page_cache": self.settings.page_cache})
        return None if isinstance(answer, TrialFailure) else answer.images_per_second.value

    def model_alone(self, setup: ModelSetup, *, again: bool = True) -> Ceiling | None:
        answer = self._ceiling(setup, model_only=True, again=again)
        return None if isinstance(answer, TrialFailure) else answer

    def _ceiling(self, setup: ModelSetup, *, model_only: bool, again: bool = False) -> Ceiling | TrialFailure:
        options: JsonObject = {"page_cache": self.settings.page_cache, "model_only": model_only, "again": again}
        if self.elsewhere is not None and not model_only:
            options["elsewhere"] = self.elsewhere.model_dump(mode="json")
        self.runner.until = self._until()
        answer = self.runner.ceiling(setup, options)
        if isinstance(answer, Ceiling):
            # What the model alone, with equal steps, varies by is narrow enough for the interval of a trial: but no
            # less than what is as good, and no more than what is worth having.
            alone = answer.model_images_per_second
            strays = max(alone.high - alone.value, alone.value - alone.low) / alone.value
            self._half_width = min(max(strays, 1.0 - EQUAL), WORTH - 1.0)
        return answer

    def allow(self, seconds: float | None) -> None:
        self._ends_at = None if seconds is None else time.monotonic() + seconds

    def _until(self) -> float:
        budget = self.settings.budget_seconds
        return math.inf if self._ends_at is None or budget is None else self._ends_at + GRACE_SHARE * budget

    def measure(
        self, config: PipelineConfig, *, proof: bool = False, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        asked = {
            "page_cache": self.settings.page_cache,
            "half_width": self._half_width,
            "hopeless_below": must_reach or None,
            "ends_at": self._ends_at,
            "trace": self.settings.trace,
            "model_images_per_second": self._model_rate if config.loader.is_foreign else None,
        }
        options = (PROOF if proof else _SEARCH) | {name: value for name, value in asked.items() if value is not None}
        answer = self._in_turn(self._runner_for(config), config, options)
        if config.loader.is_foreign and isinstance(answer, Measurement):
            self._rates[_code(config)] = answer.images_per_second.value
            # End processes that hold an accelerator's memory, but those that a proof runs by turns.
            others = sorted(self._rates.keys() - {self.settings.baseline}, key=lambda code: -self._rates[code])
            for code in others[MOST_OF_OTHERS:] if self.description.accelerators else ():
                self._runners[code].close()
        return answer

    def epoch(
        self, config: PipelineConfig, seconds: float, images_per_second: float, *, most: float = math.inf
    ) -> EpochTime | None:
        """Time whole epochs for about `seconds`; None if that failed, or took `most`, or three times as long."""
        runner = self._runner_for(config)
        runner.until = time.monotonic() + min(3.0 * seconds, most)
        wanted: JsonObject = {"seconds": seconds, "images_per_second": images_per_second}
        answer = runner.epoch(config, {**wanted, "page_cache": self.settings.page_cache})
        return answer if isinstance(answer, EpochTime) else None

    def _in_turn(self, runner: TrialRunner, config: PipelineConfig, options: JsonObject) -> Measurement | TrialFailure:
        """Run one trial. If the accelerator's memory is too small for all processes, end the others and try again."""
        runner.until = self._until()
        answer = runner.measure(config, options)
        if not isinstance(answer, TrialFailure) or answer.kind is not FailureKind.OUT_OF_MEMORY:
            return answer
        everybody = (self.runner, *self._runners.values())
        others = [each for each in everybody if each is not runner and each.pid is not None]
        if not others or not gpu.detect():
            return answer
        for each in others:
            each.close()
        return runner.measure(config, options)


def _code(config: PipelineConfig) -> str:
    return str(config.loader.model_dump()["code"])


def _of_code(code: str) -> PipelineConfig:
    keep = "memory" if code in (module.CACHED, module.FIT) else "none"  # where these forms keep samples
    return PipelineConfig(loader=Foreign(code=code), keep=keep, finish="host", device_prefetch=0)


def succeeded(answer: T | TrialFailure) -> T:
    """Return the answer of a required trial. Raises WorkloadError if the workload failed, or NothingMeasuredError."""
    if not isinstance(answer, TrialFailure):
        return answer
    if answer.kind in (FailureKind.IMPORT, FailureKind.BUILD, FailureKind.BAD_DATA, FailureKind.UNSUPPORTED):
        raise WorkloadError(answer.message, hint=answer.hint)
    lines = [line for line in answer.log_tail.splitlines() if "<frozen importlib" not in line][-15:]
    tail = "\n".join(["\n\nThe end of the log:", *lines]) if lines else ""
    phase = str(answer.phase).replace("_", " ")
    if answer.kind is FailureKind.INTERRUPTED:
        raise NothingMeasuredError(
            f"The budget was used up before anything could be measured (in phase: {phase}).",
            hint="Give it more time with --budget, or end what else runs on this machine.",
        )
    raise NothingMeasuredError(f"{answer.message} (in phase: {phase}){tail}", hint=answer.hint)
