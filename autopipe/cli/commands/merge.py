"""`autopipe merge`: the profiles of several machines in one artefact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli import screen


def merge(
    artifacts: Annotated[list[Path], typer.Argument(metavar="A.json B.json ...", help="Artefacts of one workload.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The artefact to write.")],
) -> None:
    """Join the artefacts of several machines into one.

    Of one machine's profiles the latest stays. The workload is the one that the first artefact names.
    """
    from autopipe.artifact import artifact
    from autopipe.reports import wording

    merged = artifact.merge(artifacts, out)
    screen.say(f"wrote     {out}, with {wording.count(len(merged.profiles), 'profile')}")
