from __future__ import annotations

import pytest

from autopipe.core.config import LOADERS
from autopipe.core.registry import Registry
from autopipe.errors import ConfigError


def test_the_modules_of_a_package_are_its_plugins() -> None:
    assert list(LOADERS) == ["keras", "processes", "tfdata", "threads", "wrapped"]
    assert LOADERS["threads"].__name__ == "Threads"


def test_an_unknown_name_is_refused_with_the_near_one() -> None:
    with pytest.raises(ConfigError, match=r"'thread'\. Did you mean `threads`\?"):
        LOADERS["thread"]


def test_a_plugin_can_be_registered_by_hand() -> None:
    registry: Registry[int] = Registry("number", "autopipe.data")
    registry.register("two", 2)
    assert registry["two"] == 2
