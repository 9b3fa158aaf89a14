from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autopipe.core.config import LOADERS
from autopipe.core.registry import Registry
from autopipe.errors import ConfigError


def test_the_modules_of_a_package_are_its_plugins() -> None:
    assert list(LOADERS) == ["keras", "processes", "tfdata", "threads", "wrapped"]
    assert LOADERS["threads"].__name__ == "Threads"


def test_an_unknown_name_is_refused_with_the_near_one() -> None:
    with pytest.raises(ConfigError, match=r"'thread'\. Did you mean `threads`\?"):
        LOADERS["thread"]


def test_a_plugin_can_be_registered_by_hand() -> None:
    registry: Registry[int] = Registry("number", "autopipe.data")
    registry.register("two", 2)
    assert registry["two"] == 2


PLUGIN = """
from typing import Literal

import pydantic

from autopipe.core.job import LoadJob
from autopipe.core.loader import Loader
from autopipe.core.config import LoaderConfig
from autopipe.loaders.threads import Threads


class Borrowed(LoaderConfig):
    kind: Literal["borrowed"] = "borrowed"
    workers: int = pydantic.Field(default=1, ge=1)

    def worker_count(self) -> int:
        return self.workers

    def buffered_batches(self) -> int:
        return 1

    def open(self, job: LoadJob) -> Loader:
        return Threads(workers=self.workers, queue_size=1).open(job)
"""

USE = """
import warnings

import numpy as np

import autopipe as ap
from autopipe.core.config import PipelineConfig
from autopipe.core.params import parameter_types, to_config

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    config = to_config({"loader": "borrowed", "borrowed.workers": 2})
assert ["broken" in str(one.message) and "their-package" in str(one.message) for one in said] == [True], said
assert "borrowed.workers" in parameter_types()
assert PipelineConfig.model_validate_json(config.model_dump_json()) == config
data = ap.Arrays(np.zeros((8, 4, 4, 3), np.uint8), np.arange(8))
with ap.build_loader(ap.Workload(data=data, ops=[], batch_size=4), config) as loader:
    print(sorted(int(label) for _, y in loader.epoch(0) for label in y))
"""


def test_an_installed_package_adds_a_loader_by_an_entry_point(tmp_path: Path) -> None:
    """Installed by what an installer leaves behind: the package, and its dist-info on the path."""
    (tmp_path / "their_package").mkdir()
    (tmp_path / "their_package" / "__init__.py").touch()
    (tmp_path / "their_package" / "loader.py").write_text(PLUGIN)
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[autopipe.loaders]\nborrowed = their_package.loader\nbroken = their_package.missing\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", USE], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "[0, 1, 2, 3, 4, 5, 6, 7]"
