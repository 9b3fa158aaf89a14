"""The options of commands that take an artefact and measure its workload again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Artifact = Annotated[Path, typer.Argument(metavar="autopipe.json", help="The artefact.")]
Override = Annotated[
    str | None,
    typer.Option(
        "--workload", metavar="train.py:workload", help="The workload, if not the one that the artefact names."
    ),
]
AllowOutside = Annotated[
    bool,
    typer.Option("--allow-outside", help="Trust the artefact in whatever it names: any file, module and function."),
]

DEFAULT = Path("autopipe.json")
