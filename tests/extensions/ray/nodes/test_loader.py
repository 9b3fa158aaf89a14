"""What goes wrong on the way to workers on other machines: dead nodes and workers, files and versions that differ. And
a conversion by a Ray cluster gives the files of a conversion on this machine, and refuses what would not.
"""

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe import _version
from autopipe.artifact import converting
from autopipe.extensions.ray import writer
from autopipe.extensions.ray.loader import Ray
from autopipe.testing import expected_batches, finished
from tests.contract.test_loaders import digest, exact_workload
from tests.extensions.ray.nodes.conftest import NODE, two_nodes
from tests.fakes import commands
from tests.fakes.commands import autopipe, content, environment, python, succeeded
from tests.fakes.sources import Made

pytestmark = [
    pytest.mark.timeout(200),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:os.fork"),  # Ray does so, where an earlier test has imported JAX
]


def opened(workload: ap.Workload, cluster: Any, workers: int = 2, queue_size: int = 2) -> ap.Loader:
    loader = Ray(workers=workers, queue_size=queue_size, address=cluster.address)
    return ap.make_loader(workload, ap.PipelineConfig(loader=loader))


def test_a_node_that_is_killed_in_mid_epoch_costs_no_batch(photos: Path, ray_nodes: Any) -> None:
    workload = exact_workload(photos)
    third = ray_nodes.add_node(**NODE)
    with opened(workload, ray_nodes, workers=3) as loader:
        batches = loader.batches(0)
        found = finished(loader, iter([next(batches), next(batches)]))
        ray_nodes.remove_node(third, allow_graceful=False)
        found += finished(loader, batches)
        assert digest(found) == digest(expected_batches(workload, 0))
        for epoch in (1, 2):
            assert digest(finished(loader, loader.batches(epoch))) == digest(expected_batches(workload, epoch))
    ray_nodes.wait_for_nodes(timeout=100)  # until the node counts as dead: the next tests' workers go to others


class Deadly:
    """Ends its process at one image, so many times; a file counts them."""

    def __init__(self, counter: Path, times: int) -> None:
        self.counter, self.times = counter, times

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        if x[0, 0, 0] == 7 and len(self.counter.read_text() if self.counter.exists() else "") < self.times:
            with self.counter.open("a") as file:
                file.write(".")
            os._exit(1)
        return x


@pytest.mark.parametrize("times", [2, 99])
def test_a_worker_that_dies_is_made_up_for_twice_and_then_its_batch_is_to_blame(
    times: int, tmp_path: Path, ray_nodes: Any
) -> None:
    deaths = tmp_path / "deaths"
    deaths.write_text("." * times)  # none while the workload is looked at
    data = Made(10, lambda index: (np.full((2, 2, 3), index, np.uint8), index))
    workload = ap.Workload(data=data, ops=[ap.Map(Deadly(deaths, times))], batch_size=2)
    said = r"died 3 times on one batch, with the samples .*\b7\b.* of epoch 0"
    with opened(workload, ray_nodes) as loader:
        deaths.write_text("")
        with pytest.raises(ap.WorkerDiedError, match=said) if times > 2 else contextlib.nullcontext():
            assert sorted(int(label) for _, y in loader.batches(0) for label in y) == list(range(10))
    assert times > 2 or deaths.read_text() == ".."


def opened_high(path: Path) -> int:
    """Open a file or folder by a number that no worker has open."""
    low = os.open(path, os.O_RDONLY)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 777)
    finally:
        os.close(low)


class OnlyHere:
    """A source that reads a file which only the process that opened it has."""

    def __init__(self, number: int, *, tells: bool) -> None:
        self.path, self.tells = f"/proc/self/fd/{number}", tells

    def __len__(self) -> int:
        return 4

    def files(self, indices: Any = None) -> list[str]:
        return [self.path] if self.tells else []

    def read(self, index: int) -> NDArray[np.uint8]:
        return np.full((2, 2, 3), Path(self.path).read_bytes()[index], np.uint8)


@pytest.mark.parametrize("tells", [True, False])
def test_a_file_that_a_node_lacks_is_named_before_any_is_read_or_later(
    tells: bool, tmp_path: Path, ray_nodes: Any
) -> None:
    (tmp_path / "data").write_bytes(bytes(range(4)))
    number = opened_high(tmp_path / "data")
    said = rf"`/proc/self/fd/{number}` is on this machine, but not on the node `.*` of the Ray cluster"
    work = ap.Workload(data=OnlyHere(number, tells=tells), ops=[], batch_size=2)
    try:
        with pytest.raises(ap.DataError, match=said if tells else "On the node `") as caught:  # noqa: SIM117
            with opened(work, ray_nodes) as loader:
                list(loader.batches(0))
    finally:
        os.close(number)
    assert "every node can read" in str(caught.value.hint)


