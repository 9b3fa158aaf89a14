"""The folder of a kept set: which files belong in it, whether it is of this conversion, and which shards it has.

It reads and checks; samples are written by `convert` and read by `stored`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

import filelock

from autopipe.errors import StorageError
from autopipe.hardware.atomic import PART_SUFFIX
from autopipe.pipeline.storage import place
from autopipe.pipeline.storage.conversion import Conversion
from autopipe.pipeline.storage.form import Storage
from autopipe.pipeline.storage.manifest import (
    HEADER_NAME,
    MANIFEST_NAME,
    FieldRecord,
    Header,
    Manifest,
    ShardRecord,
    seal_of,
    shard_record_name,
)
from autopipe.pipeline.storage.place import Place, RemotePath
from autopipe.workload.data import source as data_source

_SHARD_BYTES = 64 << 20
_FEWEST_SHARDS, _ENOUGH_SHARDS = 8, 32  # so that several workers end at about the same time
_FEWEST_SAMPLES = 64  # of a shard, where there are enough anyway: with less, its files cost more than its samples
_MOST_SHARDS = 128  # so that all of them can be mapped, and few files are open
_SHARD_FILE = re.compile(r"[a-z]+-(\d{5})\.[a-z.]+")
_OURS = re.compile(rf"{_SHARD_FILE.pattern}|{re.escape(MANIFEST_NAME)}")


def make_folder(folder: Place) -> None:
    """Make the folder if it is not there; a URL needs none.

    Raises:
        StorageError: it cannot be made, or is something else.
    """
    if isinstance(folder, RemotePath):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"The folder `{folder}` cannot be made: {error.strerror}.") from error


@contextlib.contextmanager
def only_one(folder: Place, part: tuple[int, int]) -> Iterator[None]:
    """Hold the lock of a part of a folder. The operating system lets go of it however the process ends.

    Raises:
        StorageError: another run holds it, or the folder may not be written to.
    """
    lock = filelock.FileLock(place.lock_file(folder, f".lock-{part[0]}-of-{part[1]}"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise StorageError(
            f"Another conversion is at work on `{folder}`.", hint="Wait for its end, or choose another folder."
        ) from error
    except OSError as error:
        raise StorageError(
            f"`{folder}` cannot be written to: {error.strerror or error}.", hint="Choose another folder."
        ) from error
    try:
        yield
    finally:
        lock.release()


def open_folder(folder: Place, conversion: Conversion, storage: Storage, whole_bytes: Callable[[], float]) -> Header:
    """Return the header of a folder, or what it will be if the folder is empty.

    Raises:
        StorageError: the folder holds files of another kind, or the set of another conversion.
    """
    names = sorted(path.name for path in folder.iterdir())
    begun = (folder / HEADER_NAME).exists()  # after the list: other parts that begin now write it before their shards
    foreign = [name for name in names if not name.startswith((".", HEADER_NAME)) and not (begun and _OURS.match(name))]
    if foreign:
        raise StorageError(
            f"The folder of a conversion must hold nothing else, but `{folder}` has {len(foreign)} other files: "
            f"{', '.join(f'`{name}`' for name in foreign[:3])}.",
            hint="Choose a new or empty folder.",
        )
    if not begun:
        return new_header(conversion, storage, whole_bytes())
    header = Header.load(folder / HEADER_NAME)
    require_same(header, conversion, storage.name, folder)
    return header


def new_header(conversion: Conversion, storage: Storage, whole_bytes: float) -> Header:
    """Return the header of a conversion that begins; the same wherever it begins."""
    count = len(conversion)
    enough = min(count, max(_FEWEST_SHARDS, min(_ENOUGH_SHARDS, count // _FEWEST_SAMPLES)))
    shards = max(enough, min(_MOST_SHARDS, -(-int(whole_bytes) // _SHARD_BYTES)))
    spec = conversion.spec
    return Header(
        storage=storage.name,
        source_digest=conversion.source_digest,
        ops=tuple(step.op.name for step in conversion.steps),
        ops_digest=conversion.ops_digest,
        looked_up=dict(conversion.looked_up),
        cut=conversion.cut,
        samples=count,
        samples_per_shard=-(-count // shards),
        x=FieldRecord.of(spec.x),
        y=None if spec.y is None else FieldRecord.of(spec.y),
        others=tuple(map(FieldRecord.of, spec.others)),
        paths=() if spec.structure is None else spec.structure.paths,
    )


def require_same(header: Header, conversion: Conversion, storage: str, folder: Place) -> None:
    """Refuse a set that is not what this conversion would write.

    Raises:
        StorageError: naming what differs, with both sides.
    """
    if header.storage != storage:
        raise _stale(folder, f"is kept as {header.storage}, not as {storage}")
    if header.cut != conversion.cut or header.ops_digest != conversion.ops_digest:
        now = ", ".join(step.op.name for step in conversion.steps)
        raise _stale(
            folder,
            f"was made by other ops: [{', '.join(header.ops)}] (digest {header.ops_digest}), "
            f"where the workload now has [{now}] (digest {conversion.ops_digest})",
        )
    others = [name for name, value in header.looked_up.items() if conversion.looked_up.get(name) != value]
    if others:
        raise _stale(folder, f"was made with another value of {', '.join(f'`{name}`' for name in others)}")
    require_unchanged(header, conversion.source_digest, folder)
    if header.samples != len(conversion):
        raise _stale(folder, f"holds {header.samples} samples, not {len(conversion)}")


def require_unchanged(header: Header, source_digest: str, folder: Place) -> None:
    """Refuse a set of data that have changed since.

    Raises:
        StorageError: naming what changed.
    """
    if header.source_digest != source_digest:
        changed = data_source.difference(header.source_digest, source_digest)
        raise _stale(
            folder,
            f"was made from other data ({changed} differ): {header.source_digest!r}, "
            f"where the data are now {source_digest!r}",
        )


def finished_shards(folder: Place, header: Header) -> dict[int, ShardRecord]:
    """Return the records of shards that were written for this header and whose files have their sizes, by number."""
    seal = seal_of(header)
    sizes = place.sizes(folder)
    found = {}
    for number in range(header.shard_count):
        path = folder / shard_record_name(number)
        if path.name not in sizes:
            continue
        try:
            record = ShardRecord.load(path)
        except StorageError:  # not written yet, or spoilt: it is written again
            continue
        if record.number == number and record.header == seal and all(file.is_whole(sizes) for file in record.files):
            found[number] = record
    return found


def whole_manifest(folder: Place) -> Manifest:
    """Return the manifest of a whole set.

    Raises:
        StorageError: there is none, it was edited, or a file is missing or has another size.
    """
    path, sizes = folder / MANIFEST_NAME, place.sizes(folder)
    if path.name not in sizes:
        begun = HEADER_NAME in sizes
        raise StorageError(
            f"There is no whole set in `{folder}`{': its conversion was begun and did not end' if begun else ''}.",
            hint="Run the same conversion again; it goes on where it stopped." if begun else "Convert the data first.",
        )
    manifest = Manifest.load(path)
    broken = [file.name for shard in manifest.shards for file in shard.files if not file.is_whole(sizes)]
    if broken:
        raise StorageError(
            f"{len(broken)} files of the set in `{folder}` are not whole, the first is `{broken[0]}`.",
            hint="Run the same conversion again; it keeps the files that are sound.",
        )
    return manifest


def remove_parts(folder: Place, numbers: list[int]) -> None:
    """Remove what a killed run left unfinished of some shards; behind a URL nothing is unfinished."""
    if isinstance(folder, RemotePath):
        return
    chosen = set(numbers)
    for path in folder.glob(f"*{PART_SUFFIX}"):
        match = _SHARD_FILE.match(path.name.removeprefix("."))
        if match is not None and int(match[1]) in chosen:
            path.unlink(missing_ok=True)


def _stale(folder: Place, why: str) -> StorageError:
    return StorageError(f"The set in `{folder}` {why}.", hint="Convert again into another folder, or remove this one.")
