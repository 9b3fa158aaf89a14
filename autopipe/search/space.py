"""A search space on one machine: flat parameters, their values, and the conditions under which each counts.

Also its form in YAML, of the shipped spaces and the user's own, with the place of each mistake; and the space of a
wrapped dataset.

Removing impossible values and choosing the next configuration are in the modules beside this one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.resources
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import pydantic
import yaml

from autopipe import registry
from autopipe.errors import ConfigError, SpaceError, near, shortened
from autopipe.hardware.machine import size_text
from autopipe.pipeline import wrap
from autopipe.pipeline.config import ARGUMENTS, LOADERS, Kept, PipelineConfig, SettingValue

# -------------------- flat parameters (`threads.workers=4`), as in search spaces, studies and on the command line

Params: TypeAlias = dict[str, SettingValue]


def parameter_types() -> dict[str, pydantic.TypeAdapter[Any]]:
    """Return every parameter that does not depend on a function of the user's, with the type that checks its values."""
    fields = {name: field for name, field in PipelineConfig.model_fields.items() if name not in ("loader", ARGUMENTS)}
    for kind in (each for each in LOADERS if not LOADERS[each].takes_any):
        knobs = LOADERS[kind].model_fields.items()
        fields |= {f"{kind}.{knob}": field for knob, field in knobs if knob != "kind"}
    # mypy wants types that are written down; these are put together from the plugins that are there.
    types: dict[str, Any] = {name: Annotated[field.annotation, field] for name, field in fields.items()}
    types = {"loader": Literal[tuple(LOADERS)], **types}
    return {name: pydantic.TypeAdapter(annotation) for name, annotation in types.items()}


