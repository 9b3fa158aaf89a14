"""`autopipe measure` measures one configuration, or answers one question; `autopipe doctor` shows this machine."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli import options, screen
from autopipe.errors import ConfigError
from autopipe.workload.mode import Mode

if TYPE_CHECKING:
    from autopipe.measure.facts import Description
    from autopipe.measure.outcome import Measurement
    from autopipe.measure.trial.protocol import Event as TrialEvent
    from autopipe.measure.trial.supervise import TrialRunner
    from autopipe.pipeline.config import PipelineConfig
    from autopipe.search.settings import Settings

_ALONE_SECONDS = 60.0  # after which no further value of a parameter is tried without the model
_NO_STEP_SECONDS = 1e-6  # of a model that takes no time
_NOTHING_MEASURED = 3  # the exit status


def measure(
    workload: options.WorkloadOptions = options.WORKLOAD,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting: loader.workers=4, keep=memory, wrapped.prefetch=2."
        ),
    ] = None,
    simulate_step: options.SimulateStep = None,
    virtual_devices: options.VirtualDevices = 0,
    mode: Annotated[Mode | None, typer.Option(help="Instead, measure the model alone in this mode.")] = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option(
            metavar="16,32,64",
            help="Instead, measure the model alone at these batch sizes.",
        ),
    ] = None,
    formats: Annotated[
        bool,
        typer.Option("--formats", help="Instead, encode some images anew in memory, and time decoding each format."),
    ] = False,
    page_cache: Annotated[
        options.PageCache, typer.Option(help="Whether the trial reads files from memory or from disk.")
    ] = "auto",
    seconds: Annotated[float, typer.Option(min=0.5, callback=options.finite, help="Most seconds to measure.")] = 5.0,
    trace: options.Trace = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurement as JSON, windows included.")] = False,
) -> None:
    """Measure one configuration of a workload, on its model.

    A dataset of ap.wrap is read without its model, too, and its slow lines are named.
    """
    from autopipe.pipeline.batching import trace as traces
    from autopipe.reports import tables
    from autopipe.search import measurer
    from autopipe.search.settings import Settings

    if formats:
        _show_formats(workload, as_json=as_json)
        return
    simulated = options.simulated(simulate_step)
    settings = Settings(simulate=simulated, virtual_devices=virtual_devices, mode=mode or Mode.TRAIN)
    if mode is not None or batch_sizes is not None:
        _show_alone(batch_sizes, workload, settings, setting or [], as_json=as_json)
        return
    told = screen.warning()
    with (
        traces.begun(trace) as trace_file,
        _described(workload, settings, setting or [], told) as (runner, described, config),
    ):
        ceiling = measurer.succeeded(runner.ceiling(config.model_setup, {"page_cache": page_cache}))
        ceiling = ceiling.model_copy(update={"depths": described.depths})
        asked = {"min_seconds": min(seconds, 2.0), "max_seconds": seconds, "page_cache": page_cache}
        measurement = measurer.succeeded(runner.measure(config, {**asked, "trace": trace_file}))
    alone = _alone(workload, config, described, min(seconds, 2.0), told)
    if as_json:
        of_ops = ceiling.model_dump(mode="json", include={"op_costs", "not_native"})
        more = {"alone": [each.model_dump(mode="json") for each in alone]} if alone else {}
        print(json.dumps({**measurement.model_dump(mode="json"), **of_ops, **more}, indent=2))
    else:
        screen.show(tables.measurement(measurement, config, ceiling, settings.simulate, described.counted))
        if alone:
            print()
            screen.show(tables.without_model(alone))


def _alone(
    workload: options.WorkloadOptions,
    config: PipelineConfig,
    described: Description,
    seconds: float,
    told: Callable[[TrialEvent], None],
) -> list[Measurement]:
    """Measure a wrapped dataset without its model: with the values of its function's parameters, as far as time allows,
    by worker processes if they can make its batches, and once more as usual with its lines.
    """
    from autopipe.hardware import machine
    from autopipe.measure.outcome import TrialFailure
    from autopipe.pipeline import wrap
    from autopipe.pipeline.devices.simulated import SimulatedAccelerator
    from autopipe.pipeline.loaders.processes import Processes
    from autopipe.reports import wording
    from autopipe.search import measurer
    from autopipe.search.settings import Settings

    if described.wrapped is None:
        return []
    usual, around = config.loader.model_dump(), type(config.loader).model_fields
    choices = described.wrapped.choices if config.loader.takes_any else {}
    knobs = {name: values for name, values in choices.items() if name not in around}
    loaders = [usual, *({**usual, name: each} for name in knobs for each in knobs[name] if each != usual.get(name))]
    configs = [config.model_copy(update={"loader": type(config.loader).model_validate(each)}) for each in loaders]
    processes = Processes(workers=machine.usable_cores())
    if choices and described.wrapped.with_workers and described.against("loader", processes.kind) is None:
        arguments = {name: usual[name] for name in knobs if name in usual and name not in wrap.KNOBS}
        configs.insert(1, config.model_copy(update={"loader": processes, "arguments": arguments}))
    asked, ends_at = {"min_seconds": seconds, "max_seconds": seconds}, time.monotonic() + _ALONE_SECONDS
    found: list[Measurement] = []
    with _described(workload, Settings(simulate=SimulatedAccelerator(_NO_STEP_SECONDS)), [], told) as (runner, _, _):
        for each in (*configs, config):
            last = each is config
            if not last and time.monotonic() > ends_at:
                continue
            answer = runner.measure(each, {**asked, "lines": last})
            if each == config or not isinstance(answer, TrialFailure):
                found.append(measurer.succeeded(answer))
            else:  # another value than the user's, such as processes for a dataset that does not pickle
                screen.say(f"note      {each.short()}: {wording.failed(answer)}")
    return found


@contextlib.contextmanager
def _described(
    workload: options.WorkloadOptions,
    settings: Settings,
    pairs: list[str],
    told: Callable[[TrialEvent], None] | None = None,
) -> Iterator[tuple[TrialRunner, Description, PipelineConfig]]:
    """Start the process of the trials; yield its runner, the workload and the usual configuration with changes. `told`
    prints warnings, each once.
    """
    from autopipe.cli import option_values
    from autopipe.hardware import machine
    from autopipe.pipeline.config import PipelineConfig
    from autopipe.pipeline.loaders.threads import Threads
    from autopipe.search import searching

    chosen = workload.chosen()
    usual = PipelineConfig(loader=Threads(workers=machine.usable_cores()))
    if pairs:
        option_values.changed(usual, option_values.of_loaders(pairs))  # before a child is started
    with (
        screen.working("importing the workload and its framework"),
        searching.runner_for(chosen.workload, settings, told or screen.warning()) as runner,
    ):
        described = searching.description(runner)
        yield runner, described, option_values.configured(usual, described.wrapped, pairs)


def _show_alone(
    text: str | None, workload: options.WorkloadOptions, settings: Settings, pairs: list[str], *, as_json: bool
) -> None:
    """Show the model alone at some batch sizes; None: at the workload's own."""
    from autopipe.cli import option_values
    from autopipe.measure import batch_sizes
    from autopipe.reports import tables

    asked = None if text is None else option_values.batch_sizes(text, "--batch-sizes")
    with _described(workload, settings, pairs) as (runner, described, config):
        own, devices = described.batch_size, config.devices
        sizes = (own,) if asked is None else asked
        if uneven := [size for size in sizes if size % devices]:
            raise ConfigError(
                f"Each size of `--batch-sizes` must divide equally between {devices} devices, but got {uneven[0]}.",
                hint=f"Use multiples of {devices}.",
            )
        found = batch_sizes.by_batch_size(runner, config.model_setup, own, sizes)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        screen.show(tables.batch_sizes(found))
    if all(row.images_per_second is None for row in found.rows):
        raise typer.Exit(_NOTHING_MEASURED)


