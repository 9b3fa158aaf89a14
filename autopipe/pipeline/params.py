"""Flat parameters (`threads.workers=4`), what each may be, and the `PipelineConfig` they stand for.

The names used in search spaces, in studies and on the command line. What a search may try is `autopipe.search.space`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import pydantic

from autopipe.errors import ConfigError, near, shortened
from autopipe.pipeline.config import LOADERS, STORAGES, PipelineConfig

Value: TypeAlias = str | int | float | bool
Params: TypeAlias = dict[str, Value]


def parameter_types() -> dict[str, pydantic.TypeAdapter[Any]]:
    """Return every parameter there is, with what checks a value of it."""
    fields = {name: field for name, field in PipelineConfig.model_fields.items() if name != "loader"}
    for kind in LOADERS:
        knobs = LOADERS[kind].model_fields.items()
        fields |= {f"{kind}.{knob}": field for knob, field in knobs if knob != "kind"}
    # mypy wants types that are written down; these are put together from the plugins that are there.
    types: dict[str, Any] = {name: Annotated[field.annotation, field] for name, field in fields.items()}
    types = {"loader": Literal[tuple(LOADERS)], **types, "storage": Literal[tuple(STORAGES)]}
    return {name: pydantic.TypeAdapter(annotation) for name, annotation in types.items()}


def near_parameter(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean `x`?", or nothing; a loader's knob without the loader is `loader.knob`, that of any."""
    if "." in name:
        return near(name, known)
    knobs = {each.rpartition(".")[2]: "loader." * ("." in each) for each in known}
    return re.sub(r"`(.+)`", lambda match: f"`{knobs[match[1]]}{match[1]}`", near(name, knobs))


def to_config(params: Mapping[str, Value]) -> PipelineConfig:
    """Return the configuration that flat parameters stand for.

    Raises:
        ConfigError: there is none; the message says why.
    """
    if "loader" not in params:
        raise ConfigError(f"`loader` is missing among {shortened(dict(params))}.")
    kind = params["loader"]
    loader: dict[str, Value] = {"kind": kind}
    rest: dict[str, Any] = {}
    for name, value in params.items():
        owner, dot, knob = name.partition(".")
        if dot and owner == kind:
            loader[knob] = value
        elif name != "loader":
            rest[name] = value
    return PipelineConfig.model_validate({**rest, "loader": loader})


def from_config(config: PipelineConfig) -> Params:
    """Return the flat parameters that count for a configuration; `to_config` turns them back."""
    plain: dict[str, Any] = config.model_dump(mode="json", exclude=config.idle())
    loader = plain.pop("loader")
    kind = loader.pop("kind")
    knobs = {f"{kind}.{knob}": value for knob, value in loader.items() if value is not None}  # None: not set
    return {"loader": kind, **knobs, **plain}
