"""What is decided about a Ray cluster without one. What needs a cluster: nodes/."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from autopipe import _version, again
from autopipe.errors import BadSampleError, DataError, LoaderError, MissingExtraError
from autopipe.extensions.ray import cluster as ray_cluster
from autopipe.extensions.ray import node as ray_node
from autopipe.extensions.ray.loader import Ray
from autopipe.hardware import machine
from autopipe.workload.data.images import ImageFolder
from tests.unit.cli.conftest import Autopipe


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


def test_a_cluster_of_this_machine_has_its_cores_and_nobody_starts_it_to_count_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert Ray(workers=64).cores_elsewhere() == machine.core_time()
    assert Ray(workers=64, address="ray://head:10001").cores_elsewhere() is None


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


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="`ray` is not installed; the extra `ray` brings it"):
        ray_cluster.join("local")


def test_files_that_a_machine_lacks_are_found_and_named(photos: Path, tmp_path: Path) -> None:
    for number, photo in enumerate(sorted(photos.glob("*.jpg"))[:3]):
        (tmp_path / "cat").mkdir(exist_ok=True)
        (tmp_path / "cat" / f"{number}.jpg").write_bytes(photo.read_bytes())
    source = ImageFolder(tmp_path)
    assert ray_node.lacking(source) == []
    gone = tmp_path / "cat" / "2.jpg"
    gone.unlink()
    assert ray_node.lacking(source) == [str(gone)]
    ray_node.require_present(source, but=[str(gone)])
    with pytest.raises(DataError, match=rf"`{gone}` is not on the node"):
        ray_node.require_present(source)


def test_a_file_is_a_nodes_fault_only_where_it_is_here(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    ray_cluster.require_data([("the node `one`", str(tmp_path / "nowhere"))])
    with pytest.raises(DataError, match="is on this machine, but not on the node `one`"):
        ray_cluster.require_data([("the node `one`", str(tmp_path / "here"))])


def test_a_missing_file_is_told_with_the_node_and_other_errors_as_they_are() -> None:
    bad = BadSampleError("sample 3 cannot be read")
    assert ray_node.told(bad) is bad
    bad.__cause__ = FileNotFoundError("/data/3.jpg")
    said = ray_node.told(bad)
    assert isinstance(said, BadSampleError)
    assert said.message.startswith("On the node `")
    assert "every node" in str(said.hint)


def test_a_node_without_autopipe_is_told_what_to_install() -> None:
    failure = ray_cluster.node_failure(RuntimeError("...\nModuleNotFoundError: No module named 'autopipe'"), "A worker")
    assert "lacks autopipe" in failure.message
    assert failure.hint == again.on_nodes("ray", _version.__version__)
    other = ray_cluster.node_failure(RuntimeError("first\nlast"), "A worker could not start")
    assert str(other) == "A worker could not start on a node of the Ray cluster: last"


class Server:
    """Ray's `init`, which fails so often with the server's traceback."""

    def __init__(self, failures: int, traceback: str) -> None:
        self.left, self.traceback, self.calls = failures, traceback, 0

    def init(self, **options: Any) -> None:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise ConnectionAbortedError(f"Initialization failure from server:\nTraceback:\n{self.traceback}")


LOST = "RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err for detailed logs.\n"


@pytest.mark.parametrize(
    ("failures", "traceback", "calls", "reason"),
    [
        (2, LOST, 3, None),  # what it started is lost, and asked for again
        (9, LOST, 3, "Starting Ray client server failed"),
        (1, "RuntimeError: Version mismatch: 2.50 and 2.60", 1, "Version mismatch: 2.50 and 2.60"),
    ],
)
def test_a_server_that_loses_what_it_started_is_asked_again_and_told_by_its_last_line(
    monkeypatch: pytest.MonkeyPatch, failures: int, traceback: str, calls: int, reason: str | None
) -> None:
    monkeypatch.setattr(ray_cluster, "_require_reachable", lambda address: None)
    server = Server(failures, traceback)
    said = f"`ray://head:10001` cannot be reached: RuntimeError: {reason}"
    with contextlib.nullcontext() if reason is None else pytest.raises(LoaderError, match=said):
        ray_cluster._connect(server, "ray://head:10001", 0)
    assert server.calls == calls


def test_knobs_say_what_would_run() -> None:
    ray = Ray(workers=3, queue_size=5)
    assert (ray.worker_count(), ray.buffered_batches()) == (3, 11)


def test_a_knob_of_ray_is_named_with_the_space_that_has_it(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = autopipe("tune", "train.py:workload", "--only", "ray.workers=4")  # before a child is started
    assert (ended.status, ended.out) == (2, "")
    assert "`ray.workers` is no parameter of this space" in ended.err
    assert "--space remote," in ended.err
