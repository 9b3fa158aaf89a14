"""A report of a measurement, kept; and what is printed for people, as text."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest
from rich.console import Console, RenderableType

from autopipe.errors import AutopipeError
from autopipe.measure.outcome import Phase

Approved: TypeAlias = Callable[[Mapping[str, str]], None]  # the fixture `approved`


def printed(shown: RenderableType, width: int = 100) -> str:
    written = io.StringIO()
    Console(file=written, width=width).print(shown)
    return written.getvalue()


def refusal(call: Callable[[], object]) -> str:
    """Return the kind and the words of the error that a call ends with; the working directory is HERE."""
    with pytest.raises(AutopipeError) as raised:
        call()
    return f"{type(raised.value).__name__}: {raised.value}".replace(str(Path.cwd()), "HERE")


class Told:
    """Keeps what it is told. The model alone trains before a loader opens: the images of that are forgotten."""

    def __init__(self) -> None:
        self.phases, self.images, self.logs = list[Phase](), list[int](), list[str]()

    def phase(self, phase: Phase) -> None:
        self.phases.append(phase)
        if phase is Phase.OPEN:
            self.images.clear()

    def progress(self, images: int, images_per_second: float) -> None:
        self.images.append(images)

    def log(self, text: str) -> None:
        self.logs.append(text)
