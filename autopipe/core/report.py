"""How whoever measures says what it is doing, to whoever asked; and what may be asked for.

`Options` are a parcel to everybody but the one who measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

import pydantic

from autopipe.core.outcome import Phase

Options: TypeAlias = Mapping[str, pydantic.JsonValue]


class Report(Protocol):
    """Takes news of a measurement."""

    def phase(self, phase: Phase) -> None:
        """A phase begins."""

    def progress(self, images: int, images_per_second: float) -> None:
        """A window ended."""

    def log(self, text: str) -> None:
        """Something worth telling."""
