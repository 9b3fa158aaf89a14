"""`autopipe measure` measures one configuration; `autopipe doctor` shows this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli import options, screen
from autopipe.errors import ConfigError
from autopipe.workload.mode import Mode


def measure(
    context: typer.Context,
    workload: options.WorkloadOptions = options.WORKLOAD,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting: loader.workers=4, keep=memory, wrapped.prefetch=2."
        ),
    ] = None,
    simulate_step: options.SimulateStep = None,
    virtual_devices: options.VirtualDevices = 0,
    mode: Annotated[
        Mode | None, typer.Option(help="Instead, measure the model's own step in this mode, without a loader.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="ARTIFACT", help="Keep the result of --mode in this artefact; its report then shows it."),
    ] = None,
    page_cache: Annotated[
        options.PageCache, typer.Option(help="Whether the trial reads files from memory or from disk.")
    ] = "auto",
    seconds: Annotated[float, typer.Option(min=0.5, callback=options.finite, help="Most seconds to measure.")] = 5.0,
    trace: options.Trace = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurement as JSON, windows included.")] = False,
) -> None:
    """Measure one configuration of a workload, on its model."""
    from autopipe.artifact import artifact as files
    from autopipe.artifact import codegen
    from autopipe.cli import option_values, output
    from autopipe.hardware import machine
    from autopipe.pipeline.batching.traced import Tracing
    from autopipe.pipeline.config import PipelineConfig
    from autopipe.pipeline.loaders.threads import Threads
    from autopipe.reports import tables
    from autopipe.search import measurer, searching
    from autopipe.search.settings import Settings

    if keep is not None and mode is None:
        raise ConfigError(
            "`--keep` keeps the result of `--mode`.", hint="For example: --mode predict --keep autopipe.json"
        )
    if mode is not None:
        options.refuse_idle(context, "trace", "page_cache", why="with `--mode`, for which no loader runs")
    if keep is not None:
        files.read(keep)  # before anything is measured
    chosen = workload.chosen()
    usual = PipelineConfig(loader=Threads(workers=machine.usable_cores()))
    if setting:
        option_values.changed(usual, option_values.of_loaders(setting))  # before a child is started
    settings = Settings(simulate=options.simulated(simulate_step), virtual_devices=virtual_devices)
    with (
        Tracing(trace) as tracing,
        screen.working("importing the workload and its framework"),
        searching.runner_for(chosen.workload, settings, screen.warning()) as runner,
    ):
        described = searching.description(runner)
        config = option_values.configured(usual, described.wrapped, setting or [])
        if mode is not None:
            found = measurer.succeeded(runner.step_time(mode, config.model_setup, {"seconds": seconds}))
            print(found.model_dump_json(indent=2) if as_json else "\n".join(tables.step_time(found)))
            if keep is not None and (report := output.write_report(keep, codegen.step_time(keep, found, described))):
                screen.say(f"report      {report}")
            return
        ceiling = measurer.succeeded(runner.ceiling(config.model_setup, {"page_cache": page_cache}))
        ceiling = ceiling.model_copy(update={"depths": described.depths})
        asked = {"min_seconds": min(seconds, 2.0), "max_seconds": seconds, "page_cache": page_cache}
        measurement = measurer.succeeded(runner.measure(config, {**asked, **tracing.options(config)}))
    if as_json:
        print(measurement.model_dump_json(indent=2))
    else:
        screen.show(tables.measurement(measurement, config, ceiling, settings.simulate))


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
    import json

    from autopipe.hardware import machine
    from autopipe.reports import tables, wording
    from autopipe.workload.ops import progressive, region

    found = machine.detect()
    images = None if data is None else progressive.look_in(data)
    if as_json:
        known = {} if images is None else {"data": images.model_dump()}
        print(json.dumps({**dataclasses.asdict(found), **known}, indent=2))
        return
    screen.show(tables.machine(found, machine.opencv_installed(), why_whole=region.why_whole(), images=images))
    if data is not None and images is not None and (line := wording.rewriting(images, data)) is not None:
        print(f"next              {line}")
