"""`autopipe fleet`: what is tuned on which machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli import options

GROUP = "Data and files"


def fleet(
    place: Annotated[str, typer.Argument(metavar="DIR|STORAGE", help="A folder with artefacts, or a storage URL.")],
    as_json: options.AsJson = False,
) -> None:
    """Show what is tuned on which machines.

    For each workload on each machine: the winner, its gain and age, whether it fits here, and the rate of similar
    machines.
    """
    import datetime

    from autopipe.extensions.fleet import members
    from autopipe.reports.terminal import Console

    now = datetime.datetime.now(datetime.UTC)
    found = members.of_storage(place, now) if "://" in place else members.of_folder(Path(place), now)
    if as_json:
        print(json.dumps([each.model_dump() for each in found], indent=2))
    else:
        console = Console()
        console.print(members.render(found, width=console.width))
