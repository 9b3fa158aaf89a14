"""`autopipe show`: shows the profiles in an artefact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli import options, screen


def show(
    artifact: options.Artifact = Path("autopipe.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the profiles in an artefact, and the one for this machine."""
    import datetime

    from autopipe.artifact import artifact as files
    from autopipe.artifact import pick
    from autopipe.errors import ArtifactError
    from autopipe.measure import fingerprint
    from autopipe.reports import tables

    content = files.read(artifact)
    if as_json:
        print(content.model_dump_json(indent=2))
    else:
        here = fingerprint.detect()
        try:
            choice = pick.pick(content, here, name=str(artifact))
            used, note = choice.profile, choice.warning
        except ArtifactError as error:  # its loader is of a package that is missing: what is known is told all the same
            used, note = None, str(error)
        screen.show(tables.profiles(content, used, note, here=here, now=datetime.datetime.now(datetime.UTC)))
