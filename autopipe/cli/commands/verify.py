"""`autopipe verify`: checks that all loaders give the same batches; with `--files`, that every sample can be used."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from autopipe.cli import options, screen

_COULD_NOT_RUN = 3  # as where nothing can be measured


def verify(
    context: typer.Context,
    workload: options.WorkloadOptions = options.WORKLOAD,
    samples: Annotated[int, typer.Option(min=1, help="How many samples to compare.")] = 256,
    space: Annotated[str, typer.Option(help="The search space whose loaders are compared.")] = "default",
    files: Annotated[
        bool, typer.Option("--files", help="Instead, read and decode every sample, and list those that are damaged.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="With --files: threads; one a core by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run every loader of a search space, and compare their batches.

    With --files, look at every sample of the set instead. A run that was stopped continues if the same command is
    run again.
    """
    from autopipe.artifact import verifying
    from autopipe.pipeline.devices.simulated import SimulatedAccelerator
    from autopipe.reports import agreement
    from autopipe.search import searching
    from autopipe.search.settings import Settings

    if files:
        options.refuse_idle(context, "samples", "space", why="with `--files`, which looks at every sample")
    else:
        options.refuse_idle(context, "workers", why="without `--files`: each loader has its own")
    # A look at files makes no batch, so that a set smaller than the usual one can be looked at, too.
    chosen = (dataclasses.replace(workload, batch_size=1) if files and workload.images else workload).chosen()
    if files:
        _verify_files(chosen, workers, as_json=as_json)
        return
    untrained = Settings(simulate=SimulatedAccelerator(0.001))  # batches are compared: no model is built, nor need be
    with (
        screen.working("comparing"),
        searching.runner_for(chosen.workload, untrained, screen.warning()) as runner,
    ):
        verification = verifying.verify(runner, space=space, samples=samples)
    if as_json:
        print(verification.model_dump_json(indent=2))
    else:
        screen.show(agreement.render(verification))
    if not agreement.agrees(verification):
        raise typer.Exit(1)
    if not all(each.has_run for each in verification.agreements):
        raise typer.Exit(_COULD_NOT_RUN)


def _verify_files(chosen: options.Chosen, workers: int | None, *, as_json: bool) -> None:
    from autopipe.artifact import verifying
    from autopipe.reports import agreement

    with screen.aside(), screen.bar("looking", unit="samples") as on_progress:
        found = verifying.verify_files(chosen.workload, workers=workers, on_progress=on_progress)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        for line in agreement.file_lines(found):
            print(line)
    if found.bad:
        raise typer.Exit(1)
