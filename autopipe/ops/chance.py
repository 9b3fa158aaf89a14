"""How ops make what they need of a sample's uniform random numbers, and how they refuse impossible ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from autopipe.core.plain_code import Lines
from autopipe.errors import ConfigError

Range: TypeAlias = tuple[float, float]
Box: TypeAlias = tuple[Any, Any, Any, Any]  # top, left, height, width


def between(limits: Range, number: Any) -> Any:
    """Return the value that stands in `limits` where `number` stands in [0, 1)."""
    return limits[0] + (limits[1] - limits[0]) * number


def symmetric(limit: float, number: Any) -> Any:
    """Return the value in [-limit, limit] for a number in [0, 1)."""
    return (2 * number - 1) * limit


def box(size: tuple[int, int], area: Range, ratio: Range, random: Any) -> Box:
    """Return a rectangle inside an image of `size` (height, width), from four random numbers.

    Args:
        size: height and width of the image in pixels.
        area: the smallest and the largest share of the image.
        ratio: width to height, the smallest and the largest; drawn evenly on a logarithmic scale. A rectangle that
            would be larger than the image is cut to it.
        random: four numbers: area, ratio, top, left.
    """
    share, aspect = between(area, random[0]), ratio[0] * (ratio[1] / ratio[0]) ** random[1]
    height = _side(size[0], (size[0] * size[1] * share / aspect) ** 0.5)
    width = _side(size[1], (size[0] * size[1] * share * aspect) ** 0.5)
    return int(random[2] * (size[0] - height + 1)), int(random[3] * (size[1] - width + 1)), height, width


def plain_box(part: str, area: Range, ratio: Range) -> Lines:
    """Return lines of NumPy that draw such a rectangle in a part: `top`, `left`, `height` and `width`."""
    logs = tuple(round(math.log(end), 6) for end in ratio)
    return [
        f"pixels = {part}.shape[0] * {part}.shape[1] * rng.uniform{area!r}",
        f"ratio = np.exp(rng.uniform{logs!r})",
        f"height = min({part}.shape[0], max(1, round((pixels / ratio) ** 0.5)))",
        f"width = min({part}.shape[1], max(1, round((pixels * ratio) ** 0.5)))",
        f"top, left = rng.integers(({part}.shape[0] - height + 1, {part}.shape[1] - width + 1))",
    ]


def plain_box_tensorflow(part: str, area: Range, ratio: Range) -> Lines:
    """Return the same as lines of TensorFlow."""
    logs = tuple(round(math.log(end), 6) for end in ratio)
    return [
        f"down, across = tf.unstack(tf.cast(tf.shape({part})[:2], tf.float32))",
        f"pixels = down * across * tf.random.uniform((), {area[0]!r}, {area[1]!r})",
        f"ratio = tf.exp(tf.random.uniform((), {logs[0]!r}, {logs[1]!r}))",
        "height = tf.clip_by_value(tf.round(tf.sqrt(pixels / ratio)), 1, down)",
        "width = tf.clip_by_value(tf.round(tf.sqrt(pixels * ratio)), 1, across)",
        "top = tf.random.uniform(()) * (down - height + 1)",
        "left = tf.random.uniform(()) * (across - width + 1)",
        "top, left, height, width = tf.unstack(tf.cast((top, left, height, width), tf.int32))",
    ]


def _side(most: int, wanted: float) -> int:
    return min(most, max(1, int(wanted + 0.5)))


def checked_range(
    op: object, name: str, *, least: float = 0.0, most: float = float("inf"), above: bool = False
) -> None:
    """Keep an op's range as a tuple of two floats, and refuse one that is none, or reaches beyond its limits.

    Args:
        op: a frozen dataclass.
        name: of its setting.
        least: the smallest lower end.
        most: the largest upper end.
        above: whether the lower end must be more than `least`.

    Raises:
        ConfigError: it is no pair of numbers in order within the limits.
    """
    value = getattr(op, name)
    if isinstance(value, Sequence) and len(value) == 2 and all(isinstance(end, int | float) for end in value):
        lower, upper = (float(end) for end in value)
        if least <= lower <= upper <= most and not (above and lower == least):
            object.__setattr__(op, name, (lower, upper))
            return
    limits = f"{'more than ' if above else 'at least '}{least:g}" + (
        f", at most {most:g}" if most < float("inf") else ""
    )
    raise ConfigError(
        f"`{name}` of {type(op).__name__} must be two numbers (lower, upper), {limits}, but got {name}={value!r}."
    )


def check_number(op: object, name: str, *, least: float = 0.0, most: float = 1.0, above: bool = False) -> None:
    """Refuse a setting that is no number from `least` to `most`.

    Raises:
        ConfigError: it is none.
    """
    value = getattr(op, name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and least <= value <= most and not (above and value == least):
        return
    bracket = "(" if above else "["
    raise ConfigError(
        f"`{name}` of {type(op).__name__} must be in {bracket}{least:g}, {most:g}], but got {name}={value!r}."
    )


def check_ordered(op: object, lower: float, upper: float) -> None:
    """Refuse factors that are negative or not in order.

    Raises:
        ConfigError: they are.
    """
    if not 0 <= lower < upper:
        raise ConfigError(f"{type(op).__name__} needs 0 <= lower < upper, but got lower={lower!r}, upper={upper!r}.")
