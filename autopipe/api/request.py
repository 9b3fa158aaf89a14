"""What a search or a measurement is asked for, by a command or in Python: one meaning of each value for both.

A value may be a text, as a command line or a file has it, or an object. Nothing is measured or printed here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import numbers
import os
import re
import shlex
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar

from autopipe.artifact import artifact as files
from autopipe.artifact import reference, schema
from autopipe.artifact.artifact import Stored
from autopipe.artifact.factory import Tuned
from autopipe.errors import ConfigError, WorkloadError, near, shortened
from autopipe.measure.facts import Limits, WrappedDataset
from autopipe.measure.trial.workload_import import WorkloadName
from autopipe.pipeline import config as configs
from autopipe.pipeline.batching.datasets import has_batches, is_read_again
from autopipe.pipeline.config import PipelineConfig, SettingValue
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.pipeline.wrap import wrap
from autopipe.search.settings import Settings
from autopipe.search.space import from_config, near_parameter, parameter_types, to_config
from autopipe.values import seconds, size_bytes
from autopipe.workload.data.paths import is_url, located
from autopipe.workload.mode import Mode
from autopipe.workload.workload import Workload


class Search(TypedDict, total=False):
    """The options of a search; what is left out is as `Settings` has it, or as the tune of a retune had it."""

    budget: float | str | None  # seconds, or "2m", the confirmation run included; None for no limit
    baseline: str | Callable[[], Any] | None  # the user's own pipeline, or "FILE.py:function"
    epochs: int | None
    only: Mapping[str, SettingValue | Sequence[SettingValue]] | Sequence[str] | None  # or "key=a,b"
    mode: Literal["train", "evaluate", "predict"] | Mode
    space: str
    trials: int
    max_memory: int | str | None  # bytes, or "8G"
    max_workers: int | None
    convert: bool | None
    simulate_step: str | SimulatedAccelerator | None  # or "15ms"
    virtual_devices: int
    page_cache: Literal["warm", "cold", "auto"]
    storage: str | None  # an Optuna storage URL; None keeps the study in memory
    seed: int
    fresh: bool


_Passed = ParamSpec("_Passed")
_Made = TypeVar("_Made")


class _AsTuned:
    def __repr__(self) -> str:
        return "<as tuned>"


AS_TUNED: Final = _AsTuned()  # the default that a signature shows of an option which is taken from a tune


def refusing_unknown(usual: Callable[[str], object]) -> Callable[[Callable[_Passed, _Made]], Callable[_Passed, _Made]]:
    """Refuse keywords that are no options of a search; the signature has all, with `usual` defaults."""

    def decorated(function: Callable[_Passed, _Made]) -> Callable[_Passed, _Made]:
        own = inspect.signature(function)
        positional = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
        types = Search.__annotations__.items()
        more = [keyword(name, default=usual(name), annotation=each.__forward_arg__) for name, each in types]
        known = {each.name: each for each in (*positional, *more)}

        @functools.wraps(function)
        def called(*arguments: _Passed.args, **named: _Passed.kwargs) -> _Made:
            for name, value in named.items():
                if name not in known:
                    said = f"`ap.{function.__name__}` takes {', '.join(known)}, but got {name}={shortened(value)}."
                    hint = 'What it returns is written by `.save("autopipe.json")`.'
                    raise ConfigError(f"{said}{near(name, known)}", hint=hint)
            return function(*arguments, **named)

        called.__signature__ = own.replace(parameters=[*known.values()])  # type: ignore[attr-defined]  # for completion
        return called

    return decorated


_FIELDS = {"budget": "budget_seconds", "simulate_step": "simulate"}  # options whose field of `Settings` differs
_NEEDED = ("space", "trials", "mode", "page_cache", "fresh", "virtual_devices")  # None is no value of these
_LIMITS = {"max_memory": "memory_bytes", "max_workers": "workers", "only": "only"}  # those of its `Limits`


def usual(name: str) -> object:
    """Return the default of an option of a search, as a caller writes it."""
    settings = Settings(virtual_devices=0)
    (field,) = fields_of([name])
    value = getattr(settings.limits if name in _LIMITS else settings, field)
    return value.value if isinstance(value, Mode) else None if name == "only" else value


def fields_of(options: Iterable[str]) -> list[str]:
    """Return the fields of `Settings` and `Limits` that options set."""
    return [{**_FIELDS, **_LIMITS}.get(name, name) for name in options]


def settings_of(asked: Search, **more: Any) -> Settings:
    """Return the settings of a search, with `more` fields of `Settings`; raises ConfigError for an impossible value."""
    values: dict[str, Any] = {}
    for name, value in asked.items():
        read = _READERS.get(name)
        values[name] = value if read is None or (value is None and name not in _NEEDED) else read(value, name)
    limits = {_LIMITS[name]: values.pop(name) for name in _LIMITS if name in values}
    if limits.get("only", ()) is None:
        del limits["only"]
    named = {_FIELDS.get(name, name): value for name, value in values.items()}
    return Settings(**named, **more, limits=Limits(**limits))


def unfit(name: str, value: object, wanted: str, hint: str) -> ConfigError:
    """Return the error for an argument that is not a `wanted`."""
    return ConfigError(f"`{name}` must be {wanted}, but got {shortened(value)}.", hint=hint)


def _one_of(*choices: str) -> Callable[[object, str], str]:
    def read(value: object, name: str) -> str:
        if value not in choices:
            raise unfit(name, value, f"one of {', '.join(choices)}", f"Such as {name}={str(choices[-1])!r}.")
        return str(value)

    return read


def _count(least: int) -> Callable[[object, str], int]:
    def read(value: object, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
            raise ConfigError(f"`{name}` must be a whole number of {least} or more, but got {shortened(value)}.")
        return int(value)  # NumPy's are whole numbers, too

    return read


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise unfit(name, value, "True or False", f"Such as {name}=True.")
    return value


def _path(value: object, name: str) -> str:
    if not isinstance(value, str | os.PathLike):
        raise unfit(name, value, "the name of a search space, or a YAML file", 'Such as space="quick".')
    return os.fspath(value)


def _url(value: object, name: str) -> str:
    if not isinstance(value, str):
        hint = 'Such as storage="sqlite:///study.db"; None keeps the study in memory.'
        raise unfit(name, value, "the URL of an Optuna storage, or None", hint)
    return value


def _only(value: Any, name: str) -> dict[str, tuple[SettingValue, ...]]:
    if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(each, str) for each in value):
        return allowed(value)
    items: Any = value.items() if isinstance(value, Mapping) else [(None, None)]
    if not all(isinstance(key, str) and isinstance(held, str | numbers.Number | Iterable) for key, held in items):
        hint = 'Such as only={"loader": ("threads", "tfdata"), "keep": "none"}.'
        raise unfit(name, value, "a mapping from parameters to their values, or None", hint)
    listed: dict[str, Any] = {key: (held,) if isinstance(held, str | numbers.Number) else held for key, held in items}
    # An artifact holds them, so those of NumPy become Python's.
    return {key: tuple(each.item() if hasattr(each, "item") else each for each in held) for key, held in listed.items()}


def _function(value: Any, name: str) -> str:
    """Return the name by which another process finds a function; in the script itself it has the script's file."""
    if isinstance(value, str):
        return value
    if not callable(value):
        hint = 'Such as baseline="bench.py:make_dataset".'
        raise unfit(name, value, "a function of your own, its name, or None", hint)
    attribute, module = getattr(value, "__qualname__", ""), sys.modules.get(getattr(value, "__module__", ""))
    home = getattr(module, "__file__" if value.__module__ == "__main__" else "__name__", None)  # none in a notebook
    if home is None or getattr(module, attribute, None) is not value:
        raise ConfigError(
            f"`{name}` must be a function that is defined in a file, but got {shortened(value)}.",
            hint='Write it at the top level of a file, and pass it or its name, "FILE.py:function".',
        )
    return f"{home}:{attribute}"


