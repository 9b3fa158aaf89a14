"""What a file says of a search space, and what that means on one machine.

What a file names and only a measurement can tell stays open in the space until `Space.measured`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

import pydantic

from autopipe.core.bounds import BoundError, evaluate
from autopipe.core.params import Value, parameter_types
from autopipe.core.space import MEASURED_BOUNDS, Parameter, Space, among, within
from autopipe.errors import SpaceError, near

Path: TypeAlias = tuple[str | int, ...]
Scalar = pydantic.StrictBool | pydantic.StrictInt | pydantic.StrictFloat | pydantic.StrictStr
Bound = pydantic.StrictInt | pydantic.StrictStr

MOST_VALUES = 2048
_WORD = re.compile(r"[A-Za-z_]+")


class ParameterSpec(pydantic.BaseModel):
    """One parameter as a file writes it: `choices`, or a `range` of whole numbers, and `when` it counts."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    choices: Annotated[list[Scalar], pydantic.Field(min_length=1, max_length=MOST_VALUES)] | None = None
    range: tuple[Bound, Bound] | None = None
    log: pydantic.StrictBool = False
    step: Annotated[pydantic.StrictInt, pydantic.Field(ge=1)] = 1
    when: dict[str, Scalar | list[Scalar]] = {}

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
    """A search space as a file writes it."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1]
    description: pydantic.StrictStr = ""
    parameters: Annotated[dict[str, ParameterSpec], pydantic.Field(min_length=1, max_length=100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits:
    """How the values of a parameter follow from bounds that are yet to be measured."""

    name: str
    written: ParameterSpec
    known: Mapping[str, int]
    check: pydantic.TypeAdapter[Any] = field(repr=False)
    where: str = field(repr=False)  # left out of a study's digest: the file may be moved

    def __call__(self, measured: Mapping[str, int]) -> tuple[Value, ...]:
        names = {**self.known, **measured}
        try:
            values = _values(self.written, names)
        except BoundError as error:
            raise SpaceError(f"{self.where}: {error}") from None
        for value in values:
            _check_value(self.name, value, self.check, names, self.where)
        return values


def resolve(
    spec: SpaceSpec, names: Mapping[str, int], where: Callable[[Path], str] = lambda path: ".".join(map(str, path))
) -> Space:
    """Give a space its values on a machine.

    Args:
        spec: what the file says.
        names: what bounds may name, e.g. `{"cores": 8, "gpus": 1}`, beside what is yet to be measured.
        where: says where in the file a key is, for messages.

    Raises:
        SpaceError: an unknown parameter, bound or condition, or a value that its parameter cannot take.
    """
    known = parameter_types()
    parameters: dict[str, Parameter] = {}
    # Where nothing waits, one read at a time and a worker a core are enough.
    still = {name: 1 if name == "reads_at_once" else names.get("cores", 1) for name in MEASURED_BOUNDS}
    for name, written in spec.parameters.items():
        path: Path = ("parameters", name)
        if name not in known:
            raise SpaceError(
                f"{where(path)}: `{name}` is no parameter.{near(name, known)}", hint=f"It takes {', '.join(known)}."
            )
        waits = _Waits(name=name, written=written, known={**still, **names}, check=known[name], where=where(path))
        parameters[name] = Parameter(
            name=name,
            values=waits({}),
            unmeasured=None if _named(written).isdisjoint(still) else waits,
            is_range=written.range is not None,
            log=written.log,
            when=_conditions(written, parameters, where, (*path, "when")),
        )
    if "loader" not in parameters:
        raise SpaceError(f"{where(('parameters',))}: `loader` is missing: it says which loaders to try.")
    return Space(tuple(parameters.values()))


def _named(written: ParameterSpec) -> set[str]:
    """Return the words in a parameter's bounds."""
    bounds = [each for each in (*(written.choices or ()), *(written.range or ())) if isinstance(each, str)]
    return {word for bound in bounds for word in _WORD.findall(bound)}


def _values(written: ParameterSpec, names: Mapping[str, int]) -> tuple[Value, ...]:
    if written.choices is not None:
        return _unique(_choice(choice, names) for choice in written.choices)
    assert written.range is not None
    low, high = (end if isinstance(end, int) else evaluate(end, names) for end in written.range)
    if low > high and not _named(written):
        raise BoundError(f"a `range` goes up, but this one goes from {low} down to {high}; write [{high}, {low}]")
    high = max(low, high)  # e.g. `range: [1, gpus]` where there is no GPU
    if written.log:
        if low < 1:
            raise BoundError(f"a `log` range starts at 1 or above, but this one starts at {low}")
        return _ladder(low, high)
    if (high - low) // written.step >= MOST_VALUES:
        raise BoundError(f"{low} to {high} are more than {MOST_VALUES} values; use `log: true` or a larger `step`")
    return _unique([*range(low, high + 1, written.step)])


def _choice(choice: Value, names: Mapping[str, int]) -> Value:
    # A word is a word ("auto", "jpeg-array") unless a bound's name is in it or it computes something.
    if isinstance(choice, str) and (names.keys() & _WORD.findall(choice) or any(sign in choice for sign in "*+/(")):
        return evaluate(choice, names)
    return choice


def _ladder(low: int, high: int) -> tuple[Value, ...]:
    steps = {low, high}
    power = 1
    while power <= high:
        steps |= {step for step in (power, power + power // 2) if low <= step <= high}
        power *= 2
    return tuple(sorted(steps))


def _unique(values: Iterable[Value]) -> tuple[Value, ...]:
    kept: list[Value] = []
    for value in values:
        if not among(value, kept):
            kept.append(value)
    return tuple(kept)


def _conditions(
    written: ParameterSpec, earlier: Mapping[str, Parameter], where: Callable[[Path], str], path: Path
) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    conditions = []
    for name, wanted in written.when.items():
        if name not in earlier:
            raise SpaceError(
                f"{where((*path, name))}: `when` names `{name}`, which is no earlier parameter.{near(name, earlier)}"
            )
        allowed = tuple(wanted) if isinstance(wanted, list) else (wanted,)
        possible = [str(value) for value in earlier[name].values]
        for value in allowed:
            if not within(earlier[name], value):
                raise SpaceError(
                    f"{where((*path, name))}: `{name}` is never {value!r} here.{near(str(value), possible)}"
                )
        conditions.append((name, allowed))
    return tuple(conditions)


def _check_value(name: str, value: Value, check: pydantic.TypeAdapter[Any], names: Iterable[str], where: str) -> None:
    try:
        check.validate_python(value, strict=True)
    except pydantic.ValidationError as error:
        problem = error.errors(include_url=False)[0]
        expected = str(problem.get("ctx", {}).get("expected", "")).replace("'", "")
        guess = near(str(value), expected.replace(" or ", ", ").split(", ") if expected else names)
        raise SpaceError(f"{where}: `{name}` cannot be {value!r}: {problem['msg']}.{guess}") from None
