"""`--trace FILE`: writes a timeline of every worker, the loader and the training, as a file for Perfetto."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from pathlib import Path
from types import TracebackType
from typing import Self

from autopipe.errors import ConfigError
from autopipe.hardware import disk
from autopipe.pipeline.batching import traced
from autopipe.pipeline.config import PipelineConfig

_MOST_OF_A_TRIAL = 6000  # events, if there are many trials


class TraceWarning(UserWarning):
    """A trace could not be written; the measurement is not affected."""


class Tracing:
    """Gives each trial a folder for its notes, and makes one trace of them at the end.

    Without a file, no trial takes notes. A trace that cannot be written only warns: the measurement is worth more. A
    failure before the first trial leaves an older trace as it is.
    """

    def __init__(self, file: Path | None) -> None:
        """Write to `file`; raises ConfigError if it cannot be written, or there is no room for notes."""
        if file is not None and (file.is_dir() or not os.access(file.parent, os.W_OK)):
            raise ConfigError(
                f"`--trace` must name a file in a folder that can be written to, but got {str(file)!r}.",
                hint=f"For example: --trace {tempfile.gettempdir()}/trace.json",
            )
        self._file = file
        try:
            self._folder = None if file is None else tempfile.TemporaryDirectory(prefix="autopipe-trace-")
        except OSError as error:
            raise ConfigError(
                f"`--trace` needs a temporary folder for its notes, but there can be none: {error}",
                hint="Make room, or name a folder that has room in the environment variable TMPDIR.",
            ) from error
        self._names: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        if self._folder is None:
            return
        with self._folder as folder:
            try:
                if kind is None or self._names:
                    self._write(Path(folder))
            except OSError as refusal:
                said = f"The trace cannot be written to `{self._file}`: {refusal.strerror}."
                warnings.warn(said, TraceWarning, stacklevel=2)

    def options(self, config: PipelineConfig) -> dict[str, str]:
        if self._folder is None:
            return {}
        folder = Path(self._folder.name) / str(len(self._names))
        try:
            folder.mkdir()
        except OSError:  # there is no room any more
            return {}
        self._names.append(config.short())
        return {"trace": str(folder)}

    def _write(self, folder: Path) -> None:
        assert self._file is not None
        notes = {}
        for number, name in enumerate(self._names):
            texts = [path.read_text() for path in sorted((folder / str(number)).iterdir())]
            notes[f"trial {number}: {name}"] = traced.read("".join(texts).splitlines())
        many = len(self._names) > 1
        with disk.replacing(self._file) as stream:
            stream.write(json.dumps(traced.merged(notes, _MOST_OF_A_TRIAL if many else None)).encode())