def accelerator(given: SimulatedAccelerator | str | float, option: str) -> SimulatedAccelerator:
    """Return an accelerator by the time of its step: seconds, `15ms`, or `224ms/400` for a step of 400 images."""
    if not isinstance(given, str):
        return given if isinstance(given, SimulatedAccelerator) else SimulatedAccelerator(seconds(given, option))
    duration, slash, images = given.partition("/")
    if slash and not images.strip().isdecimal():
        raise ConfigError(f"`{option}` takes a step of some images as 224ms/400, but got {given!r}.")
    return SimulatedAccelerator(seconds(duration, option), int(images) if slash else None)


_READERS: Mapping[str, Callable[[Any, str], object]] = {
    "budget": seconds,
    "baseline": _function,
    "epochs": _count(1),
    "only": _only,
    "mode": lambda value, name: Mode(_one_of(*Mode)(value, name)),
    "space": _path,
    "trials": _count(1),
    "max_memory": size_bytes,
    "max_workers": _count(1),
    "convert": _flag,
    "simulate_step": accelerator,
    "virtual_devices": _count(0),
    "page_cache": _one_of("warm", "cold", "auto"),
    "storage": _url,
    "seed": lambda value, name: int(value) if isinstance(value, numbers.Integral) else value,  # `Settings` checks it
    "fresh": _flag,
}


