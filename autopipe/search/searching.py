"""Runs one search on this machine: listeners, the process of the trials, and the facts about machine and workload.

Trials run in a child process that imports the workload; this process imports neither it nor a training framework.
`autopipe.api.tuning` uses the result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from autopipe.errors import DataWarning, SpaceError, TrialError
from autopipe.hardware import disk, gpu
from autopipe.hardware.machine import Machine, detect_memory
from autopipe.measure import fingerprint
from autopipe.measure.facts import Description, Facts, WrappedDataset
from autopipe.measure.fingerprint import Hardware
from autopipe.measure.outcome import FEWEST_VERIFIED, FailureKind, TrialFailure
from autopipe.measure.trial.child import IN_TRIAL, Launch, Log
from autopipe.measure.trial.child import Event as TrialEvent
from autopipe.measure.trial.forkserver import ForkServer
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.measure.trial.workload_import import WorkloadName
from autopipe.pipeline.config import LOADERS, PipelineConfig, SettingValue
from autopipe.search import record, study
from autopipe.search import space as spaces
from autopipe.search.conclusion import Searched
from autopipe.search.lock import MEASURING, PATIENCE_SECONDS, Queue
from autopipe.search.measurer import GRACE_SHARE, Baseline, TrialMeasurer, succeeded
from autopipe.search.result import OnEvent, Waiting
from autopipe.search.session import SLACK
from autopipe.search.settings import Settings, step_text
from autopipe.search.space import Space, of_wrapped, parameter_types, places, to_config
from autopipe.values import count_text
from autopipe.workload import digests
from autopipe.workload.mode import Mode
from autopipe.workload.workload import Workload, under_policy_of_here


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The machine, the workload and the space of a search."""

    machine: Machine
    described: Description
    space: spaces.OnMachine  # as its file was read
    folder: Path  # for converted samples

    @classmethod
    def of(cls, runner: TrialRunner, machine: Machine, space: spaces.OnMachine, folder: Path, watcher: Watcher) -> Self:
        """Have the workload described, and tell of the machine again if it leaves fewer of its cores to a training."""
        described = description(runner)
        if (left := bound(machine, described)) is not machine:
            watcher.on_machine(left)
        return cls(machine=machine, described=described, space=space, folder=folder)

    @property
    def hardware(self) -> Hardware:
        return hardware_of(self.machine, self.described)


def facts_of(machine: Machine, described: Description, folder: Path, *, simulated: bool = False) -> Facts:
    """Return the facts of a search, with the memory and disk that are free now; `folder` is for converted samples."""
    devices, reason = devices_of(described, len(machine.gpus))
    accelerated = described.accelerators > 0
    memory = next((each.memory_bytes for each in machine.gpus), None)  # None if NVML does not tell
    pointless: dict[tuple[str, SettingValue], str] = {}
    if simulated or not accelerated:
        takes = "a simulated accelerator takes either order alike" if simulated else "there is no accelerator"
        pointless["channels", "first"] = takes
    return Facts(
        workload=described,
        cores=bound(machine, described).cpu.cores,
        gpus=devices,
        gpus_reason=reason,
        memory_bytes=detect_memory().available_bytes,
        disk_bytes=disk.detect(folder).free_bytes,
        accelerator=accelerated or simulated,
        # A training takes three quarters of an accelerator's memory at most: that is JAX's default.
        device_bytes=None if simulated or not accelerated or memory is None else int(0.75 * memory),
        pointless=pointless,
    )


def bound(machine: Machine, described: Description) -> Machine:
    """Return the machine with the cores that are left to a training: what a workload imports may take some away."""
    if described.cores_left is None or described.cores_left >= machine.cpu.cores:
        return machine
    return dataclasses.replace(machine, cpu=dataclasses.replace(machine.cpu, cores=described.cores_left))


