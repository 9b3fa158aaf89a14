"""The options of commands that take an artefact and measure its workload again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # imported by commands' modules, and so before `--help` answers
    from autopipe.api.stored_workload import Stored

Artifact = Annotated[Path, typer.Argument(metavar="autopipe.json", help="The artefact.")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArtifactOptions:
    """An artefact and its workload, as they are written on a command line."""

    artifact: Artifact = Path("autopipe.json")
    workload: Annotated[
        str | None,
        typer.Option(metavar="train.py:workload", help="The workload, if not the one that the artefact names."),
    ] = None
    allow_outside: Annotated[
        bool,
        typer.Option("--allow-outside", help="Trust the artefact in whatever it names: any file, module and function."),
    ] = False

    @property
    def arguments(self) -> list[str]:
        """What names them on another command line."""
        named = [] if self.workload is None else ["--workload", self.workload]
        return [str(self.artifact), *named, *(["--allow-outside"] if self.allow_outside else [])]

    def read(self) -> Stored:
        """Return the artefact with its workload.

        Raises:
            ArtifactError: the file is no artefact, or its workload is not where it says or not where it may be.
        """
        from autopipe.api import stored_workload

        return stored_workload.read(self.artifact, workload=self.workload, allow_outside=self.allow_outside)


USUAL = ArtifactOptions()
