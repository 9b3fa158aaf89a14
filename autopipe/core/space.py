"""A search space on one machine: which values each parameter may take, and when it counts at all.

What a file says of it is `autopipe.core.space_spec`'s. Reading files, leaving out what cannot run and choosing what to
try next belong to `autopipe.search`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from autopipe.core.params import Params, Value, near_parameter
from autopipe.errors import SpaceError, shortened

MEASURED_BOUNDS: Final = ("reads_at_once", "workers_at_once", "workers_beside_reads")
"""Names of bounds that are measured at the beginning of a search; `Facts` says under the same names what they are."""

Unmeasured: TypeAlias = Callable[[Mapping[str, int]], tuple[Value, ...]]
"""Returns the values of a parameter from what was measured, by the names in `MEASURED_BOUNDS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter on one machine."""

    name: str  # `loader`, a field of `PipelineConfig`, or a knob as `<loader>.<knob>`
    # what it may be, in order; a logarithmic range holds the steps 1, 2, 3, 4, 6, 8, 12, ... and both ends
    values: tuple[Value, ...]
    is_range: bool = False  # whether whole numbers between the values make sense as well
    log: bool = False  # whether equal ratios, not equal differences, are equal steps
    # it counts only where each of these earlier parameters has one of the values named
    when: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    # where the file names what is yet to be measured; `values` are then those of a machine where nothing waits
    unmeasured: Unmeasured | None = None

    def counts(self, params: Mapping[str, Value]) -> bool:
        """Whether it counts, given the earlier parameters."""
        return all(name in params and params[name] in allowed for name, allowed in self.when)


@dataclass(frozen=True, slots=True)
class Space:
    """All parameters of a search on one machine, in an order in which conditions point backwards."""

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
        return self._grid({}, 0)

    def _grid(self, chosen: Params, at: int) -> Iterator[Params]:
        if at == len(self.parameters):
            yield dict(chosen)
            return
        parameter = self.parameters[at]
        if not parameter.counts(chosen):
            yield from self._grid(chosen, at + 1)
            return
        for value in parameter.values:
            yield from self._grid({**chosen, parameter.name: value}, at + 1)

    def sample(self, rng: random.Random) -> Params:
        """Draw one combination: each parameter that counts, evenly among its values."""
        params: Params = {}
        for parameter in self.parameters:
            if parameter.counts(params):
                params[parameter.name] = rng.choice(parameter.values)
        return params

    @property
    def unmeasured(self) -> dict[str, Unmeasured]:
        """What says the values of those parameters that wait for a measurement, by name."""
        return {each.name: each.unmeasured for each in self.parameters if each.unmeasured is not None}

    def measured(self, bounds: Mapping[str, int]) -> Space:
        """Return the space with the values that follow from what was measured, by the names in `MEASURED_BOUNDS`.

        Raises:
            SpaceError: a parameter cannot take one of them.
        """
        found = {name: values(bounds) for name, values in self.unmeasured.items()}
        return Space(
            tuple(
                replace(each, values=found[each.name], unmeasured=None) if each.name in found else each
                for each in self.parameters
            )
        )

    def only(self, name: str, values: Iterable[Value]) -> Space:
        """Return the space with `name` limited to `values`.

        Raises:
            SpaceError: the parameter is not there, or none of its values is left.
        """
        wanted, parameter = tuple(values), self[name]
        left = tuple(value for value in parameter.values if among(value, wanted))
        if not left and parameter.unmeasured is not None:
            return self  # it may be among those that are measured
        if not left:
            known = ", ".join(str(value) for value in parameter.values)
            raise SpaceError(f"`{name}` may be {known}, but only {shortened(list(wanted))} was asked for.")
        limited = replace(parameter, values=left)
        return Space(tuple(limited if each.name == name else each for each in self.parameters))


def among(value: Value, values: Iterable[Value]) -> bool:
    """Whether `values` hold `value`, of the same kind."""
    # True == 1 in Python; as settings they differ.
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values)


def within(parameter: Parameter, value: Value) -> bool:
    """Whether the parameter may be `value`: one of its values, or for a range a whole number between them."""
    if parameter.is_range and isinstance(value, int) and not isinstance(value, bool):
        numbers = [each for each in parameter.values if isinstance(each, int)]
        return min(numbers) <= value <= max(numbers)
    return among(value, parameter.values)