def _show_formats(workload: options.WorkloadOptions, *, as_json: bool) -> None:
    from autopipe.artifact import converting
    from autopipe.measure import formats
    from autopipe.reports import tables

    chosen = workload.chosen_samples()
    with screen.aside(), screen.working("encoding"):
        found = formats.formats(converting.imported(chosen.workload))
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        screen.show(tables.formats(found))


def compare(
    workloads: Annotated[
        list[str], typer.Argument(metavar="train.py:workload|autopipe.json ...", help="Workloads, or their artefacts.")
    ],
    seconds: Annotated[float, typer.Option(min=0.5, callback=options.finite, help="Most seconds to measure.")] = 5.0,
    as_json: options.AsJson = False,
) -> None:
    """Show several workloads side by side, and what limits each.

    The figures are images/s of the model alone, of the loader alone, and of both in training. An artefact is fed by its
    own configuration, and any other workload by threads, one for each core.
    """
    import json

    from autopipe.measure.outcome import Measurement
    from autopipe.reports import tables

    rows: list[tables.Beside] = []
    for name in workloads:
        with _tuned(name) if name.endswith(".json") or Path(name).is_dir() else _usual(name) as (runner, config):
            ceiling = runner.ceiling(config.model_setup)
            asked = {"min_seconds": min(seconds, 2.0), "max_seconds": seconds}
            rows.append((name, config, ceiling, runner.measure(config, asked)))
    if as_json:
        keys = ("config", "alone", "in_training")
        shown = {name: [each.model_dump(mode="json") for each in row] for name, *row in rows}
        print(json.dumps({name: dict(zip(keys, row, strict=True)) for name, row in shown.items()}, indent=2))
    else:
        screen.show(tables.comparison(rows))
    if not any(isinstance(measured, Measurement) for *_, measured in rows):
        raise typer.Exit(_NOTHING_MEASURED)


@contextlib.contextmanager
def _usual(name: str) -> Iterator[tuple[TrialRunner, PipelineConfig]]:
    from autopipe.search.settings import Settings

    with _described(options.WorkloadOptions(workload=name), Settings(), []) as (runner, _, config):
        yield runner, config


@contextlib.contextmanager
def _tuned(name: str) -> Iterator[tuple[TrialRunner, PipelineConfig]]:
    from autopipe.artifact import artifact as files
    from autopipe.artifact import pick
    from autopipe.measure import fingerprint
    from autopipe.search import searching, settings

    stored = files.stored(files.located(name))
    choice = pick.pick(stored.artifact, fingerprint.detect(), name=name)
    asked = settings.simulation(choice.profile.request)
    with screen.working(f"measuring {name}"), searching.runner_for(stored.workload, asked, screen.warning()) as runner:
        yield runner, choice.config


def doctor(
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Also look at the images of a folder: how many are progressive JPEG."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what this machine has: cores, memory, GPUs, versions.

    It counts the cores and the memory that this process may use, by affinity and cgroup.
    """
    import dataclasses

    from autopipe import native
    from autopipe.hardware import machine
    from autopipe.reports import tables, wording
    from autopipe.workload.ops import progressive

    found = machine.detect()
    images = None if data is None else progressive.look_in(data)
    if as_json:
        known = {} if images is None else {"data": images.model_dump()}
        print(json.dumps({**dataclasses.asdict(found), **known}, indent=2))
        return
    screen.show(tables.machine(found, machine.opencv_installed(), library=native.facts(), images=images))
    if data is not None and images is not None and (line := wording.rewriting(images, data)) is not None:
        print(f"next              {line}")
