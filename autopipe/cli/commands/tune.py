"""`autopipe tune`: search for the fastest pipeline and write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli import search_options as options
from autopipe.cli import workload_options
from autopipe.errors import ArtifactError


def tune(
    workload: workload_options.Reference = None,
    images: workload_options.Images = None,
    model: workload_options.Model = "mobilenet_v2",
    image_size: workload_options.ImageSize = 224,
    batch_size: workload_options.BatchSize = 32,
    space: options.Space = "default",
    trials: options.Trials = 30,
    budget: options.Budget = "2m",
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("tuned"),
    storage: Annotated[str | None, typer.Option(help="An Optuna storage URL instead of OUT/study.db.")] = None,
    seed: options.Seed = 0,
    setting: options.Setting = None,
    only: options.Only = None,
    max_memory: options.MaxMemory = None,
    max_workers: options.MaxWorkers = None,
    max_cpu: options.MaxCpu = None,
    convert: options.Convert = None,
    epochs: options.Epochs = None,
    simulate_step: workload_options.SimulateStep = None,
    page_cache: options.FilesAre = options.PageCache.AUTO,
    isolation: options.KeptApart = options.Isolation.WARM,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin a new study instead of going on with the one in OUT.")
    ] = False,
    as_json: options.AsJson = False,
    verbose: options.Verbose = False,
) -> None:
    """Search for the fastest way to feed a model on this machine, and write it as code to import."""
    from rich.console import Console

    from autopipe.api import searching, tuning
    from autopipe.cli import option_values
    from autopipe.cli.output import folder_of, reserved, say_where, writable_folder, write_outputs
    from autopipe.cli.progress import Progress
    from autopipe.report import document, text
    from autopipe.report.summary import summary_of

    chosen = workload_options.choose(workload, images, model, image_size, batch_size)
    folder = writable_folder(out)
    database = (folder / "study.db").absolute()
    plan = searching.Plan(
        space=space,
        storage=storage or f"sqlite:///{database}",
        trials=trials,
        budget_seconds=option_values.seconds(budget, "--budget"),
        seed=seed,
        limits=options.limits(setting, only, max_memory, max_workers, max_cpu),
        convert=convert,
        epochs=epochs,
        page_cache=page_cache.value,
        isolation=isolation.value,
        fresh=fresh,
        simulate=None if simulate_step is None else option_values.accelerator(simulate_step, "--simulate-step"),
    )
    console = Console(stderr=True)
    with Progress(console, verbose=verbose, budget_seconds=plan.budget_seconds) as progress, reserved(folder):
        result, tuned = tuning.run(chosen.workload, plan, progress.watcher, named=chosen.named, folder=folder)
    summary, written, unwritten = summary_of(result, plan.simulate), None, None
    try:
        written = None if tuned is None else write_outputs(tuned, [folder, *folder_of(storage)])
    except ArtifactError as error:  # told when the figures have been shown: they are all that is left
        unwritten = error
    if as_json:
        print(json.dumps(document.document(summary, None if written is None else str(written.artifact)), indent=2))
    elif tuned is not None:
        Console().print(text.render(summary), soft_wrap=True)
    if unwritten is not None:
        raise unwritten
    if tuned is None or written is None:
        raise searching.nothing_measured(result)
    say_where(console, written, storage or str(folder / "study.db"), tuned.config, chosen.arguments)
    if result.interrupted:
        raise typer.Exit(130)
