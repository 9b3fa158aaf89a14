"""The loader `ap.Ray`, with workers on a Ray cluster, and `autopipe convert --by ray=ADDRESS`; by the extra `ray`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported before `--help` answers
    from autopipe.artifact.converting import Writer


def writer(address: str) -> Writer:
    """Return a writer of sets by a cluster: ray://HOST:10001, HOST:6379, auto, or local for one on this machine."""
    from autopipe.extensions.ray import conversion

    return functools.partial(conversion.convert, address=address)
