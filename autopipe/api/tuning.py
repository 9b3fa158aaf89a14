"""Tuning: `ap.tune`, which the command line calls as well. It finds out, searches, and hands back the tuned pipeline.

Trials run in a child process that imports the workload; this process never does, nor any training framework.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from autopipe.api.facts import facts_of, workload_digest
from autopipe.api.measurer import TrialMeasurer, failed
from autopipe.core.outcome import Description, Measurement, TrialFailure
from autopipe.core.params import Value
from autopipe.core.workload import Workload
from autopipe.errors import NothingMeasuredError, TrialError
from autopipe.hardware import machine
from autopipe.hardware.machine import Machine
from autopipe.search import library, study
from autopipe.search.events import OnEvent
from autopipe.search.facts import Facts, Limits
from autopipe.search.result import SearchResult
from autopipe.search.settings import Settings
from autopipe.trial import protocol
from autopipe.trial import reference as trial_reference
from autopipe.trial.child import Launch
from autopipe.trial.protocol import Event as TrialEvent
from autopipe.trial.supervise import Recycling, TrialRunner
from autopipe.tuned import evidence, factory, fingerprint, reference
from autopipe.tuned.evidence import Evidence
from autopipe.tuned.factory import Tuned
from autopipe.tuned.record import Reference

_TRIED_KEPT = 8  # other configurations that the artefact keeps, as evidence for machines nobody has tuned on


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a tune is asked for; see `tune`.

    Attributes:
        space: the name of a shipped search space, or a YAML file.
        storage: an Optuna storage URL; None keeps the study in memory.
        study_name: the study's name in the storage.
        trials: how many trials at most.
        budget_seconds: how long at most.
        seed: of everything random in the search.
        limits: what the user allows.
        epochs: charge one-time costs over this many epochs.
        page_cache: "warm", "cold" or "auto".
        isolation: "warm" or "process".
        fresh: begin a new study.
        lock: the file by which tunes on one machine queue up.
    """

    space: str = "default"
    storage: str | None = None
    study_name: str = "autopipe"
    trials: int = 30
    budget_seconds: float | None = 120.0
    seed: int = 0
    limits: Limits = dataclasses.field(default_factory=Limits)
    epochs: int | None = None
    page_cache: Literal["warm", "cold", "auto"] = "auto"
    isolation: Literal["warm", "process"] = "warm"
    fresh: bool = False
    lock: Path | None = Path(tempfile.gettempdir()) / "autopipe-measuring.lock"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Who is told what happens.

    Attributes:
        on_machine: told the machine, first of all.
        on_search: told the events of the search.
        on_trial: told the phases and the progress of each trial.
    """

    on_machine: Callable[[Machine], None] = lambda found: None
    on_search: OnEvent = lambda event: None
    on_trial: Callable[[TrialEvent], None] = lambda event: None


def tune(  # noqa: PLR0913  the entry point: what is asked for most, by keyword
    workload: Workload | str,
    *,
    budget: float | None = 120.0,
    trials: int = 30,
    space: str = "default",
    storage: str | None = None,
    seed: int = 0,
    only: Mapping[str, tuple[Value, ...]] | None = None,
    on_event: OnEvent | None = None,
) -> Tuned:
    """Search for the fastest way to feed a workload on this machine, and return it with its evidence.

    The trials run in child processes, to which a workload object travels by cloudpickle: what its functions use must
    be importable or picklable. A script that calls this needs no main guard if it passes the object; one that passes
    its own file as "train.py:workload" does.

    Args:
        workload: a `Workload`, or its name: "train.py:workload" or "package.module:workload".
        budget: seconds, the proof included; None for as long as the trials take.
        trials: how many at most.
        space: the name of a shipped search space, or a YAML file.
        storage: an Optuna storage URL such as "sqlite:///study.db"; None keeps the study in memory.
        seed: of everything random in the search.
        only: parameters held to some values, e.g. `{"loader": ("threads",)}`.
        on_event: is told what happens; see `autopipe.search.events`.

    Returns:
        The tuned pipeline; `.study` is the Optuna study.

    Raises:
        WorkloadError: the workload cannot be imported or run.
        NothingMeasuredError: no configuration could be measured.
        TrialError: this is called inside a trial, or the study is another workload's.
        SpaceError: the search space cannot be read, or holds nothing that can run here.

    Example:
        >>> tuned = ap.tune(workload, budget=120)       # doctest: +SKIP
        >>> tuned.save("autopipe.json")                 # doctest: +SKIP
    """
    plan = Plan(
        space=space,
        storage=storage,
        trials=trials,
        budget_seconds=budget,
        seed=seed,
        limits=Limits(only=dict(only or {})),
    )
    result, tuned = run(workload, plan, Watcher() if on_event is None else Watcher(on_search=on_event))
    if tuned is None:
        raise nothing_measured(result)
    return tuned


def run(
    workload: Workload | str,
    plan: Plan,
    watcher: Watcher,
    *,
    named: Reference | None = None,
    folder: Path | None = None,
) -> tuple[SearchResult, Tuned | None]:
    """Run a tune, and return what the search found and the tuned pipeline made of it.

    Args:
        workload: what to tune.
        plan: how.
        watcher: who is told.
        named: where the workload comes from, if it is an object that a command made.
        folder: where converted samples would be kept.

    Raises:
        WorkloadError: the workload cannot be imported or run.
        TrialError: this is called inside a trial, or the study is another workload's.
    """
    _refuse_in_trial()
    found = machine.detect()
    watcher.on_machine(found)
    with runner_for(workload, plan, watcher.on_trial) as runner:
        described = description(runner)
        facts = facts_of(found, described, folder or Path.cwd())
        result = study.run(
            library.load(plan.space, bounds(facts)),
            TrialMeasurer(runner, described, plan.page_cache),
            facts,
            _settings(plan, described, found),
            plan.storage,
            watcher.on_search,
        )
    return result, _tuned(result, workload, described, plan, named)


def runner_for(
    workload: Workload | str, plan: Plan | None = None, on_trial: Callable[[TrialEvent], None] = lambda event: None
) -> TrialRunner:
    """Return the runner of a workload's trials; nothing starts yet."""
    launch = Launch(workload=workload, environment=(("TF_CPP_MIN_LOG_LEVEL", "2"),), sys_path=(str(Path.cwd()),))
    return TrialRunner(
        launch, recycling=Recycling(isolation="warm" if plan is None else plan.isolation), on_event=on_trial
    )


