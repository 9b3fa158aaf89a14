"""What is decided about a Ray cluster, and about workers that die or skip samples, without one. With one: nodes/."""

import contextlib
import dataclasses
import logging
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest

from autopipe import _version, again
from autopipe.errors import BadSampleError, DataError, LoaderError, MissingExtraError, WorkerDiedError
from autopipe.extensions.ray import cluster as ray_cluster
from autopipe.extensions.ray import node as ray_node
from autopipe.extensions.ray.loader import Ray, Team, Worker, _Filler
from autopipe.extensions.ray.node import Hello
from autopipe.hardware import machine
from autopipe.pipeline.batching.kernel import BadSample, Kernel
from autopipe.pipeline.loader import Recipe
from autopipe.workload import op, workload
from autopipe.workload.data.images import ImageFolder
from autopipe.workload.ops import custom, geometry, planner, sizes, values
from autopipe.workload.sample import FieldKind
from tests.fakes.sources import Made


@pytest.mark.parametrize(
    ("address", "environment", "meant"),
    [
        (None, "", "local"),
        (None, "10.0.0.1:6379", "10.0.0.1:6379"),
        ("auto", "10.0.0.1:6379", "10.0.0.1:6379"),
        ("auto", "", "auto"),
        ("ray://head:10001", "10.0.0.1:6379", "ray://head:10001"),
        ("local", "10.0.0.1:6379", "local"),
    ],
)
def test_the_address_is_the_users_or_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, address: str | None, environment: str, meant: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", environment)
    assert ray_cluster.address_of(address) == meant


def test_a_cluster_here_has_this_machines_cores_which_are_counted_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    ray = Ray(workers=3, queue_size=5)
    assert (ray.worker_count(), ray.buffered_batches(), ray.cores_elsewhere()) == (3, 11, machine.core_time())
    assert Ray(workers=64, address="ray://head:10001").cores_elsewhere() is None
    with pytest.raises(MissingExtraError, match="`ray` is not installed; the extra `ray` brings it"):
        ray_cluster.join("local")


EQUAL = {"a": 2.0, "b": 2.0, "c": 2.0}


@pytest.mark.parametrize(
    ("nodes", "count", "taken", "avoid", "placed"),
    [
        ({"a": 4.0, "b": 1.0}, 5, [], "", {"a": 4, "b": 1}),  # in proportion to cores
        ({"a": 1.0, "b": 1.0}, 3, [], "", {"a": 2, "b": 1}),
        (EQUAL, 1, ["a", "a", "b"], "c", {"b": 1}),  # where the fewest are, and not where one has died
        ({"a": 2.0}, 1, [], "a", {"a": 1}),
        ({"a": 1.0}, 1, ["gone"], "", {"a": 1}),
    ],
)
def test_workers_are_placed_by_cores_and_by_those_that_are_there(
    nodes: dict[str, float], count: int, taken: list[str], avoid: str, placed: dict[str, int]
) -> None:
    assert Counter(ray_cluster.placed(nodes, count, taken, avoid)) == placed


def test_files_that_a_machine_lacks_are_found_and_named_where_they_are_here(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "cat").mkdir(exist_ok=True)
        (tmp_path / "cat" / f"{number}.jpg").write_bytes(b"image")
    source, gone = ImageFolder(tmp_path), tmp_path / "cat" / "2.jpg"
    assert ray_node.lacking(source) == []
    with pytest.raises(DataError, match="is on this machine, but not on the node `one`"):
        ray_cluster.require_data([("the node `one`", str(gone))])
    gone.unlink()
    ray_cluster.require_data([("the node `one`", str(gone))])
    assert ray_node.lacking(source) == [str(gone)]
    ray_node.require_present(source, but=[str(gone)])
    with pytest.raises(DataError, match=rf"`{gone}` is not on the node"):
        ray_node.require_present(source)


