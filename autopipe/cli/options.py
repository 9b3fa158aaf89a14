"""The options that several commands share, with one text and one meaning for all.

A command takes a group of them as a dataclass, with an option for each field; `autopipe.api.request` has their meaning.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import logging
import os
import re
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer
from typer import Argument, Option

from autopipe import again
from autopipe.errors import ConfigError, WorkloadError, near, shortened
from autopipe.workload.mode import Mode

if TYPE_CHECKING:  # every command imports this module, and so `--help` does
    from autopipe.api.request import Target
    from autopipe.search.settings import Settings

Command = Callable[..., None]


class Exit(enum.IntEnum):
    """The exit codes; docs/reference.md lists them."""

    DIFFERENT = 1  # also: nobody reads stdout any more
    USAGE = 2
    NOTHING_MEASURED = 3
    STALE = 4
    DRIFTED = 5
    KEPT = 6
    NOTHING_TO_DO = 7
    INTERRUPTED = 130


count = functools.partial(Option, metavar="N", min=1)  # a whole number of 1 or more
rare = functools.partial(Option, hidden=True)  # left out by `--help`

# --------------------------------------------------------------- every command

Verbose = Annotated[
    bool, Option("--verbose", "-v", help="Say more: every trial, what was left out and why, where options come from.")
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    Option(help="Show log messages from this level on; debug also shows where an error was raised."),
]
_COMMON = {
    "context": (typer.Context, inspect.Parameter.empty),
    "verbose": (Verbose, False),
    "log_level": (LogLevel, "warning"),
}
_FIRST = ("budget", "images", "out", "baseline", "epochs", "only")  # in `--help`: those that are used most


def ready(command: Command) -> Command:
    """Return a command that takes the fields of its groups, which are dataclasses, as separate parameters."""
    own = inspect.signature(command).parameters
    types = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in own.items():
        group = types.get(name, parameter.annotation)
        if not dataclasses.is_dataclass(group):
            parameters.append(parameter.replace(annotation=group))
            continue
        groups[name] = group
        parameters += [
            parameter.replace(name=field, annotation=annotation, default=getattr(parameter.default, field))
            for field, annotation in get_type_hints(group, include_extras=True).items()
        ]
    added = {name: how for name, how in _COMMON.items() if name not in own}
    keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    parameters += [keyword(name, annotation=type_, default=default) for name, (type_, default) in added.items()]
    parameters.sort(key=lambda each: _FIRST.index(each.name) if each.name in _FIRST else len(_FIRST))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        _begin(given["context"], verbose=given["verbose"], log_level=given["log_level"])
        chosen = {
            name: group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**{name: value for name, value in given.items() if name not in added}, **chosen)

    run.__signature__ = inspect.Signature([each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters])  # type: ignore[attr-defined]  # what typer reads
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        from autopipe.cli import screen

        screen.say(f"{record.levelname.lower()}: {record.getMessage()}")


LOG = logging.getLogger("autopipe")


def _begin(context: typer.Context | None, *, verbose: bool, log_level: str) -> None:
    LOG.setLevel(log_level.upper())
    if not any(isinstance(each, _Said) for each in LOG.handlers):
        LOG.addHandler(_Said())
    if context is None or not verbose:
        return
    for name, value in context.params.items():
        source = getattr(context.get_parameter_source(name), "name", "")
        if source in ("DEFAULT_MAP", "ENVIRONMENT"):
            from autopipe.cli import screen

            whence = context.find_root().meta["settings"] if source == "DEFAULT_MAP" else "the environment"
            screen.say(f"option    {_option(name)} {again.without_password(str(value))}, from {whence}")


# --------------------------------------------------------------- a file of settings


def settings_file(start: Path) -> tuple[str, Mapping[str, Any]]:
    """Return the nearest settings upward, a table a command, and the place: autopipe.toml, pyproject.toml."""
    for folder in (start, *start.parents):
        for file, place in ((folder / "autopipe.toml", ""), (folder / "pyproject.toml", "tool.autopipe")):
            if os.path.isfile(file):  # noqa: PTH113  which raises where a folder above may not be looked into
                try:
                    table = tomllib.loads(file.read_text("utf-8"))
                except (OSError, ValueError) as error:
                    if not place:
                        raise ConfigError(f"`{file}` cannot be read: {error}.") from None
                    table = {}  # other tools read it, too, and report the mistake
                for key in filter(None, place.split(".")):
                    table = table.get(key, {})
                if table or not place:
                    return f"{file}{place and f', [{place}]'}", table
    return "", {}


def defaults(command: Any, context: Any, table: object, place: str) -> dict[str, Any]:
    """Return a table's options of a command by parameter; raise ConfigError, which names the file."""
    known = (each for each in command.params if each.param_type_name == "option")
    options = {name.lstrip("-"): each for each in known for name in each.opts if name.startswith("--")}
    if not isinstance(table, Mapping):
        raise ConfigError(f"`{command.name}` in {place} must be a table of options, but got {shortened(table)}.")
    values = {}
    for key, value in table.items():
        if (option := options.get(key.replace("_", "-"))) is None:
            raise ConfigError(f"`{command.name}` in {place} has no option `{key}`.{near(key, options)}")
        several = value if isinstance(value, list) else [value]
        texts = several if option.is_flag else [str(each) for each in several]
        try:
            if option.is_flag and not isinstance(value, bool):
                raise typer.BadParameter("it is true or false")
            if len(texts) > 1 and not option.multiple:
                raise typer.BadParameter("it is one value")
            values[str(option.name)] = option.process_value(context, texts if option.multiple else texts[0])
        except typer.BadParameter as error:
            said = error.message[:1].lower() + error.message[1:].rstrip(".")
            raise ConfigError(f"`{key}` of `{command.name}` in {place} cannot be {shortened(value)}: {said}.") from None
    return values


