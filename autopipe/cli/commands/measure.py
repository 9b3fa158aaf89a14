"""`autopipe measure`: one configuration, one measurement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli import options, screen
from autopipe.cli.options import PageCache
from autopipe.workload.mode import Mode

if TYPE_CHECKING:  # imported before `--help` answers
    from autopipe.measure.facts import Description
    from autopipe.measure.outcome import StepTime


def measure(
    context: typer.Context,
    workload: options.WorkloadOptions = options.WORKLOAD,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting: loader.workers=4, cache=memory, wrapped.prefetch=2."
        ),
    ] = None,
    simulate_step: options.SimulateStep = None,
    virtual_devices: options.VirtualDevices = 0,
    mode: Annotated[
        Mode | None,
        typer.Option(help="Instead, the model's own time of such a step, on a batch that is there; no loader runs."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="ARTIFACT", help="Keep what --mode found in this artefact, whose report then shows it."),
    ] = None,
    page_cache: Annotated[
        PageCache, typer.Option(help="Whether the trial reads files from memory or from disk.")
    ] = "auto",
    seconds: Annotated[float, typer.Option(min=0.5, callback=options.finite, help="Most seconds to measure.")] = 5.0,
    trace: options.Trace = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurement as JSON, windows included.")] = False,
) -> None:
    """Measure one configuration of a workload, on its model."""
    from autopipe.artifact import artifact as files
    from autopipe.artifact.tracing import Tracing
    from autopipe.cli import option_values
    from autopipe.errors import ConfigError
    from autopipe.hardware import machine
    from autopipe.pipeline.config import PipelineConfig
    from autopipe.pipeline.loaders.threads import Threads
    from autopipe.reports import tables
    from autopipe.search import searching
    from autopipe.search.settings import Settings
    from autopipe.search.trial_measurer import succeeded

    if keep is not None and mode is None:
        raise ConfigError(
            "`--keep` keeps what `--mode` finds.", hint="For example: --mode predict --keep autopipe.json"
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
            found = succeeded(runner.step_time(mode, config.model_setup, {"seconds": seconds}))
            _print_step(found, described, keep, as_json=as_json)
            return
        ceiling = succeeded(runner.ceiling(config.model_setup, {"page_cache": page_cache}))
        ceiling = ceiling.model_copy(update={"depths": described.depths})
        asked = {"min_seconds": min(seconds, 2.0), "max_seconds": seconds, "page_cache": page_cache}
        outcome = runner.measure(config, {**asked, **tracing.options(config)})
    measurement = succeeded(outcome)
    if as_json:
        print(measurement.model_dump_json(indent=2))
    else:
        screen.show(tables.measurement(measurement, config, ceiling, settings.simulate))


def _print_step(found: StepTime, described: Description, keep: Path | None, *, as_json: bool) -> None:
    from autopipe.artifact import codegen
    from autopipe.cli.output import write_report
    from autopipe.reports import tables

    print(found.model_dump_json(indent=2) if as_json else "\n".join(tables.step_time(found)))
    report = None if keep is None else write_report(keep, codegen.step_time(keep, found, described))
    if report is not None:
        screen.say(f"report      {report}")
