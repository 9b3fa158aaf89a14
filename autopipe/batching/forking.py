"""Whether Keras may fork worker processes here."""

from __future__ import annotations

import multiprocessing

from autopipe import frameworks
from autopipe.errors import LoaderError


def require_safe_fork(instead: str) -> None:
    """Refuse to let Keras fork worker processes where they would hang.

    Args:
        instead: what to do about it.

    Raises:
        LoaderError: processes are not forked here, or a framework has run in this one.
    """
    if (method := multiprocessing.get_start_method()) != "fork":
        raise LoaderError(
            f"`use_multiprocessing` of Keras is supported with the start method `fork` only, but it is `{method}`.",
            hint=instead,
        )
    if (running := frameworks.running_framework()) is not None:
        raise LoaderError(
            f"`use_multiprocessing` of Keras forks, and children forked after {running} has run, as it has here, hang.",
            hint=instead,
        )
