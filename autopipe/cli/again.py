"""The commands that are printed as a next step: as they work when they are pasted where the user stands.

That is not always `autopipe` and `python`: a virtual environment may be used without being activated.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path


def autopipe(*arguments: str | os.PathLike[str]) -> str:
    """Return the line that runs autopipe, as this process does, with some arguments; quoted for a shell."""
    own = ["autopipe"] if _is_ours("autopipe") else [sys.executable, "-m", "autopipe"]
    return shlex.join([*own, *(os.fspath(each) for each in arguments)])


def this() -> str:
    """Return the line that runs what this process was asked for; passwords in URLs are left out."""
    return shlex.join(["autopipe", *(re.sub(r"(://[^/:@]*):(?!\d+/)[^@]*@", r"\1@", each) for each in sys.argv[1:])])


def python(*arguments: str) -> str:
    """Return the line that runs this Python with some arguments; quoted for a shell."""
    return shlex.join(["python" if _is_ours("python") else sys.executable, *arguments])


def _is_ours(command: str) -> bool:
    """Tell whether a command of the search path belongs to this Python."""
    found = shutil.which(command)
    return found is not None and Path(found).parent == Path(sys.executable).parent