# -------------------- what is looked at

MODEL = "mobilenet_v2"  # of a folder of images, unless another one is named


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A workload, and the artifact that it comes from, if any."""

    name: str
    workload: Workload | WorkloadName
    named: schema.ImagesReference | None = None  # an artifact's reference to a workload without code
    stored: Stored | None = None

    @property
    def arguments(self) -> str:
        """The words that name its samples and ops on a command line, quoted for a shell."""
        if self.named is not None:
            return f"--images {shlex.quote(self.named.path)} --image-size {self.named.image_size}"
        if self.stored is not None:
            return shlex.quote(str(self.stored.path))
        return shlex.quote("workload" if isinstance(self.workload, Workload) else self.workload.text)


Given: TypeAlias = Workload | Tuned | Target | str | os.PathLike[str] | None
"""A workload, "train.py:workload", a folder of images, a tuned pipeline, an artifact or its folder; None: `tuned/`.
A dataset of batches is taken as `ap.wrap` takes it.
"""


def target(given: Given | object = None) -> Target:
    """Return the workload that is named, or an artifact's; raise WorkloadError, or ArtifactError as `ap.load`."""
    if isinstance(given, Target):
        return given
    if isinstance(given, Workload):
        return Target(name="workload", workload=given)
    if isinstance(given, Tuned):
        place = (given.path or Path(files.NAME)).absolute()
        stored = Stored(path=place, artifact=given.artifact, workload=given.workload)
        return Target(name="tuned", workload=given.workload, stored=stored)
    if (made := wrapped(given)) is not None:
        return Target(name="workload", workload=made)
    if not isinstance(given, str | os.PathLike | None):
        hint = 'Such as "train.py:workload", "photos/", "tuned/" or a dataset of batches.'
        raise unfit("workload", given, "an ap.Workload, its name, a folder of images, or an artifact", hint)
    if (path := artifact_of(given)) is not None:
        stored = files.stored(path)
        return Target(name=str(path), workload=stored.workload, stored=stored)
    if given is None:
        hint = 'For example "train.py:workload", or a folder of images.'
        raise WorkloadError("A workload must be given: there is no artifact in `tuned/` either.", hint=hint)
    text = os.fspath(given)
    if is_url(text) or is_folder_of_images(text):
        return of_images(text)
    name = f"{text}:workload" if text.endswith(".py") else text
    return Target(name=name, workload=WorkloadName(text=name))


