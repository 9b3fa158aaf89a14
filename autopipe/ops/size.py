"""Heights and widths in pixels that a user gives to an op."""

from __future__ import annotations

from autopipe.errors import ConfigError


def check_size(op: object, height: int, width: int) -> None:
    """Refuse sizes that are not whole positive numbers of pixels."""
    for name, value in (("height", height), ("width", width)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(
                f"`{name}` of {type(op).__name__} must be a whole number of pixels >= 1, but got {name}={value!r}."
            )