def hardware_of(machine: Machine, described: Description) -> Hardware:
    """Return the fingerprint of a machine that trains a workload."""
    machine = bound(machine, described)
    return fingerprint.of_machine(machine, described.storage_kind, described.backend, described.virtual_devices)


def devices_of(described: Description, nvml: int) -> tuple[int, str]:
    """Return the number of devices that can share a batch, by Keras and `nvml`, and the reason for the limit."""
    seen, named = described.accelerators, f"Keras's {described.backend} backend"
    if described.virtual_devices:
        return described.virtual_devices, f"{described.virtual_devices} virtual devices were asked for"
    by_keras, by_nvml = count_text(seen, "device"), count_text(nvml, "device")
    if seen and nvml:
        return min(seen, nvml), f"{named} sees {by_keras}, NVML {by_nvml}"
    if seen:
        return 1, f"{named} sees {by_keras}, but NVML sees none, so only one is used"
    if nvml:
        return 1, f"NVML sees {by_nvml}, but {named} none: it trains on the CPU"
    return 1, "there is no accelerator"


STARTING_SHARE = 0.25  # of the budget: if a process takes longer to start, baselines start one by one
_RIVALS_EPOCHS = 2  # baselines whose epochs are timed


def once(say: Callable[[Log], None]) -> Callable[[TrialEvent], None]:
    """Return a listener that says each remark of the trials' processes once: each child that starts repeats it."""
    said = set[str]()

    def told(event: TrialEvent) -> None:
        if isinstance(event, Log) and event.text not in said:
            said.add(event.text)
            say(event)

    return told


def _warn(remark: Log) -> None:
    if remark.of_data:
        warnings.warn(remark.text, DataWarning, stacklevel=3)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """The listeners of a search."""

    on_machine: Callable[[Machine], None] = lambda found: None  # first, and again if fewer cores are left
    on_request: Callable[[Settings], None] = lambda settings: None  # of a retune, with that of the tune before it
    on_search: OnEvent = lambda event: None
    on_trial: Callable[[TrialEvent], None] = dataclasses.field(default_factory=lambda: once(_warn))


def read_space(settings: Settings, found: Machine) -> spaces.OnMachine:
    """Read the search space before a child is started. Raises SpaceError, also if it lacks values of the limits."""
    gpus = settings.virtual_devices or len(found.gpus)
    known = {"cores": found.cpu.cores, "gpus": gpus}
    read = spaces.read(settings.space)
    space = read(known)
    ours = parameter_types()  # a wrapped dataset has parameters of its own, not known here
    only = {name: each for name, each in settings.limits.only.items() if name in ours or name.startswith(ANY_LOADER)}
    for name, values in held(space, only).items():
        spaces.require(space, name, values, known)
    return read


def queue_of(on_event: OnEvent, budget_seconds: float | None = None) -> Queue:
    """Return the queue of processes that measure on this machine. A search waits for twice its budget at most."""
    patience = PATIENCE_SECONDS if budget_seconds is None else 2 * budget_seconds
    return Queue(lambda who: on_event(Waiting(why=who, seconds=patience)), patience)


def search(
    runner: TrialRunner, site: Site, settings: Settings, on_event: OnEvent, *, rivals: Sequence[Baseline] = ()
) -> tuple[Searched, Settings]:
    """Search for the fastest configuration, once no other process measures on this machine. Free memory and disk of the
    `site` are read when the search begins, and `runner` is closed at its end. `rivals` have to be beaten beside the
    usual baselines. Returns the result, and the settings with the facts about the workload. Raises SpaceError if the
    search space holds nothing that can run here, TrialError if the study is another workload's or its storage cannot be
    used, and NothingMeasuredError if another process still measures on this machine after the longest wait.
    """
    queue = queue_of(on_event, settings.budget_seconds)
    with queue.held(MEASURING):
        if settings.began is not None:  # waiting for another tune is not held against the budget
            settings = dataclasses.replace(settings, began=settings.began + queue.seconds)
        return _searched(runner, site, settings, on_event, rivals)


