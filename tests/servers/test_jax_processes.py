"""Two JAX processes on loopback, with real collectives, train what one process trains, each on half of a batch."""

import contextlib
import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fakes.commands import ROOT, environment

SAMPLES, BATCH, EPOCHS = 26, 8, 2
BATCHES = 4
pytestmark = pytest.mark.timeout(300)


@contextlib.contextmanager
def started(ranks: int, folder: Path, task: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Start so many processes; none of them is left at the end."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    lines = [[rank, ranks, port, folder, task] for rank in range(ranks)]
    commands = [[sys.executable, "-m", "tests.servers.jax_process_run", *map(str, line)] for line in lines]
    env = environment("jax")
    processes = [subprocess.Popen(each, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) for each in commands]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def train(ranks: int, folder: Path, task: str = "whole") -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    with started(ranks, folder, task) as processes:
        for process in processes:
            _, errors = process.communicate(timeout=200)
            assert process.returncode == 0, errors[-4000:]
    return [json.loads((folder / f"result-{rank}.json").read_text()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    (result,) = train(1, tmp_path_factory.mktemp("one"))
    return result


def test_two_ranks_train_what_one_process_trains_each_on_half_of_a_batch_and_of_the_samples(
    one: dict[str, Any], tmp_path: Path
) -> None:
    for result in train(2, tmp_path):
        assert (result["steps"], result["local_batch"]) == (EPOCHS * BATCHES, BATCH // 2)
        np.testing.assert_allclose(result["weights"], one["weights"], atol=1e-5)
        for name in ("loss", "val_loss"):
            np.testing.assert_allclose(result["history"][name], one["history"][name], rtol=1e-4)
        np.testing.assert_allclose(result["evaluated"], one["evaluated"], rtol=1e-4)
        assert "`predict` runs in one process, but this is one of 2" in result["prediction"]
        assert "`tune` must be None in processes that train together" in result["tuning"]
    mine, other = (Counter(map(int, (tmp_path / f"read-{rank}.txt").read_text().split())) for rank in range(2))
    assert mine + other == Counter({index: EPOCHS for index in range(SAMPLES)})
    assert mine.total() == other.total() == EPOCHS * SAMPLES / 2
    assert [path.name for path in sorted(tmp_path.glob("*.keras"))] == ["rank-0.keras"]


@pytest.mark.parametrize(("saved", "resumed"), [(2, 1), (1, 2)])
def test_a_state_saved_with_n_ranks_resumes_with_m(
    saved: int, resumed: int, one: dict[str, Any], tmp_path: Path
) -> None:
    train(saved, tmp_path, "half")
    for result in train(resumed, tmp_path, "resumed"):
        assert result["steps"] == EPOCHS * BATCHES - 2
        np.testing.assert_allclose(result["weights"], one["weights"], atol=1e-5)


def test_where_one_process_is_killed_the_other_ends_with_an_error_and_does_not_hang(tmp_path: Path) -> None:
    with started(2, tmp_path, "killed") as (left, killed):
        killed.wait(timeout=200)
        _, errors = left.communicate(timeout=60)  # JAX's own heartbeat would take 100 s
    assert killed.returncode == -9
    assert left.returncode not in (0, -9)
    assert "PeerLostError: Another of the 2 processes that train together has ended" in errors
