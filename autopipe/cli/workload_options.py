"""Which workload a command is about: `train.py:workload`, or `--images DIR --model NAME` for people without code."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.errors import WorkloadError, shortened

if TYPE_CHECKING:  # imported by every command's module, and so before `--help` answers
    from autopipe.core.workload import Workload
    from autopipe.devices.simulated import SimulatedAccelerator
    from autopipe.tuned.schema import ImagesReference

_MODEL = "mobilenet_v2"

SimulateStep = Annotated[
    str | None,
    typer.Option(
        metavar="15ms",
        help="In place of the model, an accelerator that takes so long a step: 15ms, or 224ms/400 for 400 images.",
    ),
]
VirtualDevices = Annotated[
    int,
    typer.Option(
        min=0,
        envvar="AUTOPIPE_VIRTUAL_DEVICES",
        help="Split the CPU into so many devices, to rehearse a training on several without having them.",
    ),
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The workload of a command."""

    workload: Workload | str  # its name, or the object for a workload without code
    named: ImagesReference | None = None  # what an artefact says of it, for a workload without code

    @property
    def arguments(self) -> str:
        """What names its samples and ops on another command line, quoted for a shell."""
        if self.named is None:
            return shlex.quote(str(self.workload))
        return f"--images {shlex.quote(self.named.path)} --image-size {self.named.image_size}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """Which workload a command is about, as it is written on a command line."""

    workload: Annotated[
        str | None,
        typer.Argument(metavar="train.py:workload", help="Where the workload is: FILE.py:NAME or package.module:NAME."),
    ] = None
    images: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Without code: a folder, or its URL, with one folder of images for each class."
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(help=f"With --images: a model of keras.applications, random weights; {_MODEL} by default."),
    ] = None
    image_size: Annotated[
        int | None,
        typer.Option(min=8, max=4096, help="With --images: height and width in pixels; 224 by default."),
    ] = None
    batch_size: Annotated[int | None, typer.Option(min=1, help="With --images: images a batch; 32 by default.")] = None

    def chosen(self) -> Chosen:
        """Return the workload that they stand for.

        Raises:
            WorkloadError: neither or both were given, the folder holds no classes, no artefact could hold an option, or
                an option is none of the workload that is named.
        """
        if (self.workload is None) == (self.images is None):
            raise WorkloadError(
                "A workload must be given: either `train.py:workload` or `--images DIR`"
                + (", not both." if self.images is not None else "."),
                hint="For example: autopipe tune train.py:workload, "
                "or autopipe tune --images photos/ --model mobilenet_v2",
            )
        if self.workload is not None:
            self._require_that_it_says_itself()
            return Chosen(workload=self.workload)
        from autopipe.data.url import is_url, located
        from autopipe.tuned.images import workload_of

        images = str(self.images)
        place = located(images) if is_url(images) else str(Path(images).absolute())
        named = self._named(place)
        return Chosen(workload=workload_of(named, place), named=named)

    def _require_that_it_says_itself(self) -> None:
        """Refuse to pass over an option: what is trained is the named workload's own, batch size included."""
        of_images = {"--model": self.model, "--image-size": self.image_size, "--batch-size": self.batch_size}
        if option := next((name for name, value in of_images.items() if value is not None), None):
            raise WorkloadError(
                f"`{option}` goes with `--images`: `{self.workload}` says itself what it trains.",
                hint="Leave it out, and change the workload where it is written.",
            )

    def _named(self, place: str) -> ImagesReference:
        """Return what an artefact says of it, with the model's name as keras.applications could have it."""
        import pydantic

        from autopipe.tuned.schema import ImagesReference

        model = re.sub(r"[\s.-]+", "_", _MODEL if self.model is None else self.model.strip())
        told = {"path": place, "model": model, "image_size": self.image_size, "batch_size": self.batch_size}
        try:
            return ImagesReference.model_validate({name: value for name, value in told.items() if value is not None})
        except pydantic.ValidationError as error:
            wrong = error.errors()[0]
            field = "images" if wrong["loc"] == ("path",) else str(wrong["loc"][0])
            hint = "Such as mobilenet_v2, ResNet50 or efficientnet-b0; a model of your own goes into a workload's file."
            raise WorkloadError(
                f"`--{field.replace('_', '-')}` cannot be {shortened(getattr(self, field))}: "
                f"{wrong['msg'][:1].lower()}{wrong['msg'][1:]}.",
                hint=hint if field == "model" else None,
            ) from None


USUAL = WorkloadOptions()


def simulated(step: str | None) -> SimulatedAccelerator | None:
    """Return what `--simulate-step` asks for, or None where it is not given.

    Raises:
        ConfigError: it cannot be read.
    """
    from autopipe.cli import option_values

    return None if step is None else option_values.accelerator(step, "--simulate-step")