def description(runner: TrialRunner) -> Description:
    """Return what the child says of the workload.

    Raises:
        WorkloadError: it cannot be imported, or its model cannot be built.
        NothingMeasuredError: finding out crashed, hung or took too much memory.
    """
    answer = runner.describe()
    if isinstance(answer, TrialFailure):
        raise failed(answer)
    return answer


def nothing_measured(result: SearchResult) -> NothingMeasuredError:
    """Return the error of a search in which no trial gave a measurement."""
    failures = [row.outcome for row in result.failed if isinstance(row.outcome, TrialFailure)]
    if result.interrupted and not failures:
        return NothingMeasuredError("The search was interrupted before any configuration could be measured.")
    last = f" The last: {failures[-1].message}" if failures else ""
    return NothingMeasuredError(
        f"No configuration could be measured: {len(failures)} trials failed.{last}",
        hint=failures[-1].hint if failures else "Give it more time, or a wider search space.",
    )


def _refuse_in_trial() -> None:
    if os.environ.get(protocol.IN_TRIAL):
        raise TrialError(
            "A tune was started inside a trial: the trial imports your script, and the script tunes when imported.",
            hint='Put the call under `if __name__ == "__main__":`, or run `autopipe tune` instead.',
        )


def bounds(facts: Facts) -> dict[str, int]:
    """Return the numbers that a search space may name."""
    return {"cores": facts.cores, "gpus": facts.gpus}


def _settings(plan: Plan, described: Description, found: Machine) -> Settings:
    here = fingerprint.of_machine(found, described.storage_kind)
    return Settings(
        trials=plan.trials,
        budget_seconds=plan.budget_seconds,
        seed=plan.seed,
        limits=plan.limits,
        epochs=plan.epochs if plan.epochs is not None else described.epochs,
        study_name=plan.study_name,
        digests={
            "workload": f"{described.ops_digest}/{described.batch_size}/{described.model_digest}",
            "data": described.data_digest,
            "hardware": here.model_dump_json(),
        },
        fresh=plan.fresh,
        lock=plan.lock,
    )


def _tuned(
    result: SearchResult, workload: Workload | str, described: Description, plan: Plan, named: Reference | None
) -> Tuned | None:
    if result.best_config is None or result.measurement is None:
        return None
    here = fingerprint.of_machine(machine.detect(), described.storage_kind)
    profile = evidence.profile_of(_evidence(result, described, plan), workload_digest(described), here=here)
    if isinstance(workload, Workload):
        return factory.of_profile(profile, workload, named=named, study=result.study)
    source = partial(trial_reference.load_workload, workload)
    return factory.of_profile(profile, source, named=reference.parse(workload), study=result.study)


def _evidence(result: SearchResult, described: Description, plan: Plan) -> Evidence:
    assert result.best_config is not None
    assert result.measurement is not None
    rates: dict[str, tuple[Any, float]] = {}
    for row in result.trials:
        if isinstance(row.outcome, Measurement):
            rates[row.key] = (row.config, row.outcome.images_per_second.value)
    ranked = sorted(rates.values(), key=lambda pair: -pair[1])
    return Evidence(
        config=result.best_config,
        measurement=result.measurement,
        proved=result.estimate if result.proved else None,
        baselines=[(each.name, each.config, each.estimate) for each in result.baselines if each.estimate is not None],
        ceiling=result.ceiling,
        tried=ranked[:_TRIED_KEPT],
        study=plan.study_name,
        study_url=plan.storage,
        model=described.model_digest,
    )
