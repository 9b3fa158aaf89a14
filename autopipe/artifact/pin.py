"""The workloads that an artefact may name. It is data: editing it must not be enough to choose the code that runs.

The generated module beside the artefact holds the reference, too, and both must agree. An artefact without such a
module may name a file of its own folder, in which nothing is called; a caller that trusts it may allow more.
docs/security.md is written from these rules. Nothing is imported here, and the module is read without running it.
"""

from __future__ import annotations

import ast
import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pydantic

from autopipe import again
from autopipe.artifact import artifact as files
from autopipe.artifact import reference
from autopipe.artifact.schema import Artifact, FileReference, ImagesReference, ModuleReference, Reference
from autopipe.errors import ArtifactError
from autopipe.measure.trial import protocol
from autopipe.workload.workload import Workload

MODULE_NAME: Final = "tuned_pipeline.py"
"""The generated module, in the artefact's folder."""
GENERATED: Final = "Written by autopipe"
"""A line of every generated module."""

_MOST_BYTES = 1 << 20
_REFERENCE: pydantic.TypeAdapter[Reference] = pydantic.TypeAdapter(Reference)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A workload that may be imported."""

    text: str  # "train.py:workload" with an absolute path, or "package.module:workload"
    may_call: bool  # the name may be a function, which is called: code has named it, and not the artefact alone


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A generated module's reference to its artefact and workload."""

    workload: Reference | None = None  # the only one that the artefact may name; None if it may name none


def parse(pinned: Mapping[str, Any]) -> Pin:
    """Parse the pin that code passes as `pinned`; raises ArtifactError if it is no reference to a workload."""
    try:
        return Pin(workload=_REFERENCE.validate_python(dict(pinned)))
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ArtifactError(
            f"`pinned` must say where a workload is, as WORKLOAD does in a generated module: {first['msg']}.",
            hint="Run `autopipe repoint`, which writes the module again.",
        ) from None


def beside(artifact: Path) -> Pin | None:
    """Return the pin of the generated module in the artefact's folder; None without such a module. Raises ArtifactError
    if the module's reference is invalid.
    """
    try:
        with artifact.with_name(MODULE_NAME).open("rb") as stream:
            tree = ast.parse(stream.read(_MOST_BYTES))
    except (OSError, ValueError, SyntaxError):
        return None
    if GENERATED not in (ast.get_docstring(tree) or ""):
        return None
    constants = dict(filter(None, map(_constant, tree.body)))
    if constants.get("ARTIFACT") != artifact.name:
        return None
    workload = constants.get("WORKLOAD")
    return parse(workload) if isinstance(workload, dict) else Pin()


def is_generated(artifact: Path) -> bool:
    """Return True if a generated module, valid or not, lies beside an artefact."""
    try:
        return beside(artifact) is not None
    except ArtifactError:
        return True


def workload_of(
    artifact: Artifact,
    file: Path,
    *,
    pin: Pin | None = None,
    allow_outside: bool = False,
    below: Path | None = None,
) -> Workload | Name:
    """Return the workload that an artefact names, or the name by which it may be imported.

    Raises ArtifactError if it names none, or one that it may not name, or that does not exist. `pin` is that of the
    code (None: of the generated module beside `file`). `allow_outside` trusts everything that the artefact names;
    `below` is a folder below which the workload may lie, beside the artefact's own.
    """
    named = artifact.workload
    if named is None:
        raise ArtifactError(
            "The artefact does not say where its workload is: it was tuned as an object that no file holds.",
            hint="Pass the workload: ap.load(..., workload=workload), or on the command line"
            " --workload train.py:workload",
        )
    pin = beside(file) if pin is None else pin
    if pin is not None:
        return _located(_agreed(named, pin, file), file, anywhere=True)
    if allow_outside:
        return _located(named, file, anywhere=True)
    if isinstance(named, ModuleReference):
        raise ArtifactError(
            f"The artefact names the module `{named.module}`, and no code says that it may.",
            hint=f"Name it yourself: workload={reference.text(named)!r}, or --workload {reference.text(named)}",
        )
    target = (file.parent / named.path).resolve()
    near = below is not None and target.exists() and target.is_relative_to(below.resolve())
    if reference.is_outside(named, file.parent) and not near:
        raise ArtifactError(
            f"Paths of an artefact must stay inside its folder, `{file.parent}`, but its workload is `{named.path}`.",
            hint=_outside_hint(named, file),
        )
    return _located(named, file, anywhere=False)


