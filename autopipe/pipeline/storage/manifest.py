"""The records of a conversion: what it is (`Header`), the shards that are done (`ShardRecord`), and all (`Manifest`).

They are JSON files with a seal, so that one that was edited, or belongs to something else, is told from a sound one.
This module neither writes samples nor decides which shards there are.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar, Self

import numpy as np
import pydantic

from autopipe.errors import StorageError
from autopipe.pipeline.storage.place import Place, write
from autopipe.pipeline.storage.shard import FileRecord
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from autopipe.workload.structure import Structure

SCHEMA_VERSION = 1
HEADER_NAME = "conversion.json"
MANIFEST_NAME = "manifest.json"
_MOST_SHARDS = 10_000


class Sealed(pydantic.BaseModel):
    """A record with a digest of its own content."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")
    what: ClassVar[str]
    remedy: ClassVar[str] = "Remove its folder and convert again."

    def save(self, path: Place) -> None:
        """Write the record: whole or not at all."""
        body = self.model_dump(mode="json")
        text = json.dumps({**body, "seal": _seal(body)}, indent=1)
        write(path, text.encode() + b"\n")

    @classmethod
    def load(cls, path: Place) -> Self:
        """Read a record.

        Raises:
            StorageError: it is missing, unreadable, of another version, or was edited.
        """
        try:
            body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            seal = body.pop("seal", None)
            version = body.get("schema_version", SCHEMA_VERSION)
        except OSError as error:
            raise StorageError(f"{cls.what} `{path}` cannot be read: {error.strerror}.") from error
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise _unsound(cls, path, "is no JSON object") from error
        if version != SCHEMA_VERSION:
            raise _unsound(cls, path, f"has schema_version {version!r}, but this release reads {SCHEMA_VERSION}")
        if seal != _seal(body):
            raise _unsound(cls, path, "was edited: its seal does not match")
        try:
            return cls.model_validate(body)
        except pydantic.ValidationError as error:
            raise _unsound(cls, path, f"is not as it should be: {error.errors()[0]['msg']}") from error


class FieldRecord(pydantic.BaseModel):
    """A field of the kept samples."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    kind: FieldKind
    shape: tuple[int, ...] | None
    dtype: str | None

    @classmethod
    def of(cls, field: Field) -> Self:
        """Return the record of a field."""
        return cls(kind=field.kind, shape=field.shape, dtype=None if field.dtype is None else field.dtype.name)

    def field(self) -> Field:
        """Return the field."""
        return Field(self.kind, self.shape, None if self.dtype is None else np.dtype(self.dtype))


class Header(Sealed):
    """What is converted, how, and into how many shards."""

    what: ClassVar[str] = "The conversion's record"

    schema_version: int = SCHEMA_VERSION
    storage: str  # the form's name
    source_digest: str  # of the data that the samples come from
    ops: tuple[str, ...]  # the ops that are done, for people
    ops_digest: str  # of these ops
    looked_up: dict[str, str] = {}  # what their functions look up elsewhere: its digest by its name
    cut: int  # how many they are
    samples: int = pydantic.Field(ge=1)  # how many samples there are
    samples_per_shard: int = pydantic.Field(ge=1)  # of all shards but the last, which has the rest
    x: FieldRecord  # what is kept of x, or of its first part
    y: FieldRecord | None  # what is kept of y, or of its first part
    others: tuple[FieldRecord, ...] = ()  # what is kept of further parts
    # where each part belongs, as in `Structure.paths`; none of a plain (x, y)
    paths: tuple[tuple[str, str | int | None], ...] = ()

    @pydantic.model_validator(mode="after")
    def _few_shards(self) -> Self:
        if self.shard_count > _MOST_SHARDS:
            raise ValueError(f"{self.shard_count} shards are more than {_MOST_SHARDS}")
        return self

    @property
    def spec(self) -> SampleSpec:
        """The kept samples."""
        columns = (self.x, self.y, *self.others)
        structure = Structure(self.paths) if self.paths else None
        return SampleSpec.of([None if each is None else each.field() for each in columns], structure)

    @property
    def shard_count(self) -> int:
        """How many shards there are."""
        return -(-self.samples // self.samples_per_shard)

    def positions(self, shard: int) -> range:
        """Return which samples a shard holds."""
        return range(shard * self.samples_per_shard, min((shard + 1) * self.samples_per_shard, self.samples))


class ShardRecord(Sealed):
    """A shard that is done."""

    what: ClassVar[str] = "The shard's record"

    number: int
    header: str  # the seal of the header it was written for
    files: tuple[FileRecord, ...]  # its files, with sizes and checksums
    bad: dict[int, str] = {}  # samples that could not be read, by position, with the message


class Manifest(Sealed):
    """A whole set: its header and its shards."""

    what: ClassVar[str] = "The manifest"
    remedy: ClassVar[str] = "Remove it and run the same conversion again; it keeps the shards that are sound."

    schema_version: int = SCHEMA_VERSION
    header: Header
    shards: tuple[ShardRecord, ...]

    @pydantic.model_validator(mode="after")
    def _all_shards(self) -> Self:
        if [shard.number for shard in self.shards] != list(range(self.header.shard_count)):
            raise ValueError(f"the shards must be those from 0 to {self.header.shard_count - 1}")
        return self

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for shard in self.shards for file in shard.files)

    @property
    def bad(self) -> dict[int, str]:
        """The samples that could not be read, by position, with the message."""
        return {position: message for shard in self.shards for position, message in shard.bad.items()}


def seal_of(record: Sealed) -> str:
    """Return the seal that a record is saved with."""
    return _seal(record.model_dump(mode="json"))


def shard_record_name(number: int) -> str:
    """Return the file name of a shard's record."""
    return f"shard-{number:05d}.json"


def _seal(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]


def _unsound(cls: type[Sealed], path: Place, why: str) -> StorageError:
    return StorageError(f"{cls.what} `{path}` {why}.", hint=cls.remedy)
