"""Where a relative path of the user's starts: at the script that writes it, wherever that is run from.

So the command line, a trial's process, a spawned worker and `tuned_pipeline`, imported from another folder, find the
same files. Every source passes what it is given through here, once, and works with an absolute path from then on.
"""

from __future__ import annotations

import glob
import os
import sys
import sysconfig
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from autopipe.errors import DataWarning

RULE: Final = "A relative path starts at the folder of the script that writes it; on a command line, where you are."

_NOBODYS = tuple(
    f"{folder}/"
    for folder in (
        Path(__file__).parents[1],
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    )
)


def located(place: str | os.PathLike[str], *, warns: bool = True) -> str:
    """Return the absolute path of what a script names; see `RULE`.

    In a notebook or an interpreter, it starts at the working directory. In a script, too, and with a warning, where it
    leads to something from there and to nothing from the script's folder; `warns=False` is for what need not be there.
    """
    return _found(os.fspath(place), os.path.lexists, lambda folder: folder, warns=warns)


def located_pattern(pattern: str | os.PathLike[str]) -> str:
    """Return the absolute pattern that a script's glob stands for, by the same rule."""
    return _found(os.fspath(pattern), _matches, glob.escape)


def _matches(pattern: str) -> bool:
    return next(glob.iglob(pattern, recursive=True), None) is not None  # noqa: PTH207  absolute patterns too


def _found(text: str, is_there: Callable[[str], bool], as_prefix: Callable[[str], str], *, warns: bool = True) -> str:
    if Path(text).is_absolute():
        return text
    here = os.path.join(as_prefix(os.getcwd()), text)  # noqa: PTH109, PTH118  links are not resolved
    script, level = _script()
    if script is None:
        return here
    beside = os.path.join(as_prefix(os.path.dirname(script)), text)  # noqa: PTH118, PTH120
    if beside == here or is_there(beside) or not is_there(here):
        return beside
    if warns:
        warnings.warn(
            f"`{text}` is not beside `{script}`, which names it, and was found in the working directory, "
            f"`{os.getcwd()}`."  # noqa: PTH109
            " From another one it will not be found: write its path from the script's folder, or an absolute one.",
            DataWarning,
            stacklevel=level,
        )
    return here


def _script() -> tuple[str | None, int]:
    """Return the file of the innermost caller that is the user's own, None for a notebook; and how far up it is."""
    level, frame = 1, cast(types.FrameType | None, sys._getframe(1))
    while frame is not None:
        file = frame.f_globals.get("__file__")
        if isinstance(file, str):
            path = os.path.abspath(file)  # noqa: PTH100
            if not path.startswith(_NOBODYS):
                return path, level
        elif not frame.f_code.co_filename.startswith("<frozen "):  # those of Python's own import have no file either
            break
        level, frame = level + 1, frame.f_back
    return None, level