def _searched(
    runner: TrialRunner, site: Site, settings: Settings, on_event: OnEvent, rivals: Sequence[Baseline]
) -> tuple[Searched, Settings]:
    described = site.described
    alone = settings.simulate is not None or described.model is None  # nothing trains on the cores
    facts = facts_of(site.machine, described, site.folder, simulated=alone)
    if described.wrapped is None:
        space = site.space(bounds(facts))
    else:
        space = of_wrapped(described.wrapped.choices, bounds(facts) if described.wrapped.with_workers else None)
    foreign = functools.partial(foreign_runner, runner)
    completed = _completed(settings, site, only=held(space, settings.limits.only))
    asked = completed.limits.only.get("loader", space["loader"].values)
    kinds = [kind for kind in space["loader"].values if kind in asked and LOADERS[str(kind)].works_elsewhere]
    elsewhere = to_config(next(space.only("loader", kinds).grid())) if kinds else None  # on other cores
    limited = dataclasses.replace(settings, limits=completed.limits)
    measurer = TrialMeasurer(runner, described, limited, rivals=rivals, foreign=foreign, elsewhere=elsewhere)
    with contextlib.closing(measurer):
        clock, began = settings.clock, settings.clock() if settings.began is None else settings.began
        starting, budget = clock() - began, math.inf if settings.budget_seconds is None else settings.budget_seconds
        if budget >= 60.0 and starting <= STARTING_SHARE * budget:  # in less time, not all baselines run
            measurer.start_all(budget / 2 - starting)
        # To read each of two datasets, and to time whole epochs of a configuration, if there is a validation.
        look = 0.0 if described.wrapped is None else min(10.0, 0.03 * budget)
        whole = settings.mode is Mode.TRAIN and settings.simulate is None and described.validation
        epochs = min(4.0, 0.03 * budget) if whole else 0.0
        later, ending = 2 * look + (1 + _RIVALS_EPOCHS) * epochs, 0.1 * starting  # which a process takes to end
        kept = dataclasses.replace(completed, end_seconds=completed.end_seconds + later + ending)
        found = study.run(space, measurer, facts, kept, on_event)
        ends = clock() + budget - found.result.seconds - completed.end_seconds - ending
        over = ends + (SLACK + GRACE_SHARE) * budget
        with contextlib.suppress(KeyboardInterrupt):  # the search is over, and its result is there
            if epochs:
                found = _with_epochs(found, measurer, epochs, lambda: over - clock())
            measurer.close()  # a larger batch may need the memory
            if (best := found.best_config) is not None and described.wrapped is not None:
                _tell_of_changes(runner, described.wrapped, best, look, over - clock())
            elif best is not None and described.accelerators and settings.simulate is None:
                found = _with_twice_the_batch(found, runner, best, ends - clock())
            runner.close()  # which may take its time, and nothing follows
    return found, completed


def _with_epochs(
    found: Searched, measurer: TrialMeasurer, seconds: float, left: Callable[[], float] = lambda: math.inf
) -> Searched:
    """Return the result with the time of whole epochs, of the winner and the fastest baselines, as time is left."""
    result, winner = found.result, found.result.winner
    if winner is None or result.interrupted:
        return found
    rates = {each.key: each.images_per_second.value for each in result.baselines if each.images_per_second is not None}
    fastest = sorted(rates, key=lambda key: -rates[key])[:_RIVALS_EPOCHS]
    rates = {winner.key: winner.images_per_second.value} | {key: rates[key] for key in fastest}
    configs = {**{each.key: each.config for each in result.baselines}, winner.key: winner.config}
    times = {
        key: measurer.epoch(PipelineConfig.model_validate(configs[key]), seconds, rate, most=left())
        for key, rate in rates.items()
        if left() >= seconds
    }
    update = {
        "winner": winner.model_copy(update={"epoch": times.get(winner.key)}),
        "baselines": tuple(each.model_copy(update={"epoch": times.get(each.key)}) for each in result.baselines),
    }
    return dataclasses.replace(found, result=result.model_copy(update=update))


