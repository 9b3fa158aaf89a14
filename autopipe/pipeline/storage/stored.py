"""Opens a kept set as a source, finds the one that fits a workload, and compares one with what it was made from.

It writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import BadSampleError, StorageError
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.conversion import Conversion
from autopipe.pipeline.storage.form import Storage
from autopipe.pipeline.storage.manifest import HEADER_NAME, MANIFEST_NAME, Manifest, seal_of
from autopipe.pipeline.storage.place import Place, RemotePath, subfolders
from autopipe.workload.data.paths import spread
from autopipe.workload.ops.planner import normalise
from autopipe.workload.sample import Batch, Part, Sample


class StoredSource:
    """A kept set as a source: its samples have the first ops behind them. It pickles; files are opened when read."""

    def __init__(self, folder: Place, manifest: Manifest) -> None:
        header = manifest.header
        storage: Storage = STORAGES[header.storage]
        self.folder = folder if isinstance(folder, RemotePath) else folder.absolute()
        # The kind of URL that it is behind, such as "s3"; None on a disk.
        self.remote = folder.scheme if isinstance(folder, RemotePath) else None
        self.manifest = manifest
        self._spec = header.spec
        kinds = self._spec.packed([None if field is None else field.kind for field in self._spec.columns])
        self.x_kind, self.y_kind = kinds[0], kinds[1] if len(kinds) > 1 else None
        self._count = header.samples
        self._bad = manifest.bad
        counts = [len(header.positions(number)) for number in range(header.shard_count)]
        self._reader = storage.open(self.folder, self._spec, counts)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"StoredSource({str(self.folder)!r}: {self._count} samples as {self.manifest.header.storage})"

    def read(self, index: int) -> tuple[Any, ...]:
        """Return a sample as it was kept, built as the data's own are.

        Raises:
            BadSampleError: it could not be read when the set was made.
        """
        if index in self._bad:
            raise BadSampleError(self._bad[index])
        return self._spec.packed(self._reader.read(index))

    @property
    def read_many(self) -> Callable[[NDArray[np.integer], Batch], None] | None:
        """Fills whole batches, as told at `Source`; None where the form cannot."""
        return self._read_many if hasattr(self._reader, "read_many") else None

    def _read_many(self, indices: NDArray[np.integer], out: Batch) -> None:
        if self._bad and not self._bad.keys().isdisjoint(indices.tolist()):
            raise BadSampleError("A sample of the batch could not be read when the set was made.")
        self._reader.read_many(indices, out)  # type: ignore[attr-defined]  # it was asked for

    def name(self, index: int) -> str:
        """Return the number of a sample and its set."""
        return f"sample {index} of {self.folder}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the files that hold some samples, or all files; none where they are on no disk."""
        if isinstance(self.folder, RemotePath):
            return []
        shards = self.manifest.shards
        per_shard = self.manifest.header.samples_per_shard
        chosen = range(len(shards)) if indices is None else sorted({index // per_shard for index in indices})
        return [os.fspath(self.folder / file.name) for number in chosen for file in shards[number].files]

    def mean_bytes(self) -> float:
        """Return the mean size of a kept sample."""
        return self.manifest.bytes / self._count

    def digest(self) -> str:
        """Return what identifies the set."""
        return f"set={seal_of(self.manifest)}"


def open_set(where: Path | str | RemotePath, conversion: Conversion, storage: Storage) -> StoredSource:
    """Return the set in a folder, or behind a URL, as a source, if it is what `conversion` gives.

    Raises:
        ConfigError: it is behind a URL, and the form's files must lie on a disk.
        StorageError: there is no whole set, it was edited, or it is of other data or ops.
    """
    folder = storage.at(where)
    manifest = layout.whole_manifest(folder)
    layout.require_same(manifest.header, conversion, storage.name, folder)
    return StoredSource(folder, manifest)


def find(where: Path | str | RemotePath, conversion: Conversion, storage: Storage) -> StoredSource:
    """Return the set that `conversion` gives, from a folder or URL or a folder in it.

    Raises:
        ConfigError: it is behind a URL, and the form's files must lie on a disk.
        StorageError: there is none; those that come near are named, with what differs.
    """
    root = storage.at(where)
    reasons = []
    for folder in subfolders(root):
        if (folder / MANIFEST_NAME).exists() or (folder / HEADER_NAME).exists():
            try:
                return open_set(folder, conversion, storage)
            except StorageError as error:
                reasons.append(error.message)
    what = f'the {len(conversion)} samples after {conversion.cut} ops as storage="{storage.name}"'
    raise StorageError(f"`{root}` has no set of {what}.{' '.join(['', *reasons])}", hint="Convert the data first.")


def verify(source: StoredSource, conversion: Conversion, *, at_most: int = 32) -> int:
    """Check every file's checksum, and compare samples spread over the set with what the conversion gives now.

    Returns:
        How many samples were compared.

    Raises:
        StorageError: naming the file or the sample that differs.
    """
    layout.require_same(source.manifest.header, conversion, source.manifest.header.storage, source.folder)
    for file in (file for shard in source.manifest.shards for file in shard.files):
        if not file.is_intact(source.folder):
            raise StorageError(
                f"`{source.folder / file.name}` does not match its checksum {file.crc32c}.",
                hint="Run the same conversion again; it keeps the files that are sound.",
            )

    def read(position: int) -> Sample:
        return normalise(source.read(position), conversion.spec.structure)

    positions = spread(len(source), at_most)
    for position in positions:
        kept, made = _sample(read, position), _sample(conversion.sample, position)
        if (kept is None) != (made is None) or (kept and made and not all(map(_same, kept, made))):
            raise StorageError(
                f"Sample {position} of the set in `{source.folder}` is not what the source gives now.",
                hint="Convert again into another folder. An op that depends on more than the sample cannot be kept.",
            )
    return len(positions)


def _sample(read: Callable[[int], Sample], position: int) -> Sample | None:
    try:
        return read(position)
    except BadSampleError:
        return None


def _same(kept: Part, made: Part) -> bool:
    if kept is None or made is None or isinstance(kept, bytes):
        return bool(kept == made)
    return np.shape(kept) == np.shape(made) and bool(np.array_equal(kept, made))
