"""Runs the trials of a search in a child process, through `autopipe.trial.supervise`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from autopipe.core.ceiling import Ceiling
from autopipe.core.config import ModelSetup, PipelineConfig
from autopipe.core.description import Description
from autopipe.core.outcome import FailureKind, Measurement, TrialFailure
from autopipe.core.value import JsonObject
from autopipe.errors import AutopipeError, NothingMeasuredError, WorkloadError
from autopipe.loaders.keras import Keras
from autopipe.loaders.tfdata import TfData
from autopipe.search.measurer import Baseline, Effort
from autopipe.trial.supervise import TrialRunner

_SEARCH: JsonObject = {"min_seconds": 0.8, "max_seconds": 2.0}
_PROOF: JsonObject = {"min_seconds": 1.5, "max_seconds": 1.5}

BASELINES = (
    Baseline(name="Keras PyDataset", config=PipelineConfig(loader=Keras(), finish="host", device_prefetch=0)),
    Baseline(name="tf.data AUTOTUNE", config=PipelineConfig(loader=TfData(), finish="host", device_prefetch=0)),
)
"""What people have today: a PyDataset with Keras's defaults, and tf.data with AUTOTUNE everywhere; float batches."""


class TrialMeasurer:
    """Measures by trials in a child process."""

    def __init__(
        self, runner: TrialRunner, description: Description, page_cache: str, *, rivals: Sequence[Baseline] = ()
    ) -> None:
        """Use `runner`, whose workload looks like `description`; `rivals` are to be beaten beside the usual ones."""
        self._rivals = rivals
        self._runner = runner
        self._page_cache = page_cache
        self._usual: tuple[Baseline, ...] = BASELINES
        if description.wrapped is not None:
            config = PipelineConfig.model_validate_json(json.dumps(description.wrapped.as_it_is))
            self._usual = (Baseline(name="the dataset as it is", config=config),)
        self._impossible = {(each.parameter, each.value) for each in description.impossible}

    def baselines(self) -> Sequence[Baseline]:
        """Return what the winner has to beat, as far as the workload can run it."""
        usual = {each.config.key() for each in self._usual}
        baselines = (*self._usual, *(each for each in self._rivals if each.config.key() not in usual))
        return [each for each in baselines if ("loader", each.config.loader.kind) not in self._impossible]

    def ceilings(self, setups: Sequence[ModelSetup]) -> Sequence[Ceiling]:
        """Measure the model alone in each setup, and once the loader's ops.

        A setup that cannot run, the first excepted, is left out: its trials will say why.

        Raises:
            WorkloadError: the model cannot be trained on the batches.
            NothingMeasuredError: the trial crashed, hung or took too much memory.
        """
        usual = self._ceiling(setups[0], model_only=False)
        if isinstance(usual, TrialFailure):
            raise failed(usual)
        others = [self._ceiling(setup, model_only=True) for setup in setups[1:]]
        shared = {"loader_images_per_second", "op_costs", "reads", "tail", "read_bytes_per_second"}
        known = {name: getattr(usual, name) for name in shared}
        return [usual, *(each.model_copy(update=known) for each in others if isinstance(each, Ceiling))]

    def model_alone(self, setup: ModelSetup) -> Ceiling | None:
        """Measure the model alone once more."""
        answer = self._ceiling(setup, model_only=True, again=True)
        return answer if isinstance(answer, Ceiling) else None

    def _ceiling(self, setup: ModelSetup, *, model_only: bool, again: bool = False) -> Ceiling | TrialFailure:
        options: JsonObject = {"page_cache": self._page_cache, "model_only": model_only, "again": again}
        return self._runner.ceiling(setup, options)

    def measure(
        self, config: PipelineConfig, *, effort: Effort = Effort.SEARCH, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        """Run one trial."""
        options: JsonObject = {**(_SEARCH if effort is Effort.SEARCH else _PROOF), "page_cache": self._page_cache}
        if must_reach is not None and must_reach > 0:
            options["hopeless_below"] = must_reach
        return self._runner.measure(config, options)


_LOG_LINES = 15
_THE_WORKLOADS = (FailureKind.IMPORT, FailureKind.BUILD, FailureKind.BAD_DATA, FailureKind.UNSUPPORTED)


def failed(failure: TrialFailure) -> AutopipeError:
    """Return the error that says why nothing at all can be measured: the workload's fault, or what the trial met."""
    if failure.kind in _THE_WORKLOADS:
        return WorkloadError(failure.message, hint=failure.hint)
    lines = [line for line in failure.log_tail.splitlines() if "<frozen importlib" not in line][-_LOG_LINES:]
    tail = "\n".join(["\n\nThe end of the log:", *lines]) if lines else ""
    phase = str(failure.phase).replace("_", " ")
    return NothingMeasuredError(f"{failure.message} (in phase: {phase}){tail}", hint=failure.hint)
