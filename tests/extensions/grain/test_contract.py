"""The contract of loaders over Grain's threads. Its processes: test_processes.py."""

from __future__ import annotations

import pytest

from autopipe.extensions.grain.loader import Grain
from tests.contract.test_loaders import *  # noqa: F403  # the contract itself

pytest.importorskip("grain")
LOADERS = {f"grain-{n}": Grain(num_threads=n, buffer_size=max(2, n)) for n in (1, 2, 5)}
ONE_OF_EACH = ["grain-2"]
