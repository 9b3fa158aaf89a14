"""`--trace FILE`: what every worker, the loader and the training did when, as a file for Perfetto."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Self

from autopipe.core import trace
from autopipe.core.config import PipelineConfig
from autopipe.errors import ConfigError
from autopipe.hardware import atomic

_MOST_OF_A_TRIAL = 6000  # events, where there are many trials


class Tracing:
    """Gives each trial a folder to take notes in, and makes one trace of them in the end.

    Where no file is wanted, no trial is told to take notes.
    """

    def __init__(self, file: Path | None) -> None:
        """Write to `file`.

        Raises:
            ConfigError: it cannot be written.
        """
        if file is not None and (file.is_dir() or not os.access(file.parent, os.W_OK)):
            raise ConfigError(
                f"`--trace` must name a file in a folder that can be written to, but got {str(file)!r}.",
                hint="For example: --trace trace.json",
            )
        self._file = file
        self._folder = None if file is None else tempfile.TemporaryDirectory(prefix="autopipe-trace-")
        self._names: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        if self._folder is not None:
            try:
                self._write(Path(self._folder.name))
            finally:
                self._folder.cleanup()

    def options(self, config: PipelineConfig) -> dict[str, str]:
        """Return what the next trial is asked for beyond the usual."""
        if self._folder is None:
            return {}
        folder = Path(self._folder.name) / str(len(self._names))
        folder.mkdir()
        self._names.append(config.short())
        return {"trace": str(folder)}

    def _write(self, folder: Path) -> None:
        assert self._file is not None
        notes = {}
        for number, name in enumerate(self._names):
            texts = [path.read_text() for path in sorted((folder / str(number)).iterdir())]
            notes[f"trial {number}: {name}"] = trace.read("".join(texts).splitlines())
        many = len(self._names) > 1
        with atomic.replacing(self._file) as stream:
            stream.write(json.dumps(trace.merged(notes, _MOST_OF_A_TRIAL if many else None)).encode())