# --------------------------------------------------------------- a workload

_MODEL = "mobilenet_v2"
_NAMES = "FILE.py:NAME or package.module:NAME; a folder of images; or an artifact or its folder, by default tuned/."
Workloads = Annotated[list[str] | None, Argument(metavar="train.py:workload ...", help=_NAMES)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImagesOptions:
    """The options of a workload without code."""

    images: Annotated[
        str | None,
        Option(metavar="DIR", help="Without code: a folder, or its URL, with one folder of images for each class."),
    ] = None
    model: Annotated[
        str | None,
        Option(
            metavar="NAME", help=f"With --images: a model of keras.applications, random weights; {_MODEL} by default."
        ),
    ] = None
    image_size: Annotated[
        int | None,
        Option(metavar="N", min=8, max=4096, help="With --images: height and width in pixels; 224 by default."),
    ] = None
    batch_size: Annotated[int | None, count(help="With --images: images a batch; 32 by default.")] = None

    def targets(self, workloads: list[str] | None) -> list[Target]:
        """Return the targets that are named, or `tuned/`. Raise what `request.target` does, also for unfit options."""
        return [self._target(each) for each in workloads or (None,)]

    def _target(self, workload: str | None, **more: int) -> Target:
        from autopipe.api import request
        from autopipe.workload.data.paths import is_url

        images = self.images
        if workload is not None and images is not None:
            raise WorkloadError(f"Name a workload or `--images`, not both, but got {workload} and {images}.")
        if workload is not None and (is_url(workload) or request.is_folder_of_images(workload)):
            workload, images = None, workload
        given = {name: getattr(self, name) for name in ("model", "image_size", "batch_size")}
        told = {name: value for name, value in given.items() if value is not None}
        if images is not None:
            return _of_images(images, {**told, **more})
        for name in told:
            raise WorkloadError(
                f"`{_option(name)}` goes with `--images`, but `{workload or 'tuned/'}` has its own.",
                hint="Leave it out, and change the workload where it is written.",
            )
        return request.target(workload)


def _of_images(images: str, told: dict[str, Any]) -> Target:
    import pydantic

    from autopipe.api import request

    told["model"] = re.sub(r"[\s.-]+", "_", str(told.get("model", _MODEL)).strip())  # as keras.applications has it
    try:
        return request.of_images(images, **told)
    except pydantic.ValidationError as error:
        wrong = error.errors()[0]
        field = "images" if wrong["loc"] == ("path",) else str(wrong["loc"][0])
        hint = "Such as mobilenet_v2, ResNet50 or efficientnet-b0; a model of your own goes into a workload's file."
        raise WorkloadError(
            f"`{_option(field)}` cannot be {shortened(images if field == 'images' else told[field])}: "
            f"{wrong['msg'][:1].lower()}{wrong['msg'][1:]}.",
            hint=hint if field == "model" else None,
        ) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkloadOptions(ImagesOptions):
    """The options that name a workload."""

    workload: Annotated[str | None, Argument(metavar="train.py:workload", help=_NAMES)] = None

    def target(self) -> Target:
        return self._target(self.workload)

    def samples(self) -> Target:
        """Return the same for work on single samples, so that a set may be smaller than the usual batch."""
        return self._target(self.workload, batch_size=1)

    def untuned(self) -> Target:
        if self.workload is None and self.images is None:
            such = "autopipe tune train.py:workload, or autopipe tune --images photos/ --model mobilenet_v2"
            said = "A workload must be given: either `train.py:workload` or `--images DIR`."
            raise WorkloadError(said, hint=f"For example: {such}")
        if (found := self.target()).stored is not None:
            raise WorkloadError(f"`{found.name}` is tuned already.", hint="`autopipe retune` renews it.")
        return found


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


WORKLOAD, IMAGES = WorkloadOptions(), ImagesOptions()


# --------------------------------------------------------------- an artifact

Artifact = Annotated[
    Path | None,
    Argument(metavar="tuned/", help="The artifact, or its folder; by default tuned/, or else ./autopipe.json."),
]


def located(artifact: Path | None) -> Path:
    """Return the path of the artifact of a command line."""
    from autopipe.artifact import artifact as files

    return files.located(artifact)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArtifactOptions:
    """The options that name an artifact and its workload."""

    artifact: Artifact = None
    workload: Annotated[
        str | None, Option(metavar="train.py:workload", help="The workload, if not the one that the artifact names.")
    ] = None
    allow_outside: Annotated[
        bool, Option("--allow-outside", help="Trust every file, module and function that the artifact names.")
    ] = False

    @property
    def path(self) -> Path:
        return located(self.artifact)

    @property
    def named(self) -> dict[str, Any]:
        return {"path": self.artifact, "workload": self.workload, "allow_outside": self.allow_outside}

    @property
    def arguments(self) -> list[str]:  # on another command line
        named = [] if self.workload is None else ["--workload", self.workload]
        return [str(self.path), *named, *(["--allow-outside"] if self.allow_outside else [])]


ARTIFACT = ArtifactOptions()


# --------------------------------------------------------------- a search

AsJson = Annotated[bool, Option("--json", help="Print the result as JSON.")]
SimulateStep = Annotated[
    str | None,
    rare(
        metavar="15ms",
        help="Simulate an accelerator in place of the model, by its time a step: 15ms, or 224ms/400 for 400 images.",
    ),
]
VirtualDevices = Annotated[
    int,
    rare(
        min=0,
        envvar="AUTOPIPE_VIRTUAL_DEVICES",
        help="Split the CPU into this many devices, to try a training on several devices.",
    ),
]
PageCache = Annotated[Literal["warm", "cold", "auto"], rare(help="Whether trials read files from memory or from disk.")]
Trace = Annotated[
    Path | None,
    rare(metavar="FILE.json", help="Write a trace of the work over time, for ui.perfetto.dev or chrome://tracing."),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The options of a search, as `request.Search` has them; docs/reference.md lists the rare ones."""

    budget: Annotated[
        str, Option(metavar="2m", help="Take at most this long, confirmation run included: 90s, 3m, 1h.")
    ] = "2m"
    baseline: Annotated[
        str | None,
        Option(
            metavar="FILE.py:function",
            help="Compare with your own pipeline: a function that returns a tf.data.Dataset, a PyDataset or (x, y).",
        ),
    ] = None
    epochs: Annotated[int | None, count(help="Spread one-time costs over this many epochs.")] = None
    only: Annotated[list[str] | None, Option(metavar="KEY=A,B", help="Try these values of a parameter only.")] = None
    mode: Annotated[
        Mode, Option(help="Tune for training; or for serving: each batch is evaluated or predicted once.")
    ] = Mode.TRAIN
    space: Annotated[
        str, Option(metavar="NAME", help="A shipped search space, such as default, quick or exhaustive, or a file.")
    ] = "default"
    trials: Annotated[int, count(help="Run at most this many trials before the confirmation run.")] = 30
    max_memory: Annotated[str | None, Option(metavar="8G", help="The most memory that the training may take.")] = None
    max_workers: Annotated[int | None, count(help="The most workers that the loader may have.")] = None
    convert: Annotated[
        bool | None,
        rare(
            "--convert/--no-convert",
            help="Try other storage forms. By default they can win if --epochs is given, and else are only advised.",
        ),
    ] = None
    simulate_step: SimulateStep = None
    virtual_devices: VirtualDevices = 0
    page_cache: PageCache = "auto"
    storage: Annotated[
        str | None,
        rare(envvar="AUTOPIPE_STORAGE", help="An Optuna storage URL instead of study.db beside the artifact."),
    ] = None
    seed: Annotated[int, rare(help="The seed of everything random in the search.")] = 0
    fresh: Annotated[bool, rare("--fresh", help="Begin a new study instead of continuing an interrupted one.")] = False

    def settings(self, study: Path, context: typer.Context) -> Settings:
        """Return the settings; the budget counts from the start of the command of `context`."""
        from autopipe.api.request import Search, settings_of
        from autopipe.search.record import url_of

        asked = Search(**{**vars(self), "storage": self.storage or url_of(study)})  # type: ignore[typeddict-item]  # its own fields
        began = context.find_root().obj
        # Writing and exiting take about as long as the imports did.
        return settings_of(asked, began=began, end_seconds=time.monotonic() - began)


def given_settings(context: typer.Context) -> list[str]:
    """Return the fields of `Settings` and `Limits` that a command line or a file sets, and not the environment."""
    from autopipe.api.request import fields_of

    names = [field.name for field in dataclasses.fields(SearchOptions)]
    said = ("COMMANDLINE", "DEFAULT_MAP")
    return fields_of(name for name in names if getattr(context.get_parameter_source(name), "name", "") in said)


SEARCH = SearchOptions()
