"""`autopipe diagnose`: the bottleneck of any training script."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli import options, screen

GROUP = "Look closer"
CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": False}
"""All arguments after the script belong to the script."""


def diagnose(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(metavar="train.py", help="Your training script, as it is.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="What the script takes.")] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, callback=options.finite, help="How much training to look at.")
    ] = 10.0,
    steps: Annotated[int | None, typer.Option(min=1, help="How many steps to look at, instead of --seconds.")] = None,
    callbacks: Annotated[
        bool, typer.Option("--callbacks", help="Run the script's callbacks that may write files, too.")
    ] = False,
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="Let the script go on to its end, and look at every fit.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON, one object a fit; what the script prints goes to stderr."),
    ] = False,
) -> None:
    """Run a training script and tell whether it waits for data.

    How much there is to gain is told, too.

    Options come before the script; what comes after it is the script's own. Once enough was seen the script is ended,
    before it could save anything.
    """
    from autopipe.extensions.diagnose import report, run

    if steps is not None:
        options.refuse_idle(context, "seconds", why="with `--steps`, which says how much to look at")
    if keep_running:
        options.refuse_idle(context, "callbacks", why="with `--keep-running`, which runs all callbacks")
    request = run.Request(
        script=script,
        arguments=tuple(arguments or ()),
        seconds=seconds,
        steps=steps,
        callbacks=callbacks,
        keep_running=keep_running,
        quiet=as_json,
    )
    seen, status = run.diagnose(request)
    for watched in seen:
        if as_json:
            print(watched.model_dump_json())
            continue
        print()
        screen.show(report.render(watched))
        if (code := report.to_paste(watched)) is not None:
            print(f"\n{code}", end="")
    if keep_running and status:
        raise typer.Exit(status if status > 0 else 128 - status)
