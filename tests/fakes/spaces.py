"""What a test asks of a space."""

from __future__ import annotations

from collections.abc import Mapping

from autopipe.pipeline.config import SettingValue
from autopipe.search.space import Space, among


def holds(space: Space, params: Mapping[str, SettingValue]) -> bool:
    """Whether `params` names every parameter that counts, and no other, each with a value it may take."""
    counting = {parameter.name for parameter in space.parameters if parameter.counts(params)}
    return counting == set(params) and all(among(value, space[name].values) for name, value in params.items())
