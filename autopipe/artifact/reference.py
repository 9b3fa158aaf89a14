"""References to workloads: their form in an artifact, their resolution from there, and which of them it may name.

An artifact is data: editing it must not be enough to choose the code that runs. The generated module beside it holds
the reference, too, and both must agree. An artifact without such a module may name a file of its own folder, in which
nothing is called; a caller that trusts it may allow more. SECURITY.md is written from these rules. Nothing is
imported here, and the module is read without running it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pydantic

from autopipe import again
from autopipe.artifact.schema import Artifact, FileReference, ImagesReference, ModuleReference, Reference
from autopipe.errors import ArtifactError, shortened
from autopipe.measure.trial.workload_import import WorkloadName
from autopipe.workload.data.images import ImageFolder
from autopipe.workload.data.paths import is_url
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.ops.values import Rescale
from autopipe.workload.workload import Workload


def parse(text: str) -> FileReference | ModuleReference:
    """Parse "train.py:workload" or "package.module:workload"; raises ArtifactError for what an artifact cannot name."""
    target, _, attribute = text.rpartition(":")
    try:
        if target.endswith(".py"):
            return FileReference(path=str(Path(target).absolute()), attribute=attribute)
        return ModuleReference(module=target, attribute=attribute)
    except pydantic.ValidationError as error:
        raise ArtifactError(
            f"An artifact cannot name the workload {shortened(text)}: {error.errors()[0]['msg']}.",
            hint=f"Names of folders and files are text in UTF-8, without control characters; here: {Path.cwd()}",
        ) from None


def of_object(workload: Workload) -> FileReference | ModuleReference | None:
    """Return the reference by which a workload object can be imported again; None if no module holds it. A module goes
    before the script that imports it, because importing the script would tune again.
    """
    for name, module in sorted(sys.modules.copy().items(), key=lambda item: item[0] == "__main__"):
        attributes = getattr(module, "__dict__", None)
        if not isinstance(attributes, dict) or name == "__mp_main__":  # another name of __main__, in this process only
            continue
        named = (key for key, value in list(attributes.items()) if value is workload and not key.startswith("_"))
        attribute = next(named, None)  # IPython keeps the result of a cell as `_`
        if attribute is None:
            continue
        file = attributes.get("__file__")
        if isinstance(file, str) and file.endswith(".py"):
            return FileReference(path=str(Path(file).absolute()), attribute=attribute)
        if name != "__main__":
            return ModuleReference(module=name, attribute=attribute)
    return None


def moved(reference: Reference | None, old: Path | None, new: Path) -> Reference | None:
    """Return the reference for an artifact in folder `new`; it was written for folder `old`, or is absolute if None."""
    if reference is None or isinstance(reference, ModuleReference) or _is_remote(reference):
        return reference
    absolute = (Path() if old is None else old).joinpath(reference.path).resolve()
    if not absolute.exists() and reference.origin is not None:
        absolute = Path(reference.origin)
    folder = new.resolve()
    inside = absolute.is_relative_to(folder)
    path = Path(os.path.relpath(absolute, folder)).as_posix()
    return reference.model_copy(update={"path": path, "origin": None if inside else str(absolute)})


def located(reference: FileReference | ImagesReference, artifact: Path, *, with_origin: bool) -> Path | str:
    """Return the file, folder or URL that the reference leads to from the folder of the file `artifact`; raises
    ArtifactError if it leads nowhere. `with_origin` also tries the place at the time of the tune.
    """
    if _is_remote(reference):
        return reference.path
    path = (artifact.parent / reference.path).resolve()
    places = [path] if reference.origin is None or not with_origin else [path, Path(reference.origin)]
    found = next((place for place in places if place.exists()), None)
    if found is not None:
        return found
    tried = " and not at ".join(f"`{place}`" for place in dict.fromkeys(places))
    if isinstance(reference, ImagesReference):
        raise ArtifactError(
            f"The artifact's images are gone: they are not at {tried}.",
            hint=f"If they were moved: {again.autopipe('repoint', artifact, 'DIR')}. Else tune: {of_images(reference)}",
        )
    raise ArtifactError(
        f"The file of the artifact's workload is gone: it is not at {tried}.",
        hint=f"If it was moved or renamed: {again.autopipe('repoint', artifact, f'NEW.py:{reference.attribute}')}",
    )


def of_images(reference: ImagesReference) -> str:
    """Return the command that tunes the same on images in a folder DIR."""
    sizes = ("--image-size", str(reference.image_size), "--batch-size", str(reference.batch_size))
    return again.autopipe("tune", "--images", "DIR", "--model", reference.model, *sizes)


def text(reference: Reference) -> str:
    """Return the reference in its usual form: "train.py:workload"."""
    if isinstance(reference, ModuleReference):
        return f"{reference.module}:{reference.attribute}"
    if isinstance(reference, ImagesReference):
        return f"{reference.model} on {reference.path}"
    return f"{reference.path}:{reference.attribute}"


def short_text(reference: Reference) -> str:
    """Return the short name of the workload: as `text`, without the folders."""
    if isinstance(reference, ModuleReference):
        return text(reference)
    return text(reference.model_copy(update={"path": PurePosixPath(reference.path).name}))


def _is_remote(reference: FileReference | ImagesReference) -> bool:
    """Return True if images lie behind a URL; a workload's file never does."""
    return isinstance(reference, ImagesReference) and is_url(reference.path)


# -------------------- images: the workload of `--images DIR --model NAME`
# An ordinary workload, except for its source: a folder of images by class, and a model without code.


