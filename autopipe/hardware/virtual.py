"""Virtual devices: parts of the CPU that stand for accelerators, for tests and rehearsals. Made only where asked for.

Whoever starts a process asks by an environment variable, because a framework splits the CPU before it runs anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from autopipe.errors import ConfigError

VARIABLE: Final = "AUTOPIPE_VIRTUAL_DEVICES"


def asked(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many virtual CPU devices were asked for; 0 where none were.

    Raises:
        ConfigError: the variable holds no whole number.
    """
    text = environment.get(VARIABLE, "").strip() or "0"
    if not text.isdecimal():
        raise ConfigError(
            f"`{VARIABLE}` must be a whole number, but got {text!r}.",
            hint=f"Unset it to train on the CPU as one device, or use {VARIABLE}=2.",
        )
    return int(text)
