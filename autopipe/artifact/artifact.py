"""Reads and writes `autopipe.json`. Whatever the file holds, reading it gives an `Artifact` or an `ArtifactError`.

A file is data: nothing in it is unpickled, imported or evaluated here, and its paths are not followed. What its values
mean is in `autopipe.artifact.schema`; which profile fits a machine, in `autopipe.artifact.pick`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pydantic
import pydantic_core

from autopipe.artifact.schema import SCHEMA_VERSION, Artifact
from autopipe.errors import ArtifactError, near, shortened
from autopipe.hardware import atomic
from autopipe.hardware.memory import size_text

MAX_BYTES: Final = 16 * 2**20
"""A profile takes some ten kilobytes, so that anything larger is no artefact."""

_RENEW: Final = "Restore it from a backup, or run `autopipe tune` again, which writes a new one."


def read(path: str | os.PathLike[str]) -> Artifact:
    """Return the artefact in a file.

    Raises:
        ArtifactError: there is no such file, or it is no artefact of this version; the message names the place.
    """
    file = Path(path)
    try:
        if not file.is_file():
            raise _no_file(file)
        with file.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise ArtifactError(f"The artefact `{file}` cannot be read: {error}.") from error
    return parse(text, str(file))


def parse(text: bytes, name: str = "autopipe.json") -> Artifact:
    """Return the artefact that `text` is. `name` is what messages call it.

    Raises:
        ArtifactError: it is none.
    """
    if len(text) > MAX_BYTES:
        raise ArtifactError(f"`{name}` is larger than {size_text(MAX_BYTES)}, which no artefact is.")
    try:
        content = pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ArtifactError(f"`{name}` is no JSON, or was cut: {error}.", hint=_RENEW) from None
    if not isinstance(content, dict):
        raise ArtifactError(f"`{name}` must hold a JSON object, but holds {shortened(content)}.")
    if "schema_version" not in content:
        raise ArtifactError(f"`{name}` has no `schema_version`, so it is no artefact of autopipe.")
    version = content["schema_version"]
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ArtifactError(
            f"`{name}` has schema_version={shortened(version)}, but this autopipe reads version {SCHEMA_VERSION}.",
            hint="Run `autopipe tune` again, which writes a new one.",
        )
    try:
        return Artifact.model_validate_json(text)
    except pydantic.ValidationError as error:
        raise ArtifactError(f"`{name}`: {_sentence(error)}", hint=_RENEW) from None


def write(artifact: Artifact, path: str | os.PathLike[str]) -> Path:
    """Write the artefact, in place of an older one, and return its path. A reader sees the old file or the new one.

    Raises:
        ArtifactError: the file cannot be written.
    """
    return replace_text(path, artifact.model_dump_json(indent=2, exclude_none=True) + "\n", usual="autopipe.json")


def replace_text(path: str | os.PathLike[str], text: str, *, usual: str) -> Path:
    """Write a text file, whole or not at all; `usual` is what such a file is called, for whoever names a folder.

    Raises:
        ArtifactError: it cannot be written.
    """
    file = Path(path)
    try:
        with atomic.replacing(file, sync=True) as stream:
            stream.write(text.encode())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error  # the rest names the temporary file
        hint = "Name a folder that exists and may be written to."
        if file.is_dir():
            hint = f"Name a file in this folder: {file / usual}"
        raise ArtifactError(f"`{file}` cannot be written: {why}.", hint=hint) from error
    return file


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file."""
    schema = Artifact.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "autopipe.json"}


def _no_file(file: Path) -> ArtifactError:
    if file.is_dir():
        return ArtifactError(
            f"The artefact is a file, but `{file}` is a folder.", hint=f"Name the file in it: {file / 'autopipe.json'}"
        )
    below = file.parent / "tuned" / file.name  # where `autopipe tune` writes it
    if below.is_file():
        return ArtifactError(f"There is no artefact `{file}`.", hint=f"Name the one in the folder below: {below}")
    beside = [entry.name for entry in file.parent.glob("*.json")] if file.parent.is_dir() else []
    return ArtifactError(
        f"There is no artefact `{file}`.{near(file.name, beside)}",
        hint=f"`autopipe tune` writes one. Paths are taken from the working directory, {Path.cwd()}.",
    )


def _sentence(error: pydantic.ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".") or "it"
    if first["type"] == "extra_forbidden":
        return f"`{place}` is no key of an artefact of version {SCHEMA_VERSION}."
    if first["type"] == "missing":
        return f"`{place}` is missing."
    said = first["msg"]
    if first["type"] == "union_tag_invalid":  # pydantic repeats the value, whatever its length
        said = f"{first['ctx']['discriminator']} must be one of {first['ctx']['expected_tags']}"
    return f"`{place}` is wrong: {said}, but got {shortened(first['input'])}."
