"""`autopipe show`: what an artefact holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def show(
    artifact: Annotated[Path, typer.Argument(help="The artefact.")] = Path("autopipe.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the profiles in an artefact, and which one this machine would use."""
    from rich.console import Console

    from autopipe.reports import profiles as report
    from autopipe.tuned import artifact as files
    from autopipe.tuned import fingerprint, pick

    content = files.read(artifact)
    if as_json:
        print(content.model_dump_json(indent=2))
    else:
        Console().print(
            report.render(content, pick.pick(content, fingerprint.detect(), name=str(artifact))), soft_wrap=True
        )