def _tell_of_changes(
    runner: TrialRunner, wrapped: WrappedDataset, best: PipelineConfig, seconds: float, left: float
) -> None:
    """Warn if the best arguments of a wrapped dataset change the training, or if no time is left to see that."""
    before, after = wrapped.as_it_is.loader.model_dump(), best.loader.model_dump()
    changed = ", ".join(f"{name}={value!r}" for name, value in after.items() if value != before.get(name))
    if not changed:
        return
    runner.until = time.monotonic() + min(2 * seconds + 5.0, left)  # to open both datasets
    looked = {"samples": FEWEST_VERIFIED, "seconds": min(seconds, left / 2)}
    answer = runner.verify([wrapped.as_it_is, best], looked) if left >= seconds else None
    if answer is None or (isinstance(answer, TrialFailure) and answer.kind is FailureKind.INTERRUPTED):
        text = f"The budget left no time to see whether the fastest arguments, {changed}, change the training."
        runner.on_event(Log(text=f"{text} `autopipe verify` compares them.", of_data=True))
        return
    if isinstance(answer, TrialFailure) or not (found := answer.agreements[1]).has_run or found.message is None:
        return
    text = f"The fastest arguments, {changed}, change the training: {found.message}."
    runner.on_event(Log(text=text, of_data=True))


def _with_twice_the_batch(found: Searched, runner: TrialRunner, best: PipelineConfig, left: float) -> Searched:
    """Return the result with the model alone at twice the batch size, in 2.5 s (it compiles) to 6 s. It comes last, as
    the batch may take memory that an accelerator's process keeps.
    """
    budget = found.result.budget_seconds
    seconds = min(6.0, left, math.inf if budget is None else 0.05 * budget)
    if seconds < 2.5 or found.result.interrupted:
        return found
    runner.until = time.monotonic() + seconds
    answer = runner.ceiling(best.model_setup, {"model_only": True, "samples": 2 * found.result.batch_size})
    if isinstance(answer, TrialFailure):
        return found
    rate = answer.model_images_per_second.value
    return dataclasses.replace(found, result=found.result.model_copy(update={"doubled_images_per_second": rate}))