def images_workload(reference: ImagesReference, images: Path | str) -> Workload:
    """Return the workload of images in a folder or behind a URL; its model is built when it is needed."""
    data = ImageFolder(images)
    size = reference.image_size
    return Workload(
        data=data,
        ops=[Decode(), Resize(size, size), RandomFlip(), Rescale(1 / 255)],
        batch_size=reference.batch_size,
        model=functools.partial(_build, reference.model, size, len(data.classes)),
        seed=reference.seed,
        converted=os.path.abspath("converted"),  # noqa: PTH100  no script writes it: where the command is run
    )


def _build(name: str, size: int, classes: int) -> Any:
    from autopipe.pipeline.devices import model  # imports Keras

    return model.build_application(name, size, classes)


# -------------------- pins: the workloads that an artifact may name


MODULE_NAME: Final = "tuned_pipeline.py"  # the generated module, in the artifact's folder
GENERATED: Final = "Written by autopipe"  # a line of every generated module

_MOST_BYTES = 1 << 20
_REFERENCE: pydantic.TypeAdapter[Reference] = pydantic.TypeAdapter(Reference)


def parse_pin(pinned: Mapping[str, Any]) -> Reference:
    """Parse the pin that code passes as `pinned`; raises ArtifactError if it is no reference to a workload."""
    try:
        return _REFERENCE.validate_python(dict(pinned))
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ArtifactError(
            f"`pinned` must say where a workload is, as WORKLOAD does in a generated module: {first['msg']}.",
            hint="Run `autopipe repoint`, which writes the module again.",
        ) from None


def beside(artifact: Path) -> tuple[bool, Reference | None]:
    """Return whether a generated module lies beside an artifact, and the only workload that it allows; None: none."""
    try:
        with artifact.with_name(MODULE_NAME).open("rb") as stream:
            tree = ast.parse(stream.read(_MOST_BYTES))
    except (OSError, ValueError, SyntaxError):
        return False, None
    constants = dict[str, Any]()
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                constants[statement.targets[0].id] = ast.literal_eval(statement.value)
    if GENERATED not in (ast.get_docstring(tree) or "") or constants.get("ARTIFACT") != artifact.name:
        return False, None
    workload = constants.get("WORKLOAD")
    return True, parse_pin(workload) if isinstance(workload, dict) else None


def is_generated(artifact: Path) -> bool:
    """Return True if a generated module, valid or not, lies beside an artifact."""
    try:
        return beside(artifact)[0]
    except ArtifactError:
        return True


def workload_of(
    artifact: Artifact,
    file: Path,
    *,
    pin: Reference | None = None,
    allow_outside: bool = False,
    below: Path | None = None,
) -> Workload | WorkloadName:
    """Return the workload that an artifact names, or the name by which it may be imported. Raise ArtifactError if it
    names none, or one that it may not name, or that does not exist. `pin` is that of the code (None: of the generated
    module beside `file`); `allow_outside` trusts all that is named; `below` is a folder below which it may lie, too.
    """
    named = artifact.workload
    if named is None:
        raise ArtifactError(
            "The artifact does not say where its workload is: it was tuned as an object that no file holds.",
            hint="Pass it: in Python workload=workload, on the command line --workload train.py:workload",
        )
    is_pinned, ours = beside(file) if pin is None else (True, pin)
    if is_pinned:
        return _located(_agreed(named, ours, file), file, anywhere=True)
    if allow_outside:
        return _located(named, file, anywhere=True)
    if isinstance(named, ModuleReference):
        raise ArtifactError(
            f"The artifact names the module `{named.module}`, but no `{MODULE_NAME}` beside it names the same.",
            hint=f"Name it yourself: workload={text(named)!r}, or --workload {text(named)}",
        )
    target = (file.parent / named.path).resolve()
    near = below is not None and target.exists() and target.is_relative_to(below.resolve())
    inside = target.is_relative_to(file.parent.resolve()) and not _is_remote(named)  # links are followed
    if not inside and not near:
        hint = "If you trust the artifact: allow_outside=True, or --allow-outside on the command line."
        if isinstance(named, FileReference):
            own = _absolute_text(named, file)
            hint = f"If that is your workload, name it: workload={own!r}, or --workload {shlex.quote(own)}"
        raise ArtifactError(
            f"Paths of an artifact must stay inside its folder, `{file.parent}`, but its workload is `{named.path}`.",
            hint=hint,
        )
    return _located(named, file, anywhere=False)


def _agreed(named: Reference, ours: Reference | None, file: Path) -> Reference:
    """Return the reference of the code, if the artifact has the same; the original place is not compared."""
    if ours is None or named.model_dump(exclude={"origin"}) != ours.model_dump(exclude={"origin"}):
        said = "none" if ours is None else f"`{text(ours)}`"
        hint = "Take both from a backup, or tune again."
        if isinstance(ours, FileReference | ModuleReference):
            hint = f"If the module is right: {again.autopipe('repoint', file, _absolute_text(ours, file))}"
        raise ArtifactError(
            f"The artifact `{file}` names the workload `{text(named)}`, but `{MODULE_NAME}` beside it {said}."
            " One of the two was changed.",
            hint=hint,
        )
    return ours


def _located(named: Reference, file: Path, *, anywhere: bool) -> Workload | WorkloadName:
    if isinstance(named, ModuleReference):
        return WorkloadName(text=text(named), may_call=anywhere)
    path = located(named, file, with_origin=anywhere)
    if isinstance(named, ImagesReference):
        return images_workload(named, path)
    return WorkloadName(text=f"{path}:{named.attribute}", may_call=anywhere)


def _absolute_text(named: FileReference | ModuleReference, file: Path) -> str:
    if isinstance(named, ModuleReference):
        return text(named)
    return f"{(file.parent / named.path).resolve()}:{named.attribute}"
