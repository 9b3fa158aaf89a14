"""Commands that messages print as a next step: they work when they are pasted where the user stands, also if autopipe
comes from a checkout or a virtual environment is not activated. Nothing of the package is imported here.
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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_DISTRIBUTION = "autopipe-tuner"
FRAMEWORKS = ("jax", "keras", "tensorflow")


def autopipe(*arguments: str | os.PathLike[str]) -> str:
    """Return the line that runs autopipe, as this process does, with some arguments; quoted for a shell."""
    own = ["autopipe"] if _is_ours("autopipe") else [sys.executable, "-m", "autopipe"]
    return shlex.join([*own, *(os.fspath(each) for each in arguments)])


def this() -> str:
    """Return the line that repeats this process's command, without passwords in URLs."""
    return shlex.join(["autopipe", *map(without_password, sys.argv[1:])])


# Up to the last @, as SQLAlchemy takes it; a port is none. Drivers take it among the parameters, too.
_PASSWORD = re.compile(r"(?<=://)([^/:@]*):(?!\d+/)[^@]*(?:@[^@/?]*)*@|(?<=[?&]password=)[^&]+")


def without_password(url: str) -> str:
    """Return a URL, or a text that holds one, that may be shown and kept."""
    return _PASSWORD.sub(lambda match: "" if match[1] is None else f"{match[1]}@", url)


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
    """Return the line that installs an extra's packages by the installed metadata, and no other autopipe."""
    found = []
    for requirement in requirements():
        marker, requirement.marker = requirement.marker, None
        if marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}):
            found.append(str(requirement))
    if found:
        return installing(*found)
    if (checkout := _checkout()) is not None:
        return installing("-e", f"{checkout}[{extra}]")
    return installing(f"{_DISTRIBUTION}[{extra}]")


def on_nodes(extra: str, version: str) -> str:
    """Return the command for other machines, which need a version of autopipe with an extra; quoted for a shell."""
    if _checkout() is not None:
        return f"Run on the nodes, in a checkout of the same version: {shlex.join(['pip', 'install', f'.[{extra}]'])}"
    return f"Run on the nodes: {shlex.join(['pip', 'install', f'{_DISTRIBUTION}[{extra}]=={version}'])}"


def requirements() -> Iterator[Requirement]:
    """Yield what autopipe and its extras require; nothing without the metadata of an installed autopipe."""
    from packaging.requirements import Requirement

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        yield from map(Requirement, importlib.metadata.requires(_DISTRIBUTION) or ())


def tested() -> dict[str, str]:
    """Return the versions of frameworks that autopipe is tested with, `>=3.12,<3.16`; none without metadata."""
    found: dict[str, set[str]] = {}
    for each in requirements():
        if each.name in FRAMEWORKS:
            found.setdefault(each.name, set()).update(map(str, each.specifier))
    return {package: ",".join(sorted(bounds, reverse=True)) for package, bounds in found.items()}


def untested(versions: Mapping[str, str]) -> str | None:
    """Return which versions of frameworks autopipe is not tested with, and what to do; None if it is with all."""
    from packaging.specifiers import SpecifierSet

    bounds = tested()
    others = {
        package: version
        for package, version in versions.items()
        if not SpecifierSet(bounds.get(package, "")).contains(version, prereleases=True)
    }
    if not others:
        return None
    what = ", ".join(f"{package} {version} (tested: {bounds[package]})" for package, version in others.items())
    remedy = installing(*(f"{package}{bounds[package]}" for package in others))
    return f"autopipe was not tested with {what}. If something fails, run: {remedy}"


def _checkout() -> Path | None:
    folder = Path(__file__).parents[1]
    return folder if (folder / "pyproject.toml").is_file() else None


def _is_ours(command: str) -> bool:  # of the Python that runs
    found = shutil.which(command)
    return found is not None and Path(found).parent == Path(sys.executable).parent
