"""Workers that die while a team starts, on a cluster played here. On a real one: nodes/."""

from __future__ import annotations

import logging
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

from autopipe.errors import LoaderError, WorkerDiedError
from autopipe.extensions.ray.cluster import Cluster
from autopipe.extensions.ray.loader import Team
from autopipe.extensions.ray.node import Hello


class RayError(Exception):
    """Ray's."""


class RayActorError(RayError):
    """Ray's, of an actor that has died."""

    def __init__(self, message: str, *, actor_init_failed: bool = False) -> None:
        super().__init__(message)
        self.actor_init_failed = actor_init_failed


class Actor:
    """Does a task when its answer is fetched, unless it dies of that: `dies` raises then."""

    def __init__(self, node: str, dies: Callable[[str, str], None]) -> None:
        self._node, self._dies = node, dies
        self.hello = types.SimpleNamespace(remote=lambda version: lambda: self._answer("hello", self._hello()))
        self.echo = types.SimpleNamespace(remote=lambda: lambda: self._answer("echo", np.zeros(8, np.uint8)))

    def _hello(self) -> Hello:
        return Hello(f"the node `{self._node}`", [], 1 << 30)

    def _answer(self, task: str, answer: Any) -> Any:
        self._dies(self._node, task)
        return answer


class Played:
    """A cluster of two nodes, and the part of Ray that a team uses of it."""

    address = "played"
    exceptions = types.SimpleNamespace(RayError=RayError, RayActorError=RayActorError)

    def __init__(self, dies: Callable[[str, str], None]) -> None:
        self._dies = dies
        self.put_on: list[str] = []
        self.killed: list[Any] = []

    @property
    def ray(self) -> Played:
        return self

    def nodes(self) -> dict[str, float]:
        return {"a": 1.0, "b": 1.0}

    def on(self, node: str) -> dict[str, Any]:
        return {"node": node}

    def remote(self, kind: type) -> Any:
        return types.SimpleNamespace(options=lambda node: types.SimpleNamespace(remote=lambda *_: self._made(node)))

    def _made(self, node: str) -> Actor:
        self.put_on.append(node)
        return Actor(node, self._dies)

    def put(self, value: object) -> object:
        return value

    def get(self, answer: Callable[[], Any]) -> Any:
        return answer()

    def wait(self, answers: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return answers, []

    def kill(self, actor: Any) -> None:
        self.killed.append(actor)

    def is_initialized(self) -> bool:
        return True


@pytest.fixture
def teams() -> Iterator[Callable[[Played], Team]]:
    made: list[Team] = []

    def make(played: Played) -> Team:
        made.append(Team(cast(Cluster, played), b"", cast(Any, types.SimpleNamespace(rows=4)), keep=2))
        return made[-1]

    yield make
    for team in made:
        team.end()


@pytest.mark.parametrize("task", ["hello", "echo"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_that_dies_while_the_team_starts_is_made_up_for(
    teams: Callable[[Played], Team], caplog: pytest.LogCaptureFixture, task: str, times: int
) -> None:
    deaths = Counter[str]()

    def dies(node: str, doing: str) -> None:
        if doing == task and deaths.total() < times:
            deaths[node] += 1
            raise RayActorError("The node died.")

    played = Played(dies)
    with caplog.at_level(logging.WARNING):
        workers = teams(played).start(2, cache_bytes=0)
    assert len(workers) == 2
    assert len(played.put_on) == 2 + times
    assert len(played.killed) == times
    assert not {id(worker.actor) for worker in workers} & {id(actor) for actor in played.killed}
    assert "The node died. " in caplog.text


def test_the_one_that_is_made_up_for_is_started_on_another_node(teams: Callable[[Played], Team]) -> None:
    def dies(node: str, doing: str) -> None:
        if node == "b":
            raise RayActorError("The node died.")

    workers = teams(Played(dies)).start(2, cache_bytes=0)
    assert [worker.node for worker in workers] == ["a", "a"]


def test_a_team_that_keeps_dying_gives_up_with_the_reason(teams: Callable[[Played], Team]) -> None:
    def dies(node: str, doing: str) -> None:
        raise RayActorError("The actor died unexpectedly.\nThe node was out of memory.")

    played = Played(dies)
    with pytest.raises(WorkerDiedError, match=r"died 3 times while 2 of them .*: The node was out of memory") as caught:
        teams(played).start(2, cache_bytes=0)
    assert "ray status" in str(caught.value.hint)
    assert len(played.put_on) == 2 + 2 * 2


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RayActorError("ModuleNotFoundError: No module named 'autopipe'", actor_init_failed=True), "lacks autopipe"),
        (RayError("the store is full"), "A worker could not start on a node of the Ray cluster: the store is full"),
    ],
    ids=["init", "other"],
)
def test_what_would_happen_on_any_node_is_not_tried_again(
    teams: Callable[[Played], Team], error: RayError, said: str
) -> None:
    def dies(node: str, doing: str) -> None:
        raise error

    played = Played(dies)
    with pytest.raises(LoaderError, match=said):
        teams(played).start(2, cache_bytes=0)
    assert len(played.put_on) == 2
