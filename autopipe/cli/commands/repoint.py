"""`autopipe repoint`: an artefact whose workload was renamed or moved."""

from __future__ import annotations

from typing import Annotated

import typer

from autopipe.cli import artifact_options


def repoint(
    artifact: artifact_options.Artifact,
    workload: Annotated[
        str,
        typer.Argument(metavar="train.py:workload", help="Where it is now: FILE.py:NAME or package.module:NAME."),
    ],
) -> None:
    """Let an artefact name its workload where it is now.

    The workload is imported, to see that it is there. `tuned_pipeline.py` beside the artefact is written again.
    """
    from autopipe.api import repointing
    from autopipe.reports.terminal import Console

    done = repointing.repoint(artifact, workload)
    console = Console(stderr=True)
    console.print(f"wrote     {' and '.join(map(str, done.written))}", highlight=False, soft_wrap=True, markup=False)
    for difference in done.differences:
        console.print(f"note      {difference}", highlight=False, soft_wrap=True, markup=False)