def test_what_fails_on_a_node_is_told_with_what_to_do() -> None:
    bad = BadSampleError("sample 3 cannot be read")
    assert ray_node.told(bad) is bad
    bad.__cause__ = FileNotFoundError("/data/3.jpg")
    said = ray_node.told(bad)
    assert isinstance(said, BadSampleError)
    assert re.search("^On the node `.*every node", f"{said.message} {said.hint}")
    failure = ray_cluster.node_failure(RuntimeError("...\nModuleNotFoundError: No module named 'autopipe'"), "A worker")
    assert "lacks autopipe" in failure.message
    assert failure.hint == again.on_nodes("ray", _version.__version__)
    other = ray_cluster.node_failure(RuntimeError("first\nlast"), "A worker could not start")
    assert str(other) == "A worker could not start on a node of the Ray cluster: last"


LOST = "RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err for detailed logs.\n"
ZOMBIE = "psutil.ZombieProcess: PID still exists but it's a zombie (pid=31346)\n"


@pytest.mark.parametrize(
    ("failures", "traceback", "calls", "reason"),
    [
        (2, LOST, 3, None),  # what it started is lost, and asked for again
        (2, ZOMBIE, 3, None),
        (9, LOST, 3, "Starting Ray client server failed"),
        (1, "RuntimeError: Version mismatch: 2.50 and 2.60", 1, "Version mismatch: 2.50 and 2.60"),
    ],
)
def test_a_server_that_loses_what_it_started_is_asked_again_and_told_by_its_last_line(
    monkeypatch: pytest.MonkeyPatch, failures: int, traceback: str, calls: int, reason: str | None
) -> None:
    lost = ConnectionAbortedError(f"Initialization failure from server:\nTraceback:\n{traceback}")
    server = Mock(init=Mock(side_effect=[lost] * failures + [None]))
    monkeypatch.setattr(ray_cluster, "_require_reachable", lambda address: None)
    said = f"`ray://head:10001` cannot be reached: RuntimeError: {reason}"
    with contextlib.nullcontext() if reason is None else pytest.raises(LoaderError, match=said):
        ray_cluster._connect(server, "ray://head:10001", 0)
    assert server.init.call_count == calls


# ---------------------------------------------------------------- workers that die while a team starts


class RayError(Exception):
    """Ray's."""


class RayActorError(RayError):
    """Ray's, of an actor that has died."""

    actor_init_failed = False


class RayActorInitError(RayActorError):
    actor_init_failed = True


@pytest.fixture
def played() -> Iterator[Any]:
    """A cluster of two nodes with a team of two workers, and the part of Ray that a team uses of it.

    An actor does a task when its answer is fetched, unless it dies of that: `dies` raises then.
    """
    made = types.SimpleNamespace

    def actor(node: str) -> Any:
        def task(name: str, found: Any) -> Any:
            return made(remote=lambda *_: lambda: cluster.dies(node, name) or found)

        cluster.put_on.append(node)
        hello = Hello(f"the node `{node}`", [], 1 << 30)
        return made(hello=task("hello", hello), echo=task("echo", np.zeros(8, np.uint8)))

    cluster: Any = made(
        address="played",
        exceptions=made(RayError=RayError, RayActorError=RayActorError),
        nodes=lambda: {"a": 1.0, "b": 1.0},
        on=lambda node: {"node": node},
        remote=lambda kind: made(options=lambda node: made(remote=lambda *_: actor(node))),
        put=lambda value: value,
        get=lambda answer: answer(),
        wait=lambda answers, num_returns, timeout: (answers, []),
        is_initialized=lambda: True,
        put_on=list[str](),
        killed=list[Any](),
    )
    cluster.ray, cluster.kill = cluster, cluster.killed.append
    cluster.team = Team(cluster, b"", cast(Any, made(rows=4)), keep=2)
    yield cluster
    cluster.team.end()


def started(played: Any, dies: Callable[[str, str], None]) -> list[Worker]:
    played.dies = dies
    found: list[Worker] = played.team.start(2, cache_bytes=0)
    return found


