"""Tunes a workload: `ap.tune`, which the command line calls as well."""

from __future__ import annotations

import dataclasses
import functools
import time
from pathlib import Path
from typing import Unpack

from autopipe.api import request
from autopipe.artifact import codegen, factory, reference, schema
from autopipe.hardware import machine
from autopipe.measure.trial import workload_import
from autopipe.measure.trial.forkserver import ForkServer
from autopipe.reports import notebook, profile_report
from autopipe.search import searching
from autopipe.search.result import OnEvent, Result, nothing_measured
from autopipe.search.searching import Watcher
from autopipe.search.settings import Settings, require_possible
from autopipe.workload.workload import Workload


@request.refusing_unknown(request.usual)
def tune(
    workload: Workload | str, *, on_event: OnEvent | None = None, **search: Unpack[request.Search]
) -> factory.Tuned:
    """Search for the fastest way to feed a workload on this machine, and return it with its evidence.

    The trials run in child processes, to which a workload object travels by cloudpickle: everything that its functions
    use must be importable or picklable. A script that calls this needs no main guard if it passes the object; one that
    passes its own file as "train.py:workload" does.

    Args:
        workload: a `Workload`, or its name: "train.py:workload" or "package.module:workload".
        on_event: gets the events of `autopipe.search.result`. In a notebook, the default shows a picture of all trials
            so far.
        budget: seconds, or "2m", with the confirmation run; None for no limit. The default is two minutes.
        baseline: your own pipeline, which the winner has to beat: "FILE.py:function", or a function in a file, which
            returns a tf.data.Dataset, a keras.utils.PyDataset or a pair of arrays (x, y).
        epochs: spread one-time costs over so many epochs; None: over none.
        only: allowed values of parameters, e.g. `{"loader": ("threads",)}`, or one value: `{"keep": "none"}`.
        mode: "train"; "evaluate" and "predict" tune for serving: the model evaluates or predicts the samples once, in
            order and without chance, as `make_trainer().predict(samples)` does.
        space: the name of a shipped search space, or a YAML file.
        trials: the most trials; 30.
        max_memory: the most memory that the training may take: bytes, or "8G".
        max_workers: the most workers that the loader may have.
        convert: try other storage forms; None: they can win if `epochs` is given.
        simulate_step: an accelerator in place of the model, by its time a step: "15ms".
        virtual_devices: split the CPU into so many devices.
        page_cache: "warm", "cold" or "auto": whether trials read files from memory or from disk.
        storage: an Optuna storage URL such as "sqlite:///study.db"; None keeps the study in memory.
        seed: of everything random in the search.
        fresh: begin a new study instead of continuing one in the storage.

    Returns:
        The tuned pipeline; `.study` is the Optuna study.

    Raises:
        ConfigError: an argument is impossible.
        WorkloadError: the workload cannot be imported or run.
        NothingMeasuredError: no configuration could be measured. If Ctrl-C was the reason, it is a
            SearchInterruptedError. Later, Ctrl-C ends the search with the best so far.
        TrialError: this is called inside a trial, or the study is another workload's.
        SpaceError: the search space cannot be read, or holds nothing that can run here.

    Examples:
        >>> tuned = ap.tune(workload, budget=120)       # doctest: +SKIP
        >>> tuned.save("autopipe.json")                 # doctest: +SKIP
    """
    passed: object = workload
    if not isinstance(passed, Workload | str):
        hint = 'Pass the object, or its name: "train.py:workload".'
        raise request.unfit("workload", workload, "an ap.Workload or the name of one", hint)
    listener: object = on_event
    if not (listener is None or callable(listener)):
        hint = "It is called with each event, as by on_event=print."
        raise request.unfit("on_event", on_event, "a function, or None", hint)
    told = [f"{name}={value!r}" for name, value in search.items() if name != "storage"]  # which may hold a password
    called = ", ".join([repr(workload) if isinstance(workload, str) else "workload", *told])
    settings = request.settings_of(search, command=f"ap.tune({called})")
    on_event = on_event or notebook.progress(settings.budget_seconds)
    result, tuned = run(workload, settings, Watcher() if on_event is None else Watcher(on_search=on_event))
    if tuned is None:
        raise nothing_measured(result)
    return tuned


def run(
    workload: Workload | str,
    settings: Settings,
    watcher: Watcher,
    *,
    named: schema.Reference | None = None,
    folder: Path | None = None,
) -> tuple[Result, factory.Tuned | None]:
    """Run a tune, and return the result of the search and the tuned pipeline. `named` is the source of a workload
    object that a command made; `folder` is for converted samples. Raises WorkloadError and TrialError as `tune`.
    """
    if settings.began is None:  # importing the workload is part of it
        settings = dataclasses.replace(settings, began=time.monotonic())
    searching.refuse_in_trial()
    require_possible(settings)
    folder = folder or Path.cwd()
    here = machine.detect()
    space = searching.read_space(settings, here)
    watcher.on_machine(here)
    with ForkServer() as server, searching.runner_for(workload, settings, watcher.on_trial, folder, server) as runner:
        described = searching.description(runner)
        if not isinstance(workload, Workload):  # before anything is measured: an artifact may not be able to name it
            named = reference.parse(workload)
        site = searching.Site(machine=here, described=described, space=space, folder=folder)
        watcher.tell_of_bound(here, described)
        found, asked = searching.search(runner, site, settings, watcher.on_search)
    if (profile := codegen.profile_of(found.result, described, site.hardware, asked)) is None:
        return found.result, None
    source = workload if isinstance(workload, Workload) else functools.partial(workload_import.load_workload, workload)
    return found.result, factory.of_profile(profile, source, named=named, study=found.study, shown=profile_report.piece)
