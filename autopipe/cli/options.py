"""The options that several commands share, with one text and one meaning for all.

A command takes a group of them as a dataclass; its command line has an option for each field. The syntax of values is
in `autopipe.cli.option_values`, which is imported only when it is needed: `--help` runs without it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from autopipe.errors import WorkloadError, shortened
from autopipe.workload.mode import Mode

if TYPE_CHECKING:  # every command imports this module, and so `--help` does
    from autopipe.artifact.artifact import Stored
    from autopipe.artifact.schema import ImagesReference
    from autopipe.pipeline.devices.simulated import SimulatedAccelerator
    from autopipe.search.settings import Settings
    from autopipe.workload.workload import Workload

Command = Callable[..., None]


def ungrouped(command: Command) -> Command:
    """Return a command that takes the fields of its groups as separate parameters.

    A group is a parameter whose type is a dataclass. Its default is an instance: the defaults of this command.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    types = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        group = types[name]
        if not dataclasses.is_dataclass(group):
            parameters.append(parameter.replace(annotation=types[name]))
            continue
        groups[name] = group
        parameters += [
            parameter.replace(name=field, annotation=annotation, default=getattr(parameter.default, field))
            for field, annotation in get_type_hints(group, include_extras=True).items()
        ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


# --------------------------------------------------------------- a workload

_MODEL = "mobilenet_v2"

SimulateStep = Annotated[
    str | None,
    typer.Option(
        metavar="15ms",
        help="Simulate an accelerator in place of the model, by its time a step: 15ms, or 224ms/400 for 400 images.",
    ),
]
VirtualDevices = Annotated[
    int,
    typer.Option(
        min=0,
        envvar="AUTOPIPE_VIRTUAL_DEVICES",
        help="Split the CPU into this many devices, to try a training on several devices.",
    ),
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The workload of a command."""

    workload: Workload | str  # its name, or the object for a workload without code
    named: ImagesReference | None = None  # an artefact's reference to a workload without code

    @property
    def arguments(self) -> str:
        """The words that name its samples and ops on another command line, quoted for a shell."""
        if self.named is None:
            return shlex.quote(str(self.workload))
        return f"--images {shlex.quote(self.named.path)} --image-size {self.named.image_size}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """The options that name a workload."""

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
        """Return the workload that these options name. Raises WorkloadError if neither or both are given, the folder
        holds no classes, an option has an impossible value, or an option does not go with a named workload.
        """
        if (self.workload is None) == (self.images is None):
            both = "" if self.images is None else ", not both"
            raise WorkloadError(
                f"A workload must be given: either `train.py:workload` or `--images DIR`{both}.",
                hint="For example: autopipe tune train.py:workload, "
                "or autopipe tune --images photos/ --model mobilenet_v2",
            )
        of_images = {"model": self.model, "image_size": self.image_size, "batch_size": self.batch_size}
        told = {name: value for name, value in of_images.items() if value is not None}
        if self.workload is not None:
            for name in told:
                raise WorkloadError(
                    f"`{_option(name)}` goes with `--images`, but `{self.workload}` has its own.",
                    hint="Leave it out, and change the workload where it is written.",
                )
            return Chosen(workload=self.workload)
        from autopipe.artifact.reference import images_workload
        from autopipe.workload.data.paths import is_url, located

        images = str(self.images)
        place = located(images) if is_url(images) else str(Path(images).absolute())
        named = self._named({**told, "path": place})
        return Chosen(workload=images_workload(named, place), named=named)

    def chosen_samples(self) -> Chosen:
        """Return the same for work on single samples, so that a set may be smaller than the usual batch."""
        return dataclasses.replace(self, batch_size=1).chosen() if self.images else self.chosen()

    def _named(self, told: dict[str, Any]) -> ImagesReference:
        """Return the reference that an artefact keeps, with the model's name in the form of keras.applications."""
        import pydantic

        from autopipe.artifact.schema import ImagesReference

        model = re.sub(r"[\s.-]+", "_", str(told.get("model", _MODEL)).strip())
        try:
            return ImagesReference.model_validate({**told, "model": model})
        except pydantic.ValidationError as error:
            wrong = error.errors()[0]
            field = "images" if wrong["loc"] == ("path",) else str(wrong["loc"][0])
            hint = "Such as mobilenet_v2, ResNet50 or efficientnet-b0; a model of your own goes into a workload's file."
            raise WorkloadError(
                f"`{_option(field)}` cannot be {shortened(getattr(self, field))}: "
                f"{wrong['msg'][:1].lower()}{wrong['msg'][1:]}.",
                hint=hint if field == "model" else None,
            ) from None


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


WORKLOAD = WorkloadOptions()


def simulated(step: str | None) -> SimulatedAccelerator | None:
    """Return the accelerator of `--simulate-step`."""
    from autopipe.cli import option_values

    return None if step is None else option_values.accelerator(step, "--simulate-step")


# --------------------------------------------------------------- an artefact

OF_AN_ARTIFACT = "The artefact, or its folder; by default tuned/, or else ./autopipe.json."
Artifact = Annotated[Path | None, typer.Argument(metavar="tuned/", help=OF_AN_ARTIFACT)]


def located(artifact: Path | None) -> Path:
    """Return the path of the artefact of a command line."""
    from autopipe.artifact import artifact as files

    return files.located(artifact)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArtifactOptions:
    """The options that name an artefact and its workload."""

    artifact: Artifact = None
    workload: Annotated[
        str | None,
        typer.Option(metavar="train.py:workload", help="The workload, if not the one that the artefact names."),
    ] = None
    allow_outside: Annotated[
        bool,
        typer.Option("--allow-outside", help="Trust every file, module and function that the artefact names."),
    ] = False

    @property
    def path(self) -> Path:
        return located(self.artifact)

    @property
    def arguments(self) -> list[str]:
        """The words that name both on another command line."""
        named = [] if self.workload is None else ["--workload", self.workload]
        return [str(self.path), *named, *(["--allow-outside"] if self.allow_outside else [])]

    def read(self) -> Stored:
        from autopipe.artifact import artifact

        return artifact.stored(self.path, workload=self.workload, allow_outside=self.allow_outside)


ARTIFACT = ArtifactOptions()


# --------------------------------------------------------------- a search


def finite(value: float | None) -> float | None:
    """Check that the value of an option is a finite number; typer itself refuses nan."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


PageCache = Literal["warm", "cold", "auto"]
Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json", help="Write a trace of the work over time, for ui.perfetto.dev or chrome://tracing."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show every trial, and what was left out, and the reasons.")
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The options of a search."""

    space: Annotated[
        str,
        typer.Option(help="A shipped search space, such as default, quick or exhaustive, or a file."),
    ] = "default"
    trials: Annotated[int, typer.Option(min=1, help="Run at most this many trials before the confirmation run.")] = 30
    budget: Annotated[str, typer.Option(help="Take at most this long, confirmation run included: 90s, 3m, 1h.")] = "2m"
    storage: Annotated[
        str | None,
        typer.Option(envvar="AUTOPIPE_STORAGE", help="An Optuna storage URL instead of study.db beside the artefact."),
    ] = None
    seed: Annotated[int, typer.Option(help="The seed of everything random in the search.")] = 0
    only: Annotated[list[str] | None, typer.Option(metavar="KEY=A,B", help="Try these values of a parameter only.")] = (
        None
    )
    max_memory: Annotated[str | None, typer.Option(help="The most memory that the training may take: 8G.")] = None
    max_workers: Annotated[int | None, typer.Option(min=1, help="The most workers that the loader may have.")] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:function",
            help="Compare with your own pipeline: a function that returns a tf.data.Dataset, a PyDataset or (x, y).",
        ),
    ] = None
    convert: Annotated[
        bool | None,
        typer.Option(
            "--convert/--no-convert",
            help="Try other storage forms. By default they can win if --epochs is given, and else are only advised.",
        ),
    ] = None
    epochs: Annotated[int | None, typer.Option(min=1, help="Spread one-time costs over this many epochs.")] = None
    simulate_step: SimulateStep = None
    virtual_devices: VirtualDevices = 0
    mode: Annotated[
        Mode, typer.Option(help="Tune for training; or for serving: each batch is evaluated or predicted once.")
    ] = Mode.TRAIN
    page_cache: Annotated[PageCache, typer.Option(help="Whether trials read files from memory or from disk.")] = "auto"
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin a new study instead of continuing an interrupted one.")
    ] = False

    def settings(self, study: Path, context: typer.Context) -> Settings:
        """Return the settings, with the study in the file `study` unless the options name another storage. The budget
        counts from the start of the command of `context`.
        """
        from autopipe.cli import option_values
        from autopipe.measure.facts import Limits
        from autopipe.search import storage
        from autopipe.search.settings import Settings

        began = context.find_root().obj
        return Settings(
            space=self.space,
            began=began,
            end_seconds=time.monotonic() - began,  # writing and exiting take about as long as the imports did
            storage=self.storage or storage.url_of(study),
            trials=self.trials,
            budget_seconds=option_values.seconds(self.budget, "--budget"),
            seed=self.seed,
            limits=Limits(
                memory_bytes=None if self.max_memory is None else option_values.size(self.max_memory, "--max-memory"),
                workers=self.max_workers,
                only=option_values.allowed(self.only or []),
            ),
            baseline=self.baseline,
            convert=self.convert,
            epochs=self.epochs,
            virtual_devices=self.virtual_devices,
            mode=self.mode,
            simulate=simulated(self.simulate_step),
            page_cache=self.page_cache,
            fresh=self.fresh,
        )


_FIELDS = {
    "budget": "budget_seconds",
    "max_memory": "memory_bytes",
    "max_workers": "workers",
    "simulate_step": "simulate",
}


def given_settings(context: typer.Context) -> frozenset[str]:
    """Return the fields of `Settings` and `Limits` that a command line sets, not a default or the environment."""
    names = [field.name for field in dataclasses.fields(SearchOptions)]
    said = [name for name in names if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    return frozenset(_FIELDS.get(name, name) for name in said)


SEARCH = SearchOptions()
