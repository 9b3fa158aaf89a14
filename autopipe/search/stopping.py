"""Why a search ended. When it does is decided in `autopipe.search.budget`."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Reason(enum.StrEnum):
    """Why a search ended."""

    CEILING = "ceiling"
    NO_GAIN = "no_gain"
    TIME = "time"
    TRIALS = "trials"
    EXHAUSTED = "exhausted"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why a search ended, for a program and as a sentence."""

    reason: Reason
    message: str
