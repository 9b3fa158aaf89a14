"""`autopipe tune`: searches for the fastest pipeline and writes it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from autopipe import again
from autopipe.cli import options, screen
from autopipe.errors import ArtifactError


def tune(
    context: typer.Context,
    workload: options.WorkloadOptions = options.WORKLOAD,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("tuned"),
    search: options.SearchOptions = options.SEARCH,
    join: Annotated[
        bool,
        typer.Option("--join", help="Share the study in --storage, and its trials, with other machines like this one."),
    ] = False,
    trace: options.Trace = None,
    as_json: options.AsJson = False,
    verbose: options.Verbose = False,
) -> None:
    """Search for the fastest way to feed a model on this machine.

    It is written as code to import.
    """
    from autopipe.api import tuning
    from autopipe.artifact.tracing import Tracing
    from autopipe.cli.output import folder_of, reserved, say_where, write_outputs
    from autopipe.cli.progress import Progress
    from autopipe.reports import text
    from autopipe.reports.terminal import Console
    from autopipe.search.storage import without_password
    from autopipe.search.trial_measurer import nothing_measured

    chosen = workload.chosen()
    settings = dataclasses.replace(search.settings(out / "study.db", context), command=again.this(), join=join)
    if join and search.storage is None:
        settings = dataclasses.replace(settings, storage=None)  # and not the file beside the artefact
    with screen.saying_how_to_go_on():
        with (
            Progress(Console(stderr=True), verbose=verbose, budget_seconds=settings.budget_seconds) as progress,
            reserved(out),
            Tracing(trace) as tracing,
        ):
            settings = dataclasses.replace(settings, options=tracing.options)
            result, tuned = tuning.run(chosen.workload, settings, progress.watcher, named=chosen.named, folder=out)
        written, unwritten = None, None
        try:
            written = None if tuned is None else write_outputs(tuned, [out, *folder_of(search.storage)])
        except ArtifactError as error:  # told when the figures have been shown: they are all that is left
            unwritten = error
        if as_json:
            print(json.dumps(text.document(result, None if written is None else str(written.artifact)), indent=2))
        elif tuned is not None:
            screen.show(text.render(result))
        if unwritten is not None:
            raise unwritten
        if tuned is None or written is None:
            raise nothing_measured(result)
        study = without_password(search.storage) if search.storage else str(out / "study.db")
        say_where(written, study, tuned, chosen.arguments)
        if result.interrupted:
            raise KeyboardInterrupt
