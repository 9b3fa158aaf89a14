"""Commands that messages print as a next step: they work when they are pasted where the user stands.

That is not always `autopipe`, `python` and `pip`: a virtual environment may be used without being activated, and
autopipe may come from a checkout as well as from a release. Nothing of the package is imported here.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_DISTRIBUTION = "autopipe-tuner"


def autopipe(*arguments: str | os.PathLike[str]) -> str:
    """Return the line that runs autopipe, as this process does, with some arguments; quoted for a shell."""
    own = ["autopipe"] if _is_ours("autopipe") else [sys.executable, "-m", "autopipe"]
    return shlex.join([*own, *(os.fspath(each) for each in arguments)])


def this() -> str:
    """Return the line that repeats this process's command, without passwords in URLs."""
    return shlex.join(["autopipe", *(re.sub(r"(://[^/:@]*):(?!\d+/)[^@]*@", r"\1@", each) for each in sys.argv[1:])])


def going_on() -> str:
    """Return the line that continues the interrupted study of this process; quoted for a shell."""
    return autopipe(*(each for each in shlex.split(this())[1:] if each != "--fresh"))


def python(*arguments: str) -> str:
    """Return the line that runs this Python with some arguments; quoted for a shell."""
    return shlex.join(["python" if _is_ours("python") else sys.executable, *arguments])


def installing(*requirements: str) -> str:
    """Return the line that installs packages for this Python; quoted for a shell."""
    if _is_ours("pip"):
        pip = ["pip", "install"]
    elif importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "install"]
    else:  # as in environments that uv makes
        pip = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*pip, *requirements])


def installing_extra(extra: str) -> str:
    """Return the line that installs the packages of an extra of autopipe, and leaves autopipe itself unchanged.

    It takes the requirements from the metadata of the installed autopipe, be that a release or a checkout.
    """
    if found := list(_requirements(extra)):
        return installing(*found)
    checkout = Path(__file__).parents[1]
    if (checkout / "pyproject.toml").is_file():
        return installing("-e", f"{checkout}[{extra}]")
    return installing(f"{_DISTRIBUTION}[{extra}]")


def on_nodes(extra: str, version: str) -> str:
    """Return the command for other machines, which need a version of autopipe with an extra; quoted for a shell."""
    if ".dev" in version:  # of no release
        return f"Run on the nodes, in a checkout of the same version: {shlex.join(['pip', 'install', f'.[{extra}]'])}"
    return f"Run on the nodes: {shlex.join(['pip', 'install', f'{_DISTRIBUTION}[{extra}]=={version}'])}"


def requirements() -> Iterator[Requirement]:
    """Yield what autopipe and its extras require; nothing without the metadata of an installed autopipe."""
    from packaging.requirements import Requirement

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        yield from map(Requirement, importlib.metadata.requires(_DISTRIBUTION) or ())


def _requirements(extra: str) -> Iterator[str]:
    for requirement in requirements():
        marker, requirement.marker = requirement.marker, None
        if marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}):
            yield str(requirement)


def _is_ours(command: str) -> bool:
    """Return True if a command of the search path belongs to this Python."""
    found = shutil.which(command)
    return found is not None and Path(found).parent == Path(sys.executable).parent
