"""What `--set` and `--only` hold parameters to, in terms of one search space."""

from __future__ import annotations

from collections.abc import Mapping

from autopipe.core.params import Value
from autopipe.core.space import Space
from autopipe.errors import SpaceError

ANY_LOADER = "loader."
"""`loader.workers` stands for the workers of every loader that has such a knob."""


def held(space: Space, only: Mapping[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
    """Return the same with the parameters that the space has, in place of `loader.KNOB`.

    A loader that has the knob, but none of the values, is left out of the search.

    Raises:
        SpaceError: no loader of the space has such a knob with such a value.
    """
    found: dict[str, tuple[Value, ...]] = {}
    unfit: set[Value] = set()
    for name, values in only.items():
        if not name.startswith(ANY_LOADER):
            found[name] = values
            continue
        knob = name.removeprefix(ANY_LOADER)
        having = [each for each in space if each.name.partition(".")[2] == knob]
        fitting = [each for each in having if set(each.values) & set(values)]
        if not fitting:
            known = "; ".join(f"{each.name} may be {', '.join(map(str, each.values))}" for each in having)
            raise SpaceError(
                f"`{name}` cannot be {', '.join(map(str, values))} in this space.",
                hint=f"There: {known}." if known else f"No loader of this space has `{knob}`.",
            )
        found |= {each.name: values for each in fitting}
        unfit |= {each.name.partition(".")[0] for each in having} - {each.name.partition(".")[0] for each in fitting}
    if unfit:
        allowed = found.get("loader", space["loader"].values)
        found["loader"] = tuple(kind for kind in allowed if kind not in unfit)
    return found
