"""The artifact's values: the content of `autopipe.json`, without the state of a running study.

The file outlives the release that wrote it: a change here, or of `autopipe.search.result`, that older files do not fit
is a new `SCHEMA_VERSION`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import pydantic

from autopipe.measure.facts import WorkloadDigest
from autopipe.measure.fingerprint import Hardware
from autopipe.search.result import Learnt, Result, Winner
from autopipe.search.settings import Request
from autopipe.values import Value

SCHEMA_VERSION: Literal[1] = 1

_MODULE = r"^[^\W\d]\w*(\.[^\W\d]\w*)*$"
_PathText = Annotated[str, pydantic.Field(pattern=r"^[^\x00-\x1f]+$", max_length=4096)]
_NameText = Annotated[str, pydantic.Field(pattern=r"^[^\W\d]\w*$", max_length=256)]


class FileReference(Value):
    """A workload in a Python file."""

    kind: Literal["file"] = "file"
    path: _PathText  # the file, from the artifact's folder
    origin: _PathText | None = None  # its place during the tune if that is outside; tried when `path` does not exist
    attribute: _NameText = "workload"  # the name of the workload in it


class ModuleReference(Value):
    """A workload in a module that Python can import."""

    kind: Literal["module"] = "module"
    module: str = pydantic.Field(pattern=_MODULE, max_length=1024)
    attribute: _NameText = "workload"


class ImagesReference(Value):
    """A workload without code: a folder of images by class, and a model of `keras.applications`."""

    kind: Literal["images"] = "images"
    path: _PathText  # the folder, from the artifact's folder; or a URL
    origin: _PathText | None = None  # as of a file
    model: _NameText  # such as "mobilenet_v2" or "MobileNetV2"
    image_size: int = pydantic.Field(default=224, ge=1, le=65536)  # the height and width that images are resized to
    batch_size: int = pydantic.Field(default=32, ge=1, le=2**20)
    seed: int = 0


Reference = Annotated[FileReference | ModuleReference | ImagesReference, pydantic.Field(discriminator="kind")]


class Profile(Value):
    """The best configuration on one machine, and its evidence."""

    hardware: Hardware
    workload: WorkloadDigest  # the trained one
    request: Request  # the settings of the search, so that a retune can repeat them
    measured_at: pydantic.AwareDatetime
    result: Result  # all that the search found

    @pydantic.model_validator(mode="after")
    def _has_a_winner(self) -> Self:
        if self.result.winner is None or self.result.winner.images_per_second.value <= 0:  # rates are divided by it
            raise ValueError("`result` must have a `winner`, with a rate above 0")
        return self

    @property
    def winner(self) -> Winner:
        assert self.result.winner is not None  # see `_has_a_winner`
        return self.result.winner


class Live(Learnt):
    """What a training has learnt on one machine."""

    hardware: Hardware


class Artifact(Value):
    """The content of `autopipe.json`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    workload: Reference | None = None  # its source; None if it has no name, so that `ap.load` must be given it
    profiles: tuple[Profile, ...] = pydantic.Field(min_length=1, max_length=1000)  # one for each kind of tuned machine
    live: tuple[Live, ...] = pydantic.Field(default=(), max_length=1000)  # one for each kind of machine that trained so
