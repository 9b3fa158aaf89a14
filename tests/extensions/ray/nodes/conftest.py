"""A Ray cluster of two nodes on this machine."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

STORE_BYTES = 200 << 20
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
_QUICK = {"health_check_period_ms": 500}  # a node that is gone is noticed within seconds, and not after half a minute


@contextlib.contextmanager
def two_nodes(**head: Any) -> Iterator[Any]:
    """Start a `ray.cluster_utils.Cluster` of two nodes with one CPU each."""
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, of files and processes that it leaves to the collector
        arguments = {**NODE, "include_dashboard": False, "_system_config": _QUICK, **head}
        cluster = Cluster(initialize_head=True, head_node_args=arguments)
        try:
            cluster.add_node(**NODE)
            yield cluster
        finally:
            cluster.shutdown()


@pytest.fixture(scope="session")
def ray_nodes() -> Iterator[Any]:
    with two_nodes() as cluster:
        yield cluster
