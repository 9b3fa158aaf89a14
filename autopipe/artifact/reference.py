"""References to workloads: their form in an artefact, and their resolution from there.

Nothing is imported here: `autopipe.artifact.factory` does that when a loader or trainer is made. The workloads that an
artefact may name are the rule of `autopipe.artifact.pin`.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from autopipe import again
from autopipe.artifact.schema import FileReference, ImagesReference, ModuleReference, Reference
from autopipe.errors import ArtifactError
from autopipe.workload.data.images import ImageFolder
from autopipe.workload.data.paths import is_url
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.ops.values import Rescale
from autopipe.workload.workload import Workload


def parse(text: str) -> FileReference | ModuleReference:
    """Parse "train.py:workload" or "package.module:workload"; paths become absolute."""
    target, _, attribute = text.rpartition(":")
    if target.endswith(".py"):
        return FileReference(path=str(Path(target).absolute()), attribute=attribute)
    return ModuleReference(module=target, attribute=attribute)


def of_object(workload: Workload) -> FileReference | ModuleReference | None:
    """Return the reference by which a workload object can be imported again, or None if no module holds it.

    A workload of the running script is found in the script's file; one in a notebook or function has no name. A module
    goes before the script that imports it, because importing the script would tune again.
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
    """Return the reference for an artefact in folder `new`; it was written for folder `old`, or is absolute if None."""
    if reference is None or isinstance(reference, ModuleReference) or _is_remote(reference):
        return reference
    absolute = (Path() if old is None else old).joinpath(reference.path).resolve()
    if not absolute.exists() and reference.origin is not None:
        absolute = Path(reference.origin)
    folder = new.resolve()
    inside = absolute.is_relative_to(folder)
    path = Path(os.path.relpath(absolute, folder)).as_posix()
    return reference.model_copy(update={"path": path, "origin": None if inside else str(absolute)})


def is_outside(reference: Reference | None, folder: Path) -> bool:
    """Return True if the reference leads out of the artefact's folder, also by way of a link or a URL."""
    if reference is None or isinstance(reference, ModuleReference):
        return False
    if _is_remote(reference):
        return True
    return not (folder / reference.path).resolve().is_relative_to(folder.resolve())


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
            f"The artefact's images are gone: they are not at {tried}.",
            hint=f"Put them back, or tune again: {of_images(reference)}",
        )
    raise ArtifactError(
        f"The file of the artefact's workload is gone: it is not at {tried}.",
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
#
# An ordinary workload, except for its source: a folder of images by class, and a model without code.


def workload_of(reference: ImagesReference, images: Path | str) -> Workload:
    """Return the workload of the images in a folder or behind a URL; `images` is the target of the reference. The model
    is built when it is needed, from `keras.applications` with random weights. Raises DataError if the folder is not
    laid out in classes.
    """
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
