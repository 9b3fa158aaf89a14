"""The contract of loaders, run on the loaders of an extension as it is run on those of the core."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from autopipe.pipeline.config import LoaderConfig
from tests.contract import test_loaders as contract


def suite(
    loaders: Mapping[str, LoaderConfig],
    one: str,
    *,
    but: Collection[str] = (),
    settings: str = "",
    instead: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the tests of the contract, with these loaders in place of the core's, for the globals of a module.

    Args:
        loaders: by the names that tests have for them.
        one: the name of the one for tests that take one loader of each kind.
        but: tests that are left out.
        settings: what the names of settings begin with that these loaders can have.
        instead: names that the tests find in place of those of the contract's module.
    """
    scope = {**vars(contract), **(instead or {})}
    if instead:
        scope["exact_workload"] = _copied(contract.exact_workload, scope, {}, one, settings)  # its ops are among them

    @pytest.fixture(scope="module", autouse=True)
    def _known() -> Iterator[None]:
        contract.LOADERS.update(loaders)
        yield
        for name in loaders:
            del contract.LOADERS[name]

    found = {name: each for name, each in vars(contract).items() if name.startswith("test_") and name not in but}
    assert len(found) > 10
    fixtures = {name: each for name, each in vars(contract).items() if isinstance(each, type(_known))}
    return {
        **fixtures,
        "_known": _known,
        **{name: _copied(each, scope, loaders, one, settings) for name, each in found.items()},
    }


def _copied(
    function: Callable[..., Any], scope: dict[str, Any], loaders: Mapping[str, LoaderConfig], one: str, settings: str
) -> Callable[..., Any]:
    copied = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
    copied.__annotations__ = function.__annotations__
    copied.__kwdefaults__ = function.__kwdefaults__
    marks = getattr(function, "pytestmark", [])
    copied.pytestmark = [_with(mark, loaders, one, settings) for mark in marks]  # type: ignore[attr-defined]  # pytest's place
    return copied


def _with(mark: pytest.Mark, loaders: Mapping[str, LoaderConfig], one: str, settings: str) -> pytest.Mark:
    """Return a parametrisation with these loaders in it: several for all, or one for one of each."""
    if mark.name != "parametrize":
        return mark
    names, values = mark.args
    if names == "loader":
        return pytest.mark.parametrize(names, list(loaders) if "threads-1" in values else [one]).mark
    if isinstance(names, tuple) and names[0] == "loader":
        alike = {name: "threads-2" if name == one else "threads-1" for name in loaders}
        all_of = [(name, *rest) for name, like in alike.items() for old, *rest in values if old == like]
        if names[1] == "settings":
            all_of = [each for each in all_of if not isinstance(each[1], str) or each[1].startswith(settings)]
        return pytest.mark.parametrize(names, all_of, ids=str).mark
    return mark
