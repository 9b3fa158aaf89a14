"""`autopipe diagnose`: the bottleneck of any training script, which runs unchanged in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

GROUP = "Look closer"
CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": False}
"""All arguments after the script belong to the script."""


def diagnose(
    script: Annotated[Path, Argument(metavar="train.py", help="Your training script, as it is.")],
    arguments: Annotated[list[str] | None, Argument(help="What the script takes.")] = None,
    time: Annotated[str, Option(metavar="10s", help="How much training to look at.")] = "10s",
    steps: Annotated[
        int | None, Option(metavar="N", min=1, help="How many steps to look at, instead of --time.")
    ] = None,
    callbacks: Annotated[
        bool, Option("--callbacks", help="Run the script's callbacks that may write files, too.")
    ] = False,
    keep_running: Annotated[
        bool, Option("--keep-running", help="Let the script go on to its end, and look at every fit.")
    ] = False,
    module: Annotated[bool, Option("-m", help="The script is a module, as after python -m.")] = False,
    as_json: Annotated[
        bool, Option("--json", help="Print JSON, one object a fit; what the script prints goes to stderr.")
    ] = False,
) -> None:
    """Run a training script and tell whether it waits for data.

    It also prints how much there is to gain.

    Options come before the script; what comes after it is the script's own. Once enough was seen the script is ended,
    before it could save anything.
    """
    del module  # which is told by its name
    from autopipe.extensions.diagnose import script as scripts
    from autopipe.extensions.diagnose import watched

    found, status = scripts.run(
        script, arguments or (), time=time, steps=steps, callbacks=callbacks, keep_running=keep_running, quiet=as_json
    )
    for each in found:
        if as_json:
            print(each.model_dump_json())
        else:
            watched.show(each)
    if keep_running and status:
        raise typer.Exit(status if status > 0 else 128 - status)