def wrapped(given: object) -> Workload | None:
    """Return the workload of a dataset, or of a function that makes one, that is passed itself; None: it is neither."""
    is_dataset = has_batches(given) or is_read_again(given) or isinstance(given, types.FunctionType)
    return wrap(given) if is_dataset else None


def is_folder_of_images(text: str) -> bool:
    """Return True for a folder without an artifact."""
    return Path(text).is_dir() and artifact_of(text) is None


def of_images(images: str, **told: Any) -> Target:
    """Return the workload of a folder of images, or its URL; `told` are fields of `ImagesReference`."""
    place = located(images) if is_url(images) else str(Path(images).absolute())
    named = schema.ImagesReference.model_validate({"model": MODEL, **told, "path": place})
    return Target(name=images, workload=reference.images_workload(named, place), named=named)


def artifact_of(given: Given | object = None) -> Path | None:
    """Return the artifact that is named: a JSON file, the one in a folder, or that of `tuned/`; None: it is none."""
    if given is not None and not isinstance(given, str | os.PathLike):
        return None
    if given is not None and os.fspath(given).endswith(".json"):
        return Path(given)
    if given is not None and not Path(given).is_dir():
        return None
    path = files.located(given)
    return path if path.is_file() else None


# -------------------- key=value

WRAPPED = "wrapped."  # the prefix of the settings of a dataset of `ap.wrap`

_WHOLE = re.compile(r"[1-9][0-9]{0,8}")


def batch_sizes(given: str | Sequence[int]) -> tuple[int, ...]:
    """Return batch sizes, which a text such as `16,32,64` may give."""
    parts = [part.strip() for part in given.split(",")] if isinstance(given, str) else list(map(str, given))
    if not all(_WHOLE.fullmatch(part) for part in parts):
        hint = "On a command line: --batch-sizes 16,32,64"
        raise ConfigError(f"`batch_sizes` must be whole numbers of 1 or more, but got {shortened(given)}.", hint=hint)
    return tuple(map(int, parts))


def allowed(pairs: Iterable[str]) -> dict[str, tuple[SettingValue, ...]]:
    """Return the values that `--only key=a,b` allows; a setting that is named twice must have the same."""
    said: dict[str, list[str]] = {}
    for pair in pairs:
        key, values = _split(pair)
        if (known := said.setdefault(key, values)) != values:
            both = ",".join(dict.fromkeys([*known, *values]))
            raise ConfigError(
                f"A setting is fixed once, but got {key}={','.join(known)} and {key}={','.join(values)}.",
                hint=f"To try all of these values: {key}={both}",
            )
    return {key: tuple(_value(_names(key), each) for each in values) for key, values in said.items()}


def changed(config: PipelineConfig, pairs: Iterable[str]) -> PipelineConfig:
    """Apply `key=value` changes to a configuration; a change of `loader` takes the new one's defaults."""
    split = [_split(pair) for pair in pairs]
    for key, values in split:
        if len(values) > 1:
            several = f"{key}={','.join(values)}"
            hint = f"Measure them one by one, or let a tune try them: --only {several}, or only=[{several!r}]."
            raise ConfigError(f"One configuration takes one value of each setting, but got {several}.", hint=hint)
    params = dict(from_config(config))
    for key, values in split:
        if key == "loader" and (kind := str(_value(["loader"], values[0]))) != params["loader"]:
            workers = next((value for name, value in params.items() if name.endswith(".workers")), 1)
            params = {name: value for name, value in params.items() if "." not in name} | {"loader": kind}
            knobs = configs.LOADERS[kind].model_fields.items()
            needed = [name for name, field in knobs if field.is_required() and field.annotation is int]
            params |= {f"{kind}.{name}": workers for name in needed}  # it has to be given that number
    for key, values in split:
        if key != "loader":
            for name in _names(key, str(params["loader"])):
                params[name] = _value([name], values[0])
    return to_config(params)


