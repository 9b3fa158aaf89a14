"""What `ap.check` and the like return: figures that show themselves as a command prints them."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
from pathlib import Path
from typing import Generic, TypeVar

import pydantic_core
from rich.console import Console, RenderableType

from autopipe.artifact import artifact as files

Figures = TypeVar("Figures")
_FORMAT = '<pre style="line-height:1.3">{code}</pre>'


@dataclasses.dataclass(frozen=True, repr=False)
class Answer(Generic[Figures]):
    """The answer to a question: text in a terminal, HTML in a notebook, and figures for a program.

    Attributes:
        figures: the values, such as a pydantic model.
        shown: the same as the command of this name prints it.
    """

    figures: Figures
    shown: RenderableType

    def json(self) -> str:
        """Return the figures as the command prints them with `--json`."""
        return json.dumps(pydantic_core.to_jsonable_python(self.figures), indent=2)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the text to a file, and return its path. Raises ArtifactError if it cannot be written."""
        return files.replace_text(path, f"{self}\n", usual="answer.txt")

    def __repr__(self) -> str:
        shown = self._printed(shutil.get_terminal_size((100, 24)).columns).export_text()
        return "\n".join(line.rstrip() for line in shown.splitlines())

    def _repr_html_(self) -> str:
        return self._printed(120).export_html(inline_styles=True, code_format=_FORMAT)

    def _printed(self, width: int) -> Console:
        # In a notebook, Rich would show what is printed here as well.
        console = Console(file=io.StringIO(), width=width, markup=False, emoji=False, record=True, force_jupyter=False)
        console.print(self.shown, soft_wrap=True, highlight=False)
        return console
