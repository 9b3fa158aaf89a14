"""`autopipe tune`: search for the fastest pipeline and write it."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli import source
from autopipe.errors import ArtifactError


class PageCache(StrEnum):
    """The state of the files before a trial."""

    WARM = "warm"
    COLD = "cold"
    AUTO = "auto"


class Isolation(StrEnum):
    """How trials are kept apart."""

    WARM = "warm"
    PROCESS = "process"


def tune(
    workload: source.Reference = None,
    images: source.Images = None,
    model: source.Model = "mobilenet_v2",
    image_size: source.ImageSize = 224,
    batch_size: source.BatchSize = 32,
    space: Annotated[
        str, typer.Option(help="A shipped search space (default, quick, exhaustive, multi_gpu) or a file.")
    ] = "default",
    trials: Annotated[int, typer.Option(min=1, help="At most so many trials, without the proof.")] = 30,
    budget: Annotated[str, typer.Option(help="At most this long, the proof included: 90s, 3m, 1h.")] = "2m",
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("tuned"),
    storage: Annotated[str | None, typer.Option(help="An Optuna storage URL instead of OUT/study.db.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything random in the search.")] = 0,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Hold a parameter to a value.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="KEY=A,B", help="Try these values of a parameter only.")
    ] = None,
    max_memory: Annotated[str | None, typer.Option(help="Memory that the training may take: 8G.")] = None,
    max_workers: Annotated[int | None, typer.Option(min=1, help="Workers that the loader may have.")] = None,
    max_cpu: Annotated[
        float | None, typer.Option(min=1, help="CPU that the training may use; 100 is one core.")
    ] = None,
    convert: Annotated[
        bool | None,
        typer.Option(
            "--convert/--no-convert",
            help="Try other storage forms; by default with known --epochs only, by which they pay.",
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Charge one-time costs over so many epochs.")] = None,
    simulate_step: source.SimulateStep = None,
    page_cache: Annotated[
        PageCache, typer.Option(help="Whether trials read files from memory or from disk.")
    ] = PageCache.AUTO,
    isolation: Annotated[
        Isolation, typer.Option(help="One process for many trials, or a fresh one for each.")
    ] = Isolation.WARM,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin a new study instead of going on with the one in OUT.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every trial.")] = False,
) -> None:
    """Search for the fastest way to feed a model on this machine, and write it as code to import."""
    from rich.console import Console

    from autopipe.api import searching, tuning
    from autopipe.cli import settings
    from autopipe.cli.output import folder_of, reserved, say_where, writable_folder, write_outputs
    from autopipe.cli.progress import Progress
    from autopipe.core.facts import Limits
    from autopipe.report import document, text
    from autopipe.report.summary import summary_of

    chosen = source.choose(workload, images, model, image_size, batch_size)
    folder = writable_folder(out)
    database = (folder / "study.db").absolute()
    plan = searching.Plan(
        space=space,
        storage=storage or f"sqlite:///{database}",
        trials=trials,
        budget_seconds=settings.seconds(budget, "--budget"),
        seed=seed,
        limits=Limits(
            memory_bytes=None if max_memory is None else settings.size(max_memory, "--max-memory"),
            workers=max_workers,
            cpu_percent=max_cpu,
            only=settings.allowed([*(setting or []), *(only or [])]),
        ),
        convert=convert,
        epochs=epochs,
        page_cache=page_cache.value,
        isolation=isolation.value,
        fresh=fresh,
        simulate=None if simulate_step is None else settings.accelerator(simulate_step, "--simulate-step"),
    )
    console = Console(stderr=True)
    with Progress(console, verbose=verbose, budget_seconds=plan.budget_seconds) as progress, reserved(folder):
        result, tuned = tuning.run(chosen.workload, plan, progress.watcher, named=chosen.named, folder=folder)
    summary, written, unwritten = summary_of(result), None, None
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