def near_parameter(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean `x`?", or an empty text; a knob without its loader is `loader.knob`, that of any."""
    if "." in name:
        return near(name, known)
    knobs = {each.rpartition(".")[2]: "loader." * ("." in each) for each in known}
    return re.sub(r"`(.+)`", lambda match: f"`{knobs[match[1]]}{match[1]}`", near(name, knobs))


def to_config(params: Mapping[str, SettingValue]) -> PipelineConfig:
    """Return the configuration of flat parameters. Raise ConfigError if there is none; the message gives the reason."""
    if "loader" not in params:
        raise ConfigError(f"`loader` is missing among {shortened(dict(params))}.")
    kind = params["loader"]
    loader: dict[str, SettingValue] = {"kind": kind}
    arguments: dict[str, SettingValue] = {}
    rest: dict[str, Any] = {}
    for name, value in params.items():
        owner, dot, knob = name.partition(".")
        if dot and owner in (kind, ARGUMENTS):
            (loader if owner == kind else arguments)[knob] = value
        elif name != "loader":
            rest[name] = value
    return PipelineConfig.model_validate({**rest, "loader": loader, ARGUMENTS: arguments})


def from_config(config: PipelineConfig) -> Params:
    """Return the flat parameters that count for a configuration, the inverse of `to_config`."""
    plain: dict[str, Any] = config.model_dump(mode="json")
    loader, arguments = plain.pop("loader"), plain.pop(ARGUMENTS)
    kind = loader.pop("kind")
    plain |= {f"{ARGUMENTS}.{name}": value for name, value in arguments.items()}
    knobs = {f"{kind}.{knob}": value for knob, value in loader.items() if value is not None}  # None: not set
    return {"loader": kind, **knobs, **plain}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter on one machine."""

    name: str  # `loader`, a field of `PipelineConfig`, or a knob as `<loader>.<knob>`
    values: tuple[SettingValue, ...]  # in order
    # it counts only if each of these earlier parameters has one of the values
    when: tuple[tuple[str, tuple[SettingValue, ...]], ...] = ()

    def counts(self, params: Mapping[str, SettingValue]) -> bool:
        return all(name in params and params[name] in allowed for name, allowed in self.when)

    def following(self, params: Params) -> list[Params]:
        """Return these parameters with each value of this one, if it counts."""
        return [{**params, self.name: value} for value in self.values] if self.counts(params) else [params]


@dataclass(frozen=True, slots=True)
class Space:
    """All parameters of a search on one machine; conditions refer to earlier parameters."""

    parameters: tuple[Parameter, ...]

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters)

    def __getitem__(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        names = [parameter.name for parameter in self.parameters]
        raise SpaceError(f"`{name}` is no parameter of this space.{near_parameter(name, names)}")

    def grid(self) -> Iterator[Params]:
        """Yield every combination that the conditions allow, each once."""
        ways: Iterator[Params] = iter([{}])
        for parameter in self.parameters:
            ways = itertools.chain.from_iterable(map(parameter.following, ways))
        return ways

    def count(self) -> int:
        # Of the values chosen so far, only those that later conditions name decide how many combinations follow.
        ways: Counter[tuple[tuple[str, SettingValue], ...]] = Counter({(): 1})
        for at, parameter in enumerate(self.parameters, 1):
            named = {name for later in self.parameters[at:] for name, _ in later.when}
            before, ways = ways, Counter()
            for chosen, number in before.items():
                for params in parameter.following(dict(chosen)):
                    ways[tuple(each for each in params.items() if each[0] in named)] += number
        return ways.total()

    def only(self, name: str, values: Iterable[SettingValue]) -> Space:
        """Return the space with `name` limited to `values`; raise SpaceError if nothing is left."""
        wanted, parameter = tuple(values), self[name]
        left = tuple(value for value in parameter.values if among(value, wanted))
        if not left:
            known = ", ".join(str(value) for value in parameter.values)
            raise SpaceError(f"`{name}` may be {known}, but only {shortened(list(wanted))} was asked for.")
        limited = replace(parameter, values=left)
        return Space(tuple(limited if each.name == name else each for each in self.parameters))


def among(value: SettingValue, values: Iterable[SettingValue]) -> bool:
    """Return True if `values` hold `value`, of the same type."""
    # True == 1 in Python; as settings they differ.
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values)


# -------------------- its file form, whose bounds are whole numbers and names such as `cores` and `cores*2`

_MOST: Final = 1024  # of anything that a loader counts


class _BoundError(ValueError):
    """A bound that is neither a whole number nor a known name."""


def numbers(known: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers that the names in a file stand for, each from 1 to 1024. `known` has `cores`, `gpus` or both.

    Examples:
        >>> numbers({"cores": 4})["cores/2"]
        2
    """
    found = dict(known)
    if (cores := known.get("cores")) is not None:
        found |= {"cores-1": cores - 1, "cores+1": cores + 1, "cores/4": cores // 4, "cores/2": cores // 2}
        found |= {f"cores*{times}": times * cores for times in (2, 4, 8)}
    return {name: min(max(number, 1), _MOST) for name, number in found.items()}


KeyPath: TypeAlias = tuple[str | int, ...]
_Scalar = pydantic.StrictBool | pydantic.StrictInt | pydantic.StrictFloat | pydantic.StrictStr
_Bound = pydantic.StrictInt | pydantic.StrictStr

_MOST_VALUES = 2048
_COMPUTED = re.compile(r"[*+/(]|\b(cores|gpus)\b")  # in what is no word for a loader


class ParameterSpec(pydantic.BaseModel):
    """One parameter in a file: `choices`, or a `range` from its first bound to the largest other; `when` it counts."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    choices: Annotated[list[_Scalar], pydantic.Field(min_length=1, max_length=_MOST_VALUES)] | None = None
    range: Annotated[list[_Bound], pydantic.Field(min_length=2, max_length=10)] | None = None
    log: pydantic.StrictBool = False
    step: Annotated[pydantic.StrictInt, pydantic.Field(ge=1)] = 1
    when: dict[str, _Scalar | list[_Scalar]] = {}

    @pydantic.model_validator(mode="before")
    @classmethod
    def _list_means_choices(cls, value: Any) -> Any:
        return {"choices": value} if isinstance(value, list) else value

    @pydantic.model_validator(mode="after")
    def _one_domain(self) -> ParameterSpec:
        if (self.choices is None) == (self.range is None):
            raise ValueError("needs either `choices` or `range`, and not both")
        if self.range is None and (self.log or self.step != 1):
            raise ValueError("takes `log` and `step` with `range` only")
        if self.log and self.step != 1:
            raise ValueError("takes `log` or `step`, not both")
        return self


class SpaceSpec(pydantic.BaseModel):
    """A search space in a file."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1]
    description: pydantic.StrictStr = ""
    parameters: Annotated[dict[str, ParameterSpec], pydantic.Field(min_length=1, max_length=100)]


def knobs_of(kinds: Iterable[str], space: str) -> dict[str, Any]:
    """Return the knobs of loaders in the space of that name, as its file would have them."""
    return {
        f"{kind}.{name}": {**(values if isinstance(values, Mapping) else {"choices": values}), "when": {"loader": kind}}
        for kind in kinds
        for name, values in LOADERS[kind].spaces[space].items()
    }


def resolve(
    spec: SpaceSpec, known: Mapping[str, int], where: Callable[[KeyPath], str] = lambda path: ".".join(map(str, path))
) -> Space:
    """Give a space its values on a machine. `known` are the values of bounds, e.g. `{"cores": 8, "gpus": 1}`; `where`
    returns the place of a key in the file, for messages. Raise SpaceError for an unknown parameter, bound or condition,
    or a value that its parameter cannot take.
    """
    types, names = parameter_types(), numbers(known)
    parameters: dict[str, Parameter] = {}
    for name, written in spec.parameters.items():
        path: KeyPath = ("parameters", name)
        if name not in types:
            raise SpaceError(
                f"{where(path)}: `{name}` is no parameter.{near(name, types)}", hint=f"It takes {', '.join(types)}."
            )
        try:
            values = _values(written, names, words=name == "keep")
        except _BoundError as error:
            raise SpaceError(f"{where(path)}: {error}") from None
        for value in values:
            _check_value(name, value, types[name], names, where(path))
        parameters[name] = Parameter(
            name=name, values=values, when=_conditions(written, parameters, where, (*path, "when"))
        )
    if "loader" not in parameters:
        raise SpaceError(f"{where(('parameters',))}: `loader` is missing: it says which loaders to try.")
    return Space(tuple(parameters.values()))


def places(wanted: Iterable[SettingValue], values: Iterable[SettingValue]) -> tuple[SettingValue, ...]:
    """Return those `values` of `keep` that one of the wanted stands for: `memory` stands for `memory:50%` as well."""
    meant = [Kept.of(str(each)) for each in wanted]
    return tuple(value for value in values if any(each.stands_for(Kept.of(str(value))) for each in meant))


def _values(written: ParameterSpec, names: Mapping[str, int], *, words: bool = False) -> tuple[SettingValue, ...]:
    if written.choices is not None:
        # A word is a word ("auto", "jpeg-array") unless a bound's name is in it or it computes something.
        is_bound = [not words and isinstance(each, str) and _COMPUTED.search(each) for each in written.choices]
        both = zip(written.choices, is_bound, strict=True)
        return _unique(_bound(str(each), names) if bound else each for each, bound in both)
    assert written.range is not None
    low, *others = (_bound(end, names) for end in written.range)
    high = max(others)
    if low > high and not any(isinstance(end, str) for end in written.range):
        raise _BoundError(f"a `range` goes up, but this one goes from {low} down to {high}; write [{high}, {low}]")
    high = max(low, high)  # e.g. `range: [1, gpus]` without a GPU
    if written.log:
        if low < 1:
            raise _BoundError(f"a `log` range starts at 1 or above, but this one starts at {low}")
        return _ladder(low, high)
    if (high - low) // written.step >= _MOST_VALUES:
        raise _BoundError(f"{low} to {high} are more than {_MOST_VALUES} values; use `log: true` or a larger `step`")
    return _unique([*range(low, high + 1, written.step)])


def _bound(written: int | str, names: Mapping[str, int]) -> int:
    if isinstance(written, int):
        return written
    if written not in names:
        said = f"a bound is a whole number or one of {', '.join(sorted(names))}, but this one is {written!r}."
        raise _BoundError(f"{said}{near(written, names)}")
    return names[written]


def _ladder(low: int, high: int) -> tuple[SettingValue, ...]:
    steps = {low, high}
    power = 1
    while power <= high:
        steps |= {step for step in (power, power + power // 2) if low <= step <= high}
        power *= 2
    return tuple(sorted(steps))


def _unique(values: Iterable[SettingValue]) -> tuple[SettingValue, ...]:
    kept: list[SettingValue] = []
    for value in values:
        if not among(value, kept):
            kept.append(value)
    return tuple(kept)


def _conditions(
    written: ParameterSpec, earlier: Mapping[str, Parameter], where: Callable[[KeyPath], str], path: KeyPath
) -> tuple[tuple[str, tuple[SettingValue, ...]], ...]:
    conditions = []
    for name, wanted in written.when.items():
        if name not in earlier:
            said = f"`when` names `{name}`, which is no earlier parameter.{near(name, earlier)}"
            raise SpaceError(f"{where((*path, name))}: {said}")
        allowed = tuple(wanted) if isinstance(wanted, list) else (wanted,)
        possible = [str(value) for value in earlier[name].values]
        for value in allowed:
            if not among(value, earlier[name].values):
                said = f"`{name}` is never {value!r} here.{near(str(value), possible)}"
                raise SpaceError(f"{where((*path, name))}: {said}")
        conditions.append((name, allowed if name != "keep" else places(allowed, earlier[name].values)))
    return tuple(conditions)


def _check_value(
    name: str, value: SettingValue, check: pydantic.TypeAdapter[Any], names: Iterable[str], where: str
) -> None:
    try:
        check.validate_python(value, strict=True)
    except ConfigError as error:
        raise SpaceError(f"{where}: {error.message}", hint=error.hint) from None
    except pydantic.ValidationError as error:
        problem = error.errors(include_url=False)[0]
        expected = str(problem.get("ctx", {}).get("expected", "")).replace("'", "")
        guess = near(str(value), expected.replace(" or ", ", ").split(", ") if expected else names)
        raise SpaceError(f"{where}: `{name}` cannot be {value!r}: {problem['msg']}.{guess}") from None


def of_wrapped(parameters: Mapping[str, Sequence[SettingValue]], bounds: Mapping[str, int] | None = None) -> Space:
    """Return the search space of a wrapped dataset with these parameters. With the `bounds` of the machine, loaders are
    tried whose workers make its batches by their index, for which only the parameters of the function count.
    """
    kinds = [] if bounds is None else wrap.kinds_of_workers()
    entries = {"loader": ["wrapped", *kinds], **knobs_of(kinds, wrap.OF_DATASETS)}
    specs = {name: ParameterSpec.model_validate(each) for name, each in entries.items()}
    loader, *others = resolve(SpaceSpec(schema_version=1, parameters=specs), bounds or {})

    owners = {"wrapped": ("wrapped",), ARGUMENTS: tuple(kinds)}
    knobs = (
        Parameter(name=f"{owner}.{name}", values=tuple(values), when=(("loader", loaders),))
        for owner, loaders in owners.items()
        for name, values in parameters.items()
        if owner != ARGUMENTS or (kinds and name not in (*wrap.KNOBS, *LOADERS["wrapped"].model_fields))
    )
    return Space(
        (
            loader,
            *knobs,
            *others,
            Parameter(name="finish", values=("host",)),
            Parameter(name="device_prefetch", values=(0, 2)),
        )
    )


# -------------------- spaces in files: the shipped ones and the user's own

OnMachine: TypeAlias = Callable[[Mapping[str, int]], Space]
"""Gives a space its values on a machine, from its bounds other than the measured ones: `{"cores": 8, "gpus": 1}`."""


def names() -> list[str]:
    """Return the names of the spaces that come with autopipe."""
    return sorted(_shipped())


def load(name_or_file: str, bounds: Mapping[str, int]) -> Space:
    """Read a search space, and give it its values on a machine."""
    return read(name_or_file)(bounds)


def read(name_or_file: str) -> OnMachine:
    """Read a search space: a name from `names()`, or the path of a YAML file. Raises SpaceError for an unknown name,
    and for a mistake in the file, with file, line and key.
    """
    if (shipped := _shipped().get(name_or_file)) is not None:
        return parse(shipped.read_text(encoding="utf-8"), f"{name_or_file}.yaml", added=name_or_file)
    path = Path(name_or_file)
    if not path.is_file():
        said = f"`space` must be one of {', '.join(names())}, or a YAML file, but got {name_or_file!r}."
        raise SpaceError(f"{said}{near(name_or_file, names())}")
    if (size := path.stat().st_size) > (most := 1 << 18):
        raise SpaceError(f"{path} has {size_text(size)}; a search space has at most {size_text(most)}.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path} cannot be read: {error}.") from error
    return parse(text, str(path))


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


def parse(text: str, file: str = "space.yaml", *, added: str | None = None) -> OnMachine:
    """Parse YAML from a file of that name. Loaders that are `added` to a shipped space report their own mistakes."""
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


# -------------------- YAML, and positions in it

_Lines = dict[KeyPath, int]


@functools.lru_cache(maxsize=8)
def _read_yaml(text: str, file: str) -> tuple[Any, _Lines]:
    try:
        depth = 0  # aliases may expand to gigabytes, and deep nesting may take minutes
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            line = 1 if event.start_mark is None else event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent):
                raise SpaceError(f"{file}, line {line}: `*{event.anchor}`: a search space takes no aliases.")
            if depth > 10:
                raise SpaceError(f"{file}, line {line}: this is nested too deeply for a search space.")
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