def _agreed(named: Reference, pin: Pin, file: Path) -> Reference:
    """Return the reference of the code, if the artefact has the same; the original place is not compared."""
    ours = pin.workload
    if ours is None or named.model_dump(exclude={"origin"}) != ours.model_dump(exclude={"origin"}):
        said = "none" if ours is None else f"`{reference.text(ours)}`"
        raise ArtifactError(
            f"The artefact `{file}` names the workload `{reference.text(named)}`, but `{MODULE_NAME}` beside it {said}."
            " One of both was changed.",
            hint=_restore_hint(ours, file),
        )
    return ours


def _located(named: Reference, file: Path, *, anywhere: bool) -> Workload | Name:
    if isinstance(named, ModuleReference):
        return Name(text=reference.text(named), may_call=anywhere)
    path = reference.located(named, file, with_origin=anywhere)
    if isinstance(named, ImagesReference):
        return reference.workload_of(named, path)
    return Name(text=f"{path}:{named.attribute}", may_call=anywhere)


def _outside_hint(named: FileReference | ImagesReference, file: Path) -> str:
    if isinstance(named, ImagesReference):
        return "If you trust the artefact: allow_outside=True, or --allow-outside on the command line."
    text = f"{(file.parent / named.path).resolve()}:{named.attribute}"
    return f"If that is your workload, name it: workload={text!r}, or --workload {shlex.quote(text)}"


def _restore_hint(ours: Reference | None, file: Path) -> str:
    if isinstance(ours, FileReference | ModuleReference):
        return f"If the module is right: {_repoint(ours, file)}"
    return "Take both from a backup, or tune again."


def _repoint(named: Reference, file: Path) -> str:
    if isinstance(named, ImagesReference):
        return reference.of_images(named)
    text = reference.text(named)
    if isinstance(named, FileReference):
        text = f"{(file.parent / named.path).resolve()}:{named.attribute}"
    return again.autopipe("repoint", file, text)


def _constant(statement: ast.stmt) -> tuple[str, Any] | None:
    """Return the name and the value of `NAME = literal`, or None for other statements."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return None
    try:
        return statement.targets[0].id, ast.literal_eval(statement.value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


# -------------------- stored workload: for the commands that measure it again


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An artefact on disk, and its workload for trials."""

    path: Path
    artifact: Artifact
    # its name, or the object for a workload without code; it has not been imported
    workload: Workload | protocol.Reference
    given: str | None = None  # "train.py:workload", if given in place of the one that the artefact names


def read(path: Path, *, workload: str | None = None, allow_outside: bool = False) -> Stored:
    """Read an artefact with its workload, or with the `workload` ("train.py:workload") in its place.

    The generated module beside the artefact must name the same workload. Without such a module the workload may lie in
    the artefact's folder or below the working directory, and elsewhere only with `allow_outside`. Raises ArtifactError
    if the file is no artefact, or its workload does not exist or may not be read there.
    """
    file = path.absolute()
    artifact = files.read(file)
    if workload is not None:
        return Stored(path=file, artifact=artifact, workload=protocol.Reference(text=workload), given=workload)
    found = workload_of(artifact, file, allow_outside=allow_outside, below=Path.cwd())
    named = found if isinstance(found, Workload) else protocol.Reference(text=found.text, may_call=found.may_call)
    return Stored(path=file, artifact=artifact, workload=named)