def of_loaders(pairs: Iterable[str]) -> list[str]:
    """Return the pairs that can be checked without the workload: all but the parameters of a wrapped dataset."""
    return [pair for pair in pairs if not pair.strip().startswith(WRAPPED)]


def configured(usual: PipelineConfig, wrapped: WrappedDataset | None, pairs: Sequence[str]) -> PipelineConfig:
    """Apply `key=value`, or `wrapped.NAME=value`, to the `usual` configuration, or to the `wrapped` dataset."""
    ours = of_loaders(pairs)
    theirs = dict(_split(pair) for pair in pairs if pair not in ours)
    if wrapped is None:
        if theirs:
            raise ConfigError(
                f"`{next(iter(theirs))}` is a setting of a dataset of ap.wrap, but this workload is none.",
                hint="Use loader.workers and the like.",
            )
        return changed(usual, ours)
    as_it_is, loader = wrapped.as_it_is, wrapped.as_it_is.loader.model_dump()
    names = [f"{WRAPPED}{name}" for name in wrapped.choices]
    for name, texts in theirs.items():
        if name not in names:
            hint = f"There are: {', '.join(names)}"
            raise ConfigError(f"There is no setting `{name}`.{near(name, names)}", hint=hint)
        knob = name.removeprefix(WRAPPED)
        choice = next((each for each in wrapped.choices[knob] if str(each).lower() == texts[0].lower()), None)
        if choice is None or len(texts) > 1:
            known = ", ".join(map(str, wrapped.choices[knob]))
            raise ConfigError(f"`{name}` cannot be {','.join(texts)!r}.", hint=f"It takes one of {known}.")
        loader[knob] = choice
    return changed(as_it_is.model_copy(update={"loader": type(as_it_is.loader).model_validate(loader)}), ours)


def _split(pair: str) -> tuple[str, list[str]]:
    key, equals, text = pair.partition("=")
    if not equals or not key.strip() or not text.strip():
        raise ConfigError(f"A setting must be written key=value, but got {pair!r}.", hint="For example: keep=memory")
    return key.strip(), [part.strip() for part in text.split(",")]


def _names(key: str, loader: str | None = None) -> list[str]:
    known: Mapping[str, object] = parameter_types()
    if key in known:
        return [key]
    whose = ""
    if key.startswith("loader."):
        knobs = [name for name in known if "." in name and loader in (None, name.partition(".")[0])]
        if names := [name for name in knobs if name.partition(".")[2] == key.removeprefix("loader.")]:
            return names
        known = {f"loader.{name.partition('.')[2]}": None for name in knobs}
        whose = "" if loader is None else f" of the loader {loader}"
    hint = f"There are: {', '.join(known)}"
    raise ConfigError(f"There is no setting `{key}`{whose}.{near_parameter(key, known)}", hint=hint)


def _value(names: Sequence[str], text: str) -> SettingValue:
    """Return a text as a value of the first of these settings that takes it."""
    for name in names:
        with contextlib.suppress(ValueError):
            value: SettingValue = parameter_types()[name].validate_strings(text, strict=True)
            return value
    schema = parameter_types()[names[-1]].json_schema()
    choices = list(map(str, schema.get("enum", ())))
    kinds = [_said(each) for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    hint = f"It takes {', '.join(choices) if choices else ', or '.join(kinds)}."
    raise ConfigError(f"`{names[-1]}` cannot be {text!r}.{near(text, choices)}", hint=hint)


_KINDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a text"}
_ENDS = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most", "exclusiveMaximum": "less than"}


def _said(schema: Mapping[str, Any]) -> str:
    if "const" in schema:
        return str(schema["const"])
    ends = [f"{word} {schema[end]}" for end, word in _ENDS.items() if end in schema]
    kind = _KINDS.get(str(schema.get("type")), "another value")
    return f"{kind} of {' and '.join(ends)}" if ends else kind
