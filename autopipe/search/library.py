"""Search spaces in files: the shipped ones and the user's own.

Reads YAML (`yaml.safe_load`) and names the place of a mistake. The meaning of the keys is in `autopipe.search.space`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.resources
from collections.abc import Callable, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeAlias

import pydantic
import yaml

from autopipe import registry
from autopipe.errors import SpaceError, near, shortened
from autopipe.hardware.machine import size_text
from autopipe.pipeline.config import LOADERS, SettingValue
from autopipe.search.space import KeyPath, ParameterSpec, Space, SpaceSpec, knobs_of, resolve

OnMachine: TypeAlias = Callable[[Mapping[str, int]], Space]
"""Gives a space its values on a machine, from its bounds other than the measured ones: `{"cores": 8, "gpus": 1}`."""


def names() -> list[str]:
    """Return the names of the spaces that come with autopipe."""
    return sorted(_shipped())


def load(name_or_file: str, bounds: Mapping[str, int]) -> Space:
    """Read a search space, see `read`, and give it its values on a machine."""
    return read(name_or_file)(bounds)


def read(name_or_file: str) -> OnMachine:
    """Read a search space: a name from `names()`, or the path of a YAML file. Raises SpaceError for an unknown name,
    and for a mistake in the file, with file, line and key.
    """
    text, file = _text(name_or_file)
    return _parsed(text, file, added=name_or_file if name_or_file in _shipped() else None)


def require(space: Space, name: str, values: Sequence[SettingValue], bounds: Mapping[str, int]) -> None:
    """Raise SpaceError unless a parameter can have one of these values; the hint names a shipped space that has one."""
    try:
        space.only(name, values)
    except SpaceError as error:
        if (other := _having(name, values, bounds)) is None:
            raise
        hint = f'The space `{other}` has it: --space {other}, or ap.tune(..., space="{other}").'
        raise SpaceError(error.message, hint=hint) from None


def _having(name: str, values: Sequence[SettingValue], bounds: Mapping[str, int]) -> str | None:
    for each in names():
        with contextlib.suppress(SpaceError):
            load(each, bounds).only(name, values)
            return each
    return None


def parse(text: str, bounds: Mapping[str, int], *, file: str = "space.yaml") -> Space:
    """Read a search space from YAML text, see `read`; `file` is its name in messages."""
    return _parsed(text, file)(bounds)


def _parsed(text: str, file: str, *, added: str | None = None) -> OnMachine:
    """Parse a space; loaders that are `added` to the shipped space of that name report their own mistakes."""
    data, lines = _read_yaml(text, file)
    if added is not None:
        # Followed by those of loaders that name it.
        parameters, kinds = data["parameters"], [kind for kind in LOADERS if added in LOADERS[kind].spaces]
        end = max((place for place, name in enumerate(parameters) if "." in name), default=0) + 1
        items, loader = list(parameters.items()), [*parameters["loader"], *kinds]
        whole = {**dict(items[:end]), **knobs_of(kinds, added), **dict(items[end:]), "loader": loader}
        data = {**data, "parameters": whole}

    def where(path: KeyPath) -> str:
        known = next((path[:end] for end in range(len(path), 0, -1) if path[:end] in lines), ())
        return f"{file}, line {lines.get(known, 1)}, `{_dotted(path)}`" if path else f"{file}, line 1"

    if not isinstance(data, dict):
        raise SpaceError(f"{where(())}: a search space is a mapping, but this is {shortened(data)}.")
    try:
        spec = SpaceSpec.model_validate(data)
    except pydantic.ValidationError as error:
        raise SpaceError(_sentence(error, lines, where)) from None
    return functools.partial(resolve, spec, where=where)


def _shipped() -> dict[str, Traversable]:
    """Return the files of spaces that come with autopipe and with extensions, by their names."""
    folder: Traversable = importlib.resources.files("autopipe") / "search_spaces"
    if not folder.is_dir():
        folder = Path(__file__).parents[2] / "search_spaces"  # a checkout, or an editable install of one
    found = {each.name.removesuffix(".yaml"): each for each in folder.iterdir() if each.name.endswith(".yaml")}
    for entry in registry.declared("autopipe.search_spaces"):
        found[entry.name] = importlib.resources.files(entry.module) / f"{entry.name}.yaml"
    return found


def _text(name_or_file: str) -> tuple[str, str]:
    shipped = _shipped().get(name_or_file)
    if shipped is not None:
        return shipped.read_text(encoding="utf-8"), f"{name_or_file}.yaml"
    path = Path(name_or_file)
    if not path.is_file():
        known = ", ".join(names())
        raise SpaceError(
            f"`space` must be one of {known}, or a YAML file, but got {name_or_file!r}.{near(name_or_file, names())}"
        )
    if (size := path.stat().st_size) > (most := 1 << 18):
        raise SpaceError(f"{path} has {size_text(size)}; a search space has at most {size_text(most)}.")
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path} cannot be read: {error}.") from error


# -------------------- YAML, and positions in it

_Lines = dict[KeyPath, int]


@functools.lru_cache(maxsize=8)
def _read_yaml(text: str, file: str) -> tuple[Any, _Lines]:
    try:
        _refuse_what_explodes(text, file)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        lines: _Lines = {}
        if node is not None:
            _note_lines(node, (), lines, file)
        return yaml.safe_load(text), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}, line {mark.line + 1}" if mark else file
        raise SpaceError(f"{place}: this is no YAML: {error.problem or error.context}.") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # e.g. a date that no calendar has
        raise SpaceError(f"{file}: this is no YAML: {error}.") from None


def _refuse_what_explodes(text: str, file: str) -> None:
    """Refuse a text whose aliases expand to gigabytes, or whose deep nesting takes minutes."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise SpaceError(f"{file}, line {line}: `*{event.anchor}`: a search space takes no aliases.")
        if depth > 10:
            raise SpaceError(f"{file}, line {line}: this is nested too deeply for a search space.")


def _note_lines(node: yaml.Node, path: KeyPath, lines: _Lines, file: str) -> None:
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _note_lines(item, (*path, index), lines, file)
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            here = (*path, str(key.value))
            if here in seen:
                raise SpaceError(f"{file}, line {key.start_mark.line + 1}: `{_dotted(here)}` is there twice.")
            seen.add(here)
            _note_lines(value, here, lines, file)
            lines[here] = key.start_mark.line + 1


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path)


def _sentence(error: pydantic.ValidationError, lines: _Lines, where: Callable[[KeyPath], str]) -> str:
    problems = error.errors(include_url=False)
    # An unknown key explains the missing one.
    problem = min(problems, key=lambda each: each["type"] != "extra_forbidden")
    path: KeyPath = ()
    for part in problem["loc"]:  # pydantic's names of union members are not in the file
        path = (*path, part) if (*path, part) in lines else path
    if problem["type"] == "extra_forbidden":
        known = SpaceSpec.model_fields if len(path) == 1 else ParameterSpec.model_fields
        return f"{where(path)}: there is no such key; it takes {', '.join(known)}.{near(str(path[-1]), known)}"
    if problem["type"] == "missing":
        return f"{where(path)}: `{problem['loc'][-1]}` is missing."
    if problem["type"] in ("model_type", "model_attributes_type"):
        return f"{where(path)}: should be a list of values or a mapping, but got {shortened(problem['input'])}."
    text = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{where(path)}: {text}, but got {shortened(problem['input'])}."
