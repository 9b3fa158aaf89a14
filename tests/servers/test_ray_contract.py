"""The contract of loaders, as it is, over a Ray cluster of two nodes: each test of it, with `Ray` for other loaders."""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from autopipe.batching.ray_team import Team, Worker
from autopipe.core.config import LoaderConfig
from autopipe.loaders.ray_workers import Ray
from tests.contract import test_loaders as contract

RAYS: dict[str, LoaderConfig] = {f"ray-{n}": Ray(workers=n, queue_size=2) for n in (1, 2, 5)}
ONE = "ray-2"
pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module", autouse=True)
def _connected(ray_nodes: Any) -> Iterator[None]:
    """Have one connection for all tests, as a user's own code may: a second for each of them otherwise."""
    import ray

    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = ray_nodes.address
    contract.LOADERS.update(RAYS)
    ray.init(logging_level="warning", log_to_driver=False)
    yield
    ray.shutdown()
    for name in RAYS:
        del contract.LOADERS[name]
    os.environ.pop("RAY_ADDRESS") if before is None else os.environ.update(RAY_ADDRESS=before)


@pytest.fixture(scope="module", autouse=True)
def _from_far() -> Iterator[None]:
    """Have every second worker take the training for one on another machine, and send its batches."""
    put = Team._put

    def mixed(team: Team, node: str) -> Worker:
        near = team._arguments
        packed, rows, owner, keep = near
        if len(team._living) % 2 == 0:
            team._arguments = packed, rows, owner._replace(secret=bytes(32)), keep
        try:
            return put(team, node)
        finally:
            team._arguments = near

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Team, "_put", mixed)
        yield


def _with_ray(mark: pytest.Mark) -> pytest.Mark:
    """Return a parametrisation with `Ray` for the loaders in it: several for all, or one for one of each."""
    names, values = mark.args
    if names == "loader":
        return pytest.mark.parametrize(names, list(RAYS) if "threads-1" in values else [ONE]).mark
    if isinstance(names, tuple) and names[0] == "loader":
        return pytest.mark.parametrize(
            names, [(ONE, *rest) for name, *rest in values if name == "threads-2"], ids=str
        ).mark
    return mark


def _copied(function: Callable[..., None]) -> Callable[..., None]:
    copied = types.FunctionType(function.__code__, function.__globals__, function.__name__)
    copied.__annotations__ = function.__annotations__
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.pytestmark = [  # type: ignore[attr-defined]  # where pytest keeps them
        _with_ray(mark) if mark.name == "parametrize" else mark for mark in getattr(function, "pytestmark", [])
    ]
    return copied


for _name, _thing in list(vars(contract).items()):
    if _name.startswith("test_"):
        globals()[_name] = _copied(_thing)


def test_every_test_of_the_contract_is_here() -> None:
    theirs = [name for name in vars(contract) if name.startswith("test_")]
    assert len(theirs) > 15
    assert all(name in globals() for name in theirs)
