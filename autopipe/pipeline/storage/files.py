"""`files`: samples stay in the source, and nothing is written."""

from __future__ import annotations

from typing import ClassVar

from autopipe.pipeline.config import STORAGES


class Files:
    """The source as it is."""

    name: ClassVar[str] = "files"
    converts: ClassVar[bool] = False
    holds_arrays: ClassVar[bool] = False


STORAGES.register(Files.name, Files())
