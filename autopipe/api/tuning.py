"""Tunes a workload: `ap.tune`, which the command line calls as well."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from autopipe.artifact import codegen, factory, reference, schema
from autopipe.errors import REMOVED, ConfigError, near, shortened
from autopipe.hardware import machine
from autopipe.measure.facts import Limits
from autopipe.measure.trial import workload_import
from autopipe.pipeline.config import Value
from autopipe.reports import notebook, profile_report
from autopipe.search import searching
from autopipe.search.conclusion import nothing_measured
from autopipe.search.result import Result
from autopipe.search.searching import Watcher
from autopipe.search.settings import Settings, require_possible
from autopipe.search.trials import OnEvent
from autopipe.workload.mode import Mode
from autopipe.workload.workload import Workload

_Passed = ParamSpec("_Passed")
_Made = TypeVar("_Made")


def unfit(name: str, value: object, wanted: str, hint: str) -> ConfigError:
    """Return the error for an argument that is not a `wanted`."""
    return ConfigError(f"`{name}` must be {wanted}, but got {shortened(value)}.", hint=hint)


def _refusing_unknown(function: Callable[_Passed, _Made]) -> Callable[_Passed, _Made]:
    """Decorate a function so that an unknown keyword is a ConfigError that names the known ones."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def called(*arguments: _Passed.args, **named: _Passed.kwargs) -> _Made:
        for name, value in named.items():
            if name not in known:
                said = f"`ap.{function.__name__}` takes {', '.join(known)}, but got {name}={shortened(value)}."
                if f"--{name}" in REMOVED:
                    raise ConfigError(f"`{name}` was removed.", hint=REMOVED[f"--{name}"])
                hint = 'What it returns is written by `.save("autopipe.json")`.'
                raise ConfigError(f"{said}{near(name, known)}", hint=hint)
        return function(*arguments, **named)

    return called


@_refusing_unknown
def tune(  # noqa: PLR0913  the entry point: what is asked for most, by keyword
    workload: Workload | str,
    *,
    budget: float | None = 120.0,
    trials: int = 30,
    space: str = "default",
    storage: str | None = None,
    seed: int = 0,
    only: Mapping[str, Value | Sequence[Value]] | None = None,
    baseline: str | Callable[[], Any] | None = None,
    mode: Literal["train", "evaluate", "predict"] = "train",
    on_event: OnEvent | None = None,
) -> factory.Tuned:
    """Search for the fastest way to feed a workload on this machine, and return it with its evidence.

    The trials run in child processes, to which a workload object travels by cloudpickle: everything that its functions
    use must be importable or picklable. A script that calls this needs no main guard if it passes the object; one that
    passes its own file as "train.py:workload" does.

    Args:
        workload: a `Workload`, or its name: "train.py:workload" or "package.module:workload".
        budget: seconds, with the confirmation run; None for no limit.
        trials: the most trials.
        space: the name of a shipped search space, or a YAML file.
        storage: an Optuna storage URL such as "sqlite:///study.db"; None keeps the study in memory.
        seed: of everything random in the search.
        only: allowed values of parameters, e.g. `{"loader": ("threads",)}`, or one value: `{"keep": "none"}`.
        baseline: your own pipeline, which the winner has to beat: "FILE.py:function", or a function in a file, which
            returns a tf.data.Dataset, a keras.utils.PyDataset or a pair of arrays (x, y).
        mode: "evaluate" and "predict" tune for serving: the model evaluates or predicts the samples once, in order and
            without chance, as `make_trainer().predict(samples)` does.
        on_event: gets the events of `autopipe.search.trials`. In a notebook, the default shows a picture of all trials
            so far.

    Returns:
        The tuned pipeline; `.study` is the Optuna study.

    Raises:
        ConfigError: an argument is impossible.
        WorkloadError: the workload cannot be imported or run.
        NothingMeasuredError: no configuration could be measured. If Ctrl-C was the reason, it is a
            SearchInterruptedError. Later, Ctrl-C ends the search with the best so far.
        TrialError: this is called inside a trial, or the study is another workload's.
        SpaceError: the search space cannot be read, or holds nothing that can run here.

    Example:
        >>> tuned = ap.tune(workload, budget=120)       # doctest: +SKIP
        >>> tuned.save("autopipe.json")                 # doctest: +SKIP
    """
    _require_kinds(workload, space, storage, baseline, on_event)
    asked = {"mode": None if mode == "train" else mode}
    settings = Settings(
        space=os.fspath(space),
        storage=storage,
        trials=trials,
        budget_seconds=budget,
        seed=seed,
        limits=Limits(only=_held(only)),
        baseline=baseline if baseline is None or isinstance(baseline, str) else _named(baseline),
        mode=_mode(mode),
        command=_call(workload, budget=budget, trials=trials, space=space, seed=seed, only=only, **asked),
    )
    on_event = on_event or notebook.progress(budget)
    result, tuned = run(workload, settings, Watcher() if on_event is None else Watcher(on_search=on_event))
    if tuned is None:
        raise nothing_measured(result)
    return tuned