@pytest.mark.parametrize("task", ["hello", "echo"])
@pytest.mark.parametrize("times", [1, 2, None])
def test_a_worker_that_dies_while_the_team_starts_is_made_up_for_on_another_node(
    played: Any, caplog: pytest.LogCaptureFixture, task: str, times: int | None
) -> None:
    deaths = Counter[str]()

    def dies(node: str, doing: str) -> None:
        if doing == task and (node == "b" if times is None else deaths.total() < times):
            deaths[node] += 1
            raise RayActorError("The node died.")

    with caplog.at_level(logging.WARNING):
        workers = started(played, dies)
    died = deaths.total()
    assert (len(workers), len(played.put_on), len(played.killed)) == (2, 2 + died, died)
    assert died == times or [worker.node for worker in workers] == ["a", "a"]
    assert not {id(worker.actor) for worker in workers} & {id(actor) for actor in played.killed}
    assert "The node died. " in caplog.text


@pytest.mark.parametrize(
    ("error", "workers", "said"),
    [
        (RayActorError("It died.\nIt was out of memory."), 6, r"died 3 times while 2 .* out of memory.*ray status"),
        (RayActorInitError("ModuleNotFoundError: No module named 'autopipe'"), 2, "lacks autopipe"),
        (RayError("the store is full"), 2, "A worker could not start on a node of the Ray cluster: the store is full"),
    ],
)
def test_a_team_gives_up_if_workers_keep_dying(played: Any, error: RayError, workers: int, said: str) -> None:
    def dies(node: str, doing: str) -> None:
        raise error

    with pytest.raises(LoaderError) as caught:
        started(played, dies)
    assert isinstance(caught.value, WorkerDiedError) is (workers > 2)
    assert re.search(said, f"{caught.value.message} {caught.value.hint}")
    assert len(played.put_on) == workers


# ---------------------------------------------------------------- samples that a node skipped

BAD = 2


def images(*, small: bool = False, strange: bool = False) -> Made:
    """Return four images with masks; one image is smaller, in one mask a colour is in no palette."""

    def read(index: int) -> Any:
        size = 4 if small and index == BAD else 8
        image = np.full((size, size, 3), index, np.uint8)
        return image, np.full((size, size, 3), strange and index == BAD, np.uint8)

    made = Made(4, read)
    made.x_kind, made.y_kind = FieldKind.IMAGE, FieldKind.MASK  # type: ignore[attr-defined]
    return made


def refused_now_and_then(image: Any, rng: np.random.Generator) -> Any:
    if image[0, 0, 0] == BAD and rng.random() > 0.6:
        raise BadSampleError("this time it is bad")
    return image


def recipe(data: Made, ops: list[op.Op]) -> Recipe:
    made = workload.Workload(data=data, ops=ops, batch_size=2, seed=3, on_bad_sample="skip")
    return dataclasses.replace(Recipe.of(made, planner.make_plan(made)), cached=1.0)


def taken(made: Recipe, epoch: int, bad: list[BadSample]) -> list[BadSample]:
    """Return the samples that the training skips, given those that a node has skipped."""
    nowhere = cast("Any", None)
    return _Filler(nowhere, nowhere, made)._taken((None, bad), nowhere, epoch)


@pytest.mark.parametrize(
    ("data", "ops"),
    [
        (images(small=True), [sizes.RandomCrop(6, 6)]),
        (images(strange=True), [geometry.RandomFlip(), values.MaskToClass([(0, 0, 0)], unknown=None)]),
    ],
)
def test_a_sample_that_random_ops_or_later_ones_refuse_is_skipped(data: Made, ops: list[op.Op]) -> None:
    made = recipe(data, ops)
    kernel = Kernel(made)
    bad = kernel.fill(0, np.arange(4), kernel.spec.empty(4))
    assert [sample.index for sample in bad] == [BAD]
    assert taken(made, 0, bad) == bad


def test_a_sample_is_made_again_as_in_its_epoch() -> None:
    made = recipe(images(), [custom.Map(refused_now_and_then, random=True)])
    kernel = Kernel(made)
    found = [bool(kernel.fill(epoch, np.array([BAD]), kernel.spec.empty(1))) for epoch in range(12)]
    assert set(found) == {True, False}
    claimed = BadSample(BAD, BAD + 1, "bad there")
    for epoch, is_bad in enumerate(found):
        if is_bad:
            assert taken(made, epoch, [claimed]) == [claimed]
        else:
            with pytest.raises(LoaderError, match=r"Sample 2 is bad on a node .* and good on this machine: bad there"):
                taken(made, epoch, [claimed])
