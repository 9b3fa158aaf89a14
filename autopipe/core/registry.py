"""Plugins by name: a plugin is one module of one package, found by looking, so that adding one edits no list.

Somebody else's package adds one by an entry point of the group that is called like ours: in its pyproject.toml
`[project.entry-points."autopipe.loaders"]` with `mine = "their_package.loader"`, a module that registers itself.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import warnings
from collections.abc import Iterator
from typing import Generic, TypeVar

from autopipe.errors import ConfigError, near

T = TypeVar("T")


class Registry(Generic[T]):
    """The plugins of one kind, which register themselves when they are imported, at the first look-up: the modules of
    `package`, and those that installed packages name in the entry point group of that name.
    """

    def __init__(self, kind: str, package: str) -> None:
        self._kind = kind
        self._package = package
        self._plugins: dict[str, T] = {}
        self._discovered = False

    def register(self, name: str, plugin: T) -> None:
        """Make `plugin` known as `name`."""
        self._plugins[name] = plugin

    def __getitem__(self, name: str) -> T:
        self._discover()
        if name not in self._plugins:
            raise ConfigError(f"`{self._kind}` must be one of {', '.join(self)}, but got {name!r}.{near(name, self)}")
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
        for entry in importlib.metadata.entry_points(group=self._package):
            try:
                entry.load()
            except Exception as error:  # noqa: BLE001  # somebody else's code: the other plugins work without it
                owner = "?" if entry.dist is None else entry.dist.name
                warnings.warn(
                    f"The {self._kind} `{entry.name}` of the package {owner} cannot be imported: {error!r}.",
                    RuntimeWarning,
                    stacklevel=2,
                )
