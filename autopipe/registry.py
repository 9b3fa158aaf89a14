"""Plugins by name, found by looking, so that adding one edits no list of the core.

A plugin of the core is a module of one package. Extensions declare theirs as entry points in pyproject.toml, those of
`autopipe/extensions` as those of other packages: `Mine = "their_package.loader:Mine"` below
`[project.entry-points."autopipe.loaders"]`. CONTRIBUTING.md lists the groups. The core imports no extension by name.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any, Generic, TypeVar

from autopipe.errors import ConfigError, near

T = TypeVar("T")

_OURS = "autopipe.extensions."


class Registry(Generic[T]):
    """The plugins of one kind, which register themselves when they are imported, at the first look-up: the modules of
    `package`, and those of installed packages in the entry point group `autopipe.` and the package's last name.
    """

    def __init__(self, kind: str, package: str) -> None:
        self._kind = kind
        self._package, self._group = package, f"autopipe.{package.rpartition('.')[2]}"
        self._plugins: dict[str, T] = {}
        self._discovered = False

    def register(self, name: str, plugin: T) -> None:
        self._plugins[name] = plugin

    def __getitem__(self, name: str) -> T:
        self._discover()
        if name not in self._plugins:
            absent = (each for each in _all(self._group) if each.name.lower() == name and not _is_here(each))
            hint = next(map(_absence, absent), None)
            said = f"`{self._kind}` must be one of {', '.join(self)}, but got {name!r}.{near(name, self)}"
            raise ConfigError(said, hint=hint)
        return self._plugins[name]

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(sorted(self._plugins))

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self._package}.{module.name}")
        for _ in loaded(self._group, self._kind):
            pass


def declared(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, without those of our extensions whose folder is missing."""
    return tuple(entry for entry in _all(group) if _is_here(entry))


def loaded(group: str, kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and objects of a group; warn of each that cannot be imported, and skip it."""
    for entry in declared(group):
        try:
            found = entry.load()
        except Exception as error:  # noqa: BLE001  # code of another package: the other plugins work without it
            owner = "?" if entry.dist is None else entry.dist.name
            warnings.warn(
                f"The {kind} `{entry.name}` of the package {owner} cannot be imported: {error!r}.",
                RuntimeWarning,
                stacklevel=3,
            )
        else:
            yield entry.name, found


def named(name: str, *groups: str) -> Any:
    """Return what the first group has under a name, or None; raise ConfigError if its extension is missing."""
    for group in groups:
        for entry in _all(group):
            if entry.name == name and not _is_here(entry):
                raise ConfigError(f"`{name}` is not available.", hint=_absence(entry))
            if entry.name == name:
                return entry.load()
    return None


@functools.cache
def _all(group: str) -> tuple[EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=group))


@functools.cache
def _is_here(entry: EntryPoint) -> bool:
    if not entry.module.startswith(_OURS):
        return True
    try:
        found = importlib.util.find_spec(_extension(entry))
    except ModuleNotFoundError:  # all extensions are gone
        return False
    return found is not None and found.origin is not None  # else only caches of compiled modules are left


def _absence(entry: EntryPoint) -> str:
    return f"It needs the extension `{_extension(entry)}`, which this copy of autopipe does not have."


def _extension(entry: EntryPoint) -> str:
    return ".".join(entry.module.split(".")[:3])