def _require_kinds(workload: object, space: object, storage: object, baseline: object, on_event: object) -> None:
    """Refuse wrong types here: they would fail far inside, with an error that names no argument."""
    if not isinstance(workload, Workload | str):
        hint = 'Pass the object, or its name: "train.py:workload".'
        raise unfit("workload", workload, "an ap.Workload or the name of one", hint)
    if not isinstance(space, str | os.PathLike):
        hint = 'Such as space="quick", or space="space.yaml".'
        raise unfit("space", space, "the name of a search space, or a YAML file", hint)
    if not isinstance(storage, str | None):
        hint = 'Such as storage="sqlite:///study.db"; None keeps the study in memory.'
        raise unfit("storage", storage, "the URL of an Optuna storage, or None", hint)
    if not (baseline is None or isinstance(baseline, str) or callable(baseline)):
        hint = 'Such as baseline="bench.py:make_dataset".'
        raise unfit("baseline", baseline, "a function of your own, its name, or None", hint)
    if not (on_event is None or callable(on_event)):
        raise unfit("on_event", on_event, "a function, or None", "It is called with each event, as by on_event=print.")


def _mode(name: str) -> Mode:
    try:
        return Mode(name)
    except ValueError:
        raise unfit("mode", name, f"one of {', '.join(Mode)}", 'Such as mode="predict".') from None


def _held(only: Any) -> dict[str, tuple[Value, ...]]:
    items: Any = (only or {}).items() if isinstance(only, Mapping | None) else [(None, None)]
    if not all(isinstance(name, str) and isinstance(values, str | int | float | Iterable) for name, values in items):
        hint = 'Such as only={"loader": ("threads", "tfdata"), "keep": "none"}.'
        raise unfit("only", only, "a mapping from parameters to their values, or None", hint)
    return {name: (held,) if isinstance(held, str | int | float) else tuple(held) for name, held in items}


def _named(function: Callable[[], Any]) -> str:
    """Return the name by which another process finds a function; in the script itself it has the script's file."""
    name, module = getattr(function, "__qualname__", ""), sys.modules.get(getattr(function, "__module__", ""))
    home = getattr(module, "__file__" if function.__module__ == "__main__" else "__name__", None)  # none in a notebook
    if home is None or getattr(module, name, None) is not function:
        raise ConfigError(
            f"`baseline` must be a function that is defined in a file, but got {shortened(function)}.",
            hint='Write it at the top level of a file, and pass it or its name, "FILE.py:function".',
        )
    return f"{home}:{name}"


def run(
    workload: Workload | str,
    settings: Settings,
    watcher: Watcher,
    *,
    named: schema.Reference | None = None,
    folder: Path | None = None,
) -> tuple[Result, factory.Tuned | None]:
    """Run a tune, and return the result of the search and the tuned pipeline.

    `named` is the source of the workload, if it is an object that a command made. `folder` is for converted samples,
    those of trials included; None for the working directory. Raises WorkloadError if the workload cannot be imported or
    run, and TrialError inside of a trial, or if the study is another workload's.
    """
    if settings.began is None:  # importing the workload is part of it
        settings = dataclasses.replace(settings, began=time.monotonic())
    searching.refuse_in_trial()
    require_possible(settings)
    folder = folder or Path.cwd()
    here = machine.detect()
    space = searching.read_space(settings, here)
    watcher.on_machine(here)
    with searching.runner_for(workload, settings, watcher.on_trial, folder) as runner:
        site = searching.Site(machine=here, described=searching.description(runner), space=space, folder=folder)
        found, asked = searching.search(runner, site, settings, watcher.on_search)
    profile = codegen.profile_of(found.result, site.described, site.hardware, asked)
    if profile is None:
        return found.result, None
    if isinstance(workload, Workload):
        source: Workload | Callable[[], Workload] = workload
    else:
        source, named = functools.partial(workload_import.load_workload, workload), reference.parse(workload)
    return found.result, factory.of_profile(profile, source, named=named, study=found.study, shown=profile_report.piece)


def _call(workload: Workload | str, **named: object) -> str:
    given = repr(workload) if isinstance(workload, str) else "workload"
    told = [f"{name}={value!r}" for name, value in named.items() if value is not None or name == "budget"]
    return f"ap.tune({', '.join([given, *told])})"
