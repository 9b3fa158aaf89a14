"""The contract of loaders, as it is, over a Ray cluster of two nodes: each test of it, with `Ray` for other loaders."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from autopipe.extensions.ray.loader import Ray, Team, Worker
from tests.contract.test_loaders import *  # noqa: F403  # the contract itself

LOADERS = {f"ray-{n}": Ray(workers=n, queue_size=2) for n in (1, 2, 5)}
ONE_OF_EACH = ["ray-2"]
del test_a_kept_sample_stays_as_it_was_first_read_when_its_file_changes  # noqa: F821  # each worker keeps its own
pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module", autouse=True)
def _connected(ray_nodes: Any) -> Iterator[None]:
    """Have one connection for all tests, as a user's own code may: a second for each of them otherwise."""
    import ray

    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = ray_nodes.address
    ray.init(logging_level="warning", log_to_driver=False)
    yield
    ray.shutdown()
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
