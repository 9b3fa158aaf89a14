"""`autopipe repoint`: for an artefact whose workload was renamed or moved."""

from __future__ import annotations

from typing import Annotated

import typer

from autopipe.cli import options, screen


def repoint(
    artifact: options.Artifact,
    workload: Annotated[
        str,
        typer.Argument(metavar="train.py:workload", help="Where it is now: FILE.py:NAME or package.module:NAME."),
    ],
) -> None:
    """Change the workload that an artefact names.

    The workload is imported, to see that it is there. `tuned_pipeline.py` beside the artefact is written again.
    """
    from autopipe.artifact import repointing

    done = repointing.repoint(artifact, workload)
    screen.say(f"wrote     {' and '.join(map(str, done.written))}")
    for difference in done.differences:
        screen.say(f"note      {difference}")