def runner_for(
    workload: Workload | WorkloadName | str,
    settings: Settings | None = None,
    on_trial: Callable[[TrialEvent], None] = lambda event: None,
    folder: Path | None = None,
    server: ForkServer | None = None,
) -> TrialRunner:
    """Make the runner of a workload's trials; nothing starts yet. Converted samples go to `folder`, None for the
    temporary folder. A `server` is worth it where more processes follow. Raises ConfigError if `KERAS_BACKEND` names no
    backend of Keras.
    """
    gpu.require_known()
    settings = settings or Settings()
    shared = {  # an accelerator, of which each process takes only the memory that it needs
        "TF_CPP_MIN_LOG_LEVEL": "1",  # warnings go to the child's log: one tells of a cache that is thrown away
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    variables = {name: os.environ.get(name, value) for name, value in shared.items()}
    launch = Launch(
        workload=under_policy_of_here(workload) if isinstance(workload, Workload) else workload,
        folder=folder,
        environment=(*variables.items(), (gpu.VARIABLE, str(settings.virtual_devices))),
        # A workload object imports modules beside the script, wherever the script is run from.
        sys_path=(str(Path.cwd()), *(sys.path if isinstance(workload, Workload) else ())),
        simulate=settings.simulate,
        mode=settings.mode,
        server=server,
    )
    return TrialRunner(launch, on_event=on_trial)


def foreign_runner(runner: TrialRunner, code: str | None) -> TrialRunner:
    """Make a runner of foreign code, or of None: the workload. It goes on however much memory its process takes."""
    launch = dataclasses.replace(runner.launch, code=code)
    return TrialRunner(launch, on_event=runner.on_event, growth_bytes=sys.maxsize)


def description(runner: TrialRunner) -> Description:
    """Return the child's description of the workload. Raises as `succeeded`."""
    return succeeded(runner.describe())


def refuse_in_trial() -> None:
    """Raise a TrialError if this process is the child of a tune that imports a script which tunes."""
    if os.environ.get(IN_TRIAL):
        raise TrialError(
            "A tune was started inside a trial: the trial imports your script, and the script tunes when imported.",
            hint='Put the call under `if __name__ == "__main__":`, or run `autopipe tune` instead.',
        )


def bounds(facts: Facts) -> dict[str, int]:
    """Return the numbers that a search space may name."""
    return {"cores": facts.cores, "gpus": facts.gpus}


def workload_key(described: Description) -> str:
    """Return the key by which two studies have the same workload."""
    return json.dumps({"ops": described.ops, "batch_size": described.batch_size, "model": described.model})


def _completed(settings: Settings, site: Site, *, only: Mapping[str, tuple[SettingValue, ...]]) -> Settings:
    described, hardware = site.described, site.hardware
    epochs = settings.epochs if settings.epochs is not None else described.epochs
    convert = epochs is not None if settings.convert is None else settings.convert
    name, measured = settings.study_name, dict[str, str]()  # what else changes the figures of trials
    if settings.simulate is not None:
        measured["simulated step"] = step_text(settings.simulate)
    if settings.page_cache != "auto":
        measured["page cache"] = settings.page_cache
    if settings.mode is not Mode.TRAIN:
        measured["mode"] = settings.mode.value
    if record.is_shared(settings.storage):  # by workloads and machines, and by tunes that run at once
        workload = digests.digest(workload_key(described), *measured.values())
        kind = digests.digest(digests.canonical(hardware))
        where = digests.digest(socket.gethostname(), site.folder.absolute())
        name = "-".join([name, workload[:8], kind[:8], where[:8]])
    return dataclasses.replace(
        settings,
        study_name=name,
        limits=dataclasses.replace(settings.limits, only=only, convert=convert),
        epochs=epochs,
        digests={
            "workload": workload_key(described),
            "data": described.data_digest,
            "hardware": digests.canonical(hardware),
            **measured,
        },
    )


ANY_LOADER = "loader."
"""`loader.workers` stands for the workers of every loader that has such a knob."""


def held(space: Space, only: Mapping[str, tuple[SettingValue, ...]]) -> dict[str, tuple[SettingValue, ...]]:
    """Return the allowed values by the parameters of the space, in place of `loader.KNOB`. A loader that has the knob
    but none of the values is left out of the search. Raises SpaceError if no loader of the space has such a knob with
    such a value.
    """
    found: dict[str, tuple[SettingValue, ...]] = {}
    unfit: set[SettingValue] = set()
    for name, values in only.items():
        if name == "keep":  # all or a part of the samples, where only a place is named; the space refuses unknown ones
            values = tuple(places(values, space["keep"].values)) or values
        if not name.startswith(ANY_LOADER):
            found[name] = values
            continue
        knob = name.removeprefix(ANY_LOADER)
        having = [each for each in space if each.name.partition(".")[2] == knob]
        fitting = [each for each in having if set(each.values) & set(values)]
        if not fitting:
            known = "; ".join(f"{each.name} may be {', '.join(map(str, each.values))}" for each in having)
            raise SpaceError(
                f"`{name}` cannot be {', '.join(map(repr, values))} in this space.",
                hint=f"There: {known}." if known else f"No loader of this space has `{knob}`.",
            )
        found |= {each.name: values for each in fitting}
        unfit |= {each.name.partition(".")[0] for each in having} - {each.name.partition(".")[0] for each in fitting}
    if unfit:
        allowed = found.get("loader", space["loader"].values)
        found["loader"] = tuple(kind for kind in allowed if kind not in unfit)
    return found
