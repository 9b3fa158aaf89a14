"""A bucket in memory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import fsspec
import pytest


@pytest.fixture
def bucket() -> Iterator[str]:
    """The URL of a bucket of the test's own on fsspec's memory file system, which a first file makes."""
    url = f"memory://{uuid.uuid4().hex}"
    system = fsspec.filesystem("memory")
    yield url
    if system.exists(url):
        system.rm(url, recursive=True)
