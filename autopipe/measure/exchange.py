"""What the exchange of gradients between devices takes: an all-reduce of as many bytes, for a second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from autopipe.core.stats import median
from autopipe.devices.strategy import DeviceStrategy

_SECONDS = 1.0
_FEWEST = 5
_FLOAT_BYTES = 4


def measure(strategy: DeviceStrategy, model: Any) -> dict[str, int | float | None]:
    """Return what a ceiling tells of the exchange: `gradient_bytes`, and `exchange_seconds` on several devices."""
    numbers = sum(math.prod(weight.shape) for weight in model.trainable_variables)
    exchanged = strategy.exchange(max(1, numbers))
    return {
        "gradient_bytes": numbers * _FLOAT_BYTES,
        "exchange_seconds": None if exchanged is None else _seconds(exchanged),
    }


def _seconds(exchanged: Callable[[], object]) -> float:
    exchanged()  # compiles
    began, took = time.perf_counter(), list[float]()
    while len(took) < _FEWEST or time.perf_counter() - began < _SECONDS:
        before = time.perf_counter()
        exchanged()
        took.append(time.perf_counter() - before)
    return median(took)
