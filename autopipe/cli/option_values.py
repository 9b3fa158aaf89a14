"""Reads the texts of a command line: `key=value`, durations, sizes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autopipe.errors import ConfigError, near, shortened
from autopipe.measure.facts import WrappedDataset
from autopipe.pipeline import config as configs
from autopipe.pipeline.config import PipelineConfig, Value
from autopipe.pipeline.devices.simulated import SimulatedAccelerator

WRAPPED = "wrapped."  # the prefix of the settings of a dataset of `ap.wrap`

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WHOLE = re.compile(r"[1-9][0-9]{0,8}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def seconds(text: str, option: str) -> float:
    """Parse a duration such as `90s`, `3m`, `1.5h` or `15ms`."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise _refused(option, "a duration such as 90s, 3m or 15ms", text, "ms", "s", "m")
    return float(match[1]) * _SECONDS[match[2]]


def size(text: str, option: str) -> int:
    """Parse a size such as `8G` or `500MiB`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise _refused(option, "a size such as 8G or 500M", text, "M", "G")
    return int(float(match[1]) * _UNITS[(match[2] or "").upper()])


def batch_sizes(text: str, option: str) -> tuple[int, ...]:
    """Parse batch sizes such as `16,32,64`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(_WHOLE.fullmatch(part) for part in parts):
        raise ConfigError(
            f"`{option}` must be whole numbers of 1 or more, with commas between them, but got {shortened(text)}.",
            hint=f"For example: {option} 16,32,64",
        )
    return tuple(map(int, parts))


def accelerator(text: str, option: str) -> SimulatedAccelerator:
    """Parse a simulated accelerator: `15ms` per step, or `224ms/400` per step of 400 images."""
    duration, slash, images = text.partition("/")
    if _DURATION.fullmatch(duration.strip().lower()) is None or (slash and not images.strip().isdecimal()):
        raise _refused(option, "a duration such as 15ms, or one for some images such as 224ms/400", text, "ms", "s")
    return SimulatedAccelerator(seconds(duration, option), int(images) if slash else None)


def _refused(option: str, wanted: str, text: str, *units: str) -> ConfigError:
    hint = None
    if _NUMBER.fullmatch(text.strip()) is not None:
        hint = f"A number needs a unit: {' or '.join(f'{option} {text.strip()}{unit}' for unit in units)}."
    return ConfigError(f"`{option}` must be {wanted}, but got {text!r}.", hint=hint)


def allowed(pairs: Iterable[str]) -> dict[str, tuple[Value, ...]]:
    """Return the values that `--only key=a,b` allows for each parameter.

    `loader.workers` stands for the workers of any loader and is kept as it is. A setting that is named twice with
    different values is refused.
    """
    said: dict[str, list[str]] = {}
    for pair in pairs:
        key, values = _split(pair)
        if (known := said.setdefault(key, values)) != values:
            both = ",".join(dict.fromkeys([*known, *values]))
            raise ConfigError(
                f"A setting is fixed once, but got {key}={','.join(known)} and {key}={','.join(values)}.",
                hint=f"To try all of these values: --only {key}={both}",
            )
    return {key: tuple(_value_of_any(_names(key), each) for each in values) for key, values in said.items()}


def changed(config: PipelineConfig, pairs: Iterable[str]) -> PipelineConfig:
    """Apply `key=value` changes to a configuration; a change of `loader` takes the new one's defaults."""
    split = [_split(pair) for pair in pairs]
    for key, values in split:
        if len(values) > 1:
            several = f"{key}={','.join(values)}"
            raise ConfigError(
                f"One configuration takes one value of each setting, but got {several}.",
                hint=f"Measure them one by one, or let `autopipe tune` try them: --only {several}",
            )
    params = dict(configs.from_config(config))
    for key, values in split:
        if key == "loader":
            kind = str(_value("loader", values[0]))
            if kind != params["loader"]:
                workers = next((value for name, value in params.items() if name.endswith(".workers")), 1)
                params = {name: value for name, value in params.items() if "." not in name} | {"loader": kind}
                knobs = configs.LOADERS[kind].model_fields.items()
                needed = [name for name, field in knobs if field.is_required() and field.annotation is int]
                params |= {f"{kind}.{name}": workers for name in needed}  # it has to be given that number
    for key, values in split:
        if key != "loader":
            for name in _names(key, str(params["loader"])):
                params[name] = _value(name, values[0])
    return configs.to_config(params)


def of_loaders(pairs: Iterable[str]) -> list[str]:
    """Return the pairs that can be checked without the workload: all but the parameters of a wrapped dataset."""
    return [pair for pair in pairs if not pair.strip().startswith(WRAPPED)]


def configured(usual: PipelineConfig, wrapped: WrappedDataset | None, pairs: Sequence[str]) -> PipelineConfig:
    """Apply changes to the configuration to measure: the `usual` one, or the user's `wrapped` dataset if there is one.

    They are `key=value`, or `wrapped.NAME=value` for a parameter of the user's function.
    """
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
            raise ConfigError(
                f"There is no setting `{name}`.{near(name, names)}", hint=f"There are: {', '.join(names)}"
            )
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
        raise ConfigError(
            f"A setting must be written key=value, but got {pair!r}.", hint="For example: --set keep=memory"
        )
    return key.strip(), [part.strip() for part in text.split(",")]


def _names(key: str, loader: str | None = None) -> list[str]:
    known: Mapping[str, object] = configs.parameter_types()
    if key in known:
        return [key]
    whose = ""
    if key.startswith("loader."):
        knobs = [name for name in known if "." in name and loader in (None, name.partition(".")[0])]
        if names := [name for name in knobs if name.partition(".")[2] == key.removeprefix("loader.")]:
            return names
        known = {f"loader.{name.partition('.')[2]}": None for name in knobs}
        whose = "" if loader is None else f" of the loader {loader}"
    raise ConfigError(
        f"There is no setting `{key}`{whose}.{configs.near_parameter(key, known)}",
        hint=f"There are: {', '.join(known)}",
    )


def _value_of_any(names: list[str], text: str) -> Value:
    for name in names[:-1]:
        with contextlib.suppress(ConfigError):
            return _value(name, text)
    return _value(names[-1], text)


def _value(name: str, text: str) -> Value:
    adapter = configs.parameter_types()[name]
    try:
        value: Value = adapter.validate_strings(text, strict=True)
    except ValueError:
        names = map(str, adapter.json_schema().get("enum", ()))
        raise ConfigError(f"`{name}` cannot be {text!r}.{near(text, names)}", hint=_hint(name)) from None
    return value


_KINDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a text"}
_ENDS = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most", "exclusiveMaximum": "less than"}


def _hint(name: str) -> str:
    schema = configs.parameter_types()[name].json_schema()
    if "enum" in schema:
        return f"It takes {', '.join(map(str, schema['enum']))}."
    said = [_said(each) for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    return f"It takes {', or '.join(said)}."


def _said(schema: Mapping[str, Any]) -> str:
    """Describe in words the values that a JSON schema allows."""
    if "const" in schema:
        return str(schema["const"])
    ends = [f"{word} {schema[end]}" for end, word in _ENDS.items() if end in schema]
    kind = _KINDS.get(str(schema.get("type")), "another value")
    return f"{kind} of {' and '.join(ends)}" if ends else kind