def test_another_version_on_a_node_is_refused(photos: Path, ray_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here = _version.__version__
    monkeypatch.setattr(_version, "__version__", "9.9")
    with pytest.raises(ap.LoaderError, match=rf"has {here} and the training has 9\.9") as caught:
        opened(exact_workload(photos), ray_nodes)
    assert "[ray]" in str(caught.value.hint)  # in a checkout, or of the release


@pytest.mark.parametrize("form", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}"])
def test_an_address_where_nobody_is_fails_by_name_and_soon(photos: Path, form: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = form.format(port=held.getsockname()[1])
        start = time.monotonic()
        with pytest.raises(ap.LoaderError, match=f"The Ray cluster at `{address}` cannot be reached"):
            ap.make_loader(exact_workload(photos), ap.PipelineConfig(loader=Ray(workers=1, address=address)))
    assert time.monotonic() - start < 60


def test_a_process_is_in_one_cluster_at_a_time(photos: Path, ray_nodes: Any) -> None:
    other = ap.PipelineConfig(loader=Ray(workers=1, address="127.0.0.1:9"))
    with (
        opened(exact_workload(photos), ray_nodes, workers=1),
        pytest.raises(ap.LoaderError, match="in one Ray cluster only"),
    ):
        ap.make_loader(exact_workload(photos), other)


def test_two_loaders_share_a_connection_and_each_ends_its_own_workers(photos: Path, ray_nodes: Any) -> None:
    import ray

    workload = exact_workload(photos)
    with opened(workload, ray_nodes, workers=1) as one:
        with opened(workload, ray_nodes, workers=1) as other:
            assert digest(finished(other, other.batches(0))) == digest(expected_batches(workload, 0))
        assert digest(finished(one, one.batches(0))) == digest(expected_batches(workload, 0))
        assert one.hand_over_seconds is not None
        assert 0 < one.hand_over_seconds < 10
    assert not ray.is_initialized()


FROM_OUTSIDE = """
import sys
from pathlib import Path
from autopipe.pipeline.assembly import make_loader
from autopipe.pipeline.config import PipelineConfig
from autopipe.hardware import processes
from autopipe.extensions.ray.loader import Ray
from ray.util.client.worker import Worker
from autopipe.testing import expected_batches, finished
from tests.contract.test_loaders import digest, exact_workload
begin = Worker._server_init
def lose(*arguments):
    Worker._server_init = begin
    raise ConnectionAbortedError("Initialization failure from server: Starting Ray client server failed.")
if __name__ == "__main__":
    Worker._server_init = lose  # the first time, as Ray's own does now and then
    workload = exact_workload(Path(sys.argv[1]))
    with make_loader(workload, PipelineConfig(loader=Ray(workers=2, address=sys.argv[2]))) as loader:
        assert digest(finished(loader, loader.batches(1))) == digest(expected_batches(workload, 1))
    print("the same")
"""


def free_port() -> int:
    """Return a port that nobody is given by chance: not of outgoing connections, nor of Ray's workers."""
    for port in range(20500, 22500):
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            return port
    raise AssertionError("every port is taken")


def wait_for_server(port: int) -> None:
    """Wait until Ray's server for clients answers; Ray starts it, and does not wait."""
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(timeout=60)


def test_a_training_outside_of_the_cluster_gets_the_same_batches(photos: Path, tmp_path: Path) -> None:
    port = free_port()
    script = tmp_path / "outside.py"
    script.write_text(FROM_OUTSIDE)
    with two_nodes(ray_client_server_port=port):
        wait_for_server(port)
        done = python("-W", "ignore", script, photos, f"ray://127.0.0.1:{port}", backend="tensorflow")
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["the same"]), done.stdout + done.stderr[-3000:]


ENDS = {
    "close": "loader.close(); loader.close(); assert not psutil.Process().children(), psutil.Process().children()",
    "never closed": "pass",
    "exception": "raise ValueError('in the consumer')",
    "terminate": "signal.raise_signal(signal.SIGTERM)",
    "kill": "signal.raise_signal(signal.SIGKILL)",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("end", ENDS)
def test_a_cluster_that_it_started_ends_however_the_process_does(photos: Path, tmp_path: Path, end: str) -> None:
    script = tmp_path / "consumer.py"
    script.write_text(commands.script(photos, Ray(workers=1), ENDS[end]))
    variables = environment()
    variables.pop("RAY_ADDRESS", None)
    errors = tmp_path / "errors"
    with (
        errors.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(script)],
            env=variables, stdout=subprocess.PIPE, stderr=file, text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        children = [psutil.Process(int(pid)) for pid in line.split() if psutil.pid_exists(int(pid))]
        process.wait(100)
    assert line, errors.read_text()
    # Of a process that was killed, Ray's two agents look for the head for a minute and more before they end.
    _, alive = psutil.wait_procs(children, timeout=150 if end == "kill" else 60)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
    if end in ("close", "never closed"):
        assert (process.returncode, "Traceback" in errors.read_text()) == (0, False), errors.read_text()


# ---------------------------------------------------------------- a conversion

TRAIN = """
import autopipe as ap
workload = ap.Workload(data=ap.Table({table!r}), ops=[ap.Decode(), ap.Resize(8, 8)], batch_size=2)
"""


@pytest.mark.parametrize("form", ["array", "tfrecord"])
def test_a_cluster_writes_the_same_files(photos: Path, tmp_path: Path, ray_nodes: Any, form: str) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(table=str(photos / "labels.csv")))
    named = f"{tmp_path / 'train.py'}:workload"
    converting.job(named, form, tmp_path / "whole").run(workers=1)
    line = ("convert", named, "--to", form, "--out", "set", "--by", f"ray={ray_nodes.address}", "--verify")
    done = succeeded(autopipe(*line, cwd=tmp_path))
    assert "wrote     23 samples" in done.stderr
    assert "verified" in done.stderr
    assert content(tmp_path / "set") == content(tmp_path / "whole")
    assert "23 were there already" in succeeded(autopipe(*line, cwd=tmp_path)).stderr


def test_a_folder_that_nodes_do_not_share_is_named(photos: Path, tmp_path: Path, ray_nodes: Any) -> None:
    number = opened_high(tmp_path)
    try:
        elsewhere = converting.job(exact_workload(photos), "array", f"/proc/self/fd/{number}/other")
        with pytest.raises(ap.StorageError, match=r"cannot be written to|is not complete"):
            elsewhere.run(by=writer(ray_nodes.address))
    finally:
        os.close(number)
    job = converting.job(exact_workload(photos), "array", tmp_path / "set")
    assert job.run(by=writer(ray_nodes.address)).samples == 23
