"""The public names, where they live and what importing them costs; and what a package that adds plugins adds."""

import ast
import os
from pathlib import Path

import pytest

import autopipe
from autopipe import registry
from tests.fakes.commands import environment, python, succeeded

ROOT = Path(autopipe.__file__).parent
FILES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}


def test_type_checkers_and_python_import_the_same_names_from_the_same_modules() -> None:
    entries = [entry for group in autopipe._GROUPS for entry in registry.declared(group)]
    ours = [entry for entry in entries if entry.module.startswith("autopipe.")]
    extensions = {entry.name: entry.module.removeprefix("autopipe.") for entry in ours}
    (block,) = (node for node in ast.parse(FILES["__init__.py"]).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    checked = {name.name: str(node.module).removeprefix("autopipe.") for node in imports for name in node.names}
    lacking = {name for name, home in checked.items() if home.startswith("extensions.")} - extensions.keys()
    found = {name: home for name, home in checked.items() if name not in lacking}  # in a copy without some of them
    assert found == {**autopipe._HOMES, **extensions}
    assert sorted(autopipe.__all__) == sorted([*autopipe._HOMES, "__version__"])
    assert {*autopipe.__all__, *extensions} <= {*dir(autopipe)}


def test_names_of_before_still_work_and_say_what_they_are_now() -> None:
    with pytest.warns(DeprecationWarning, match=r"`ap\.build_loader` is `ap\.make_loader` now"):
        assert autopipe.build_loader is autopipe.make_loader


def test_load_imports_neither_the_search_nor_a_framework() -> None:
    code = (
        "import sys, autopipe as ap\n"
        "assert not [name for name in sys.modules if name.startswith('autopipe.') and name != 'autopipe._version']\n"
        "ap.load\n"
        "print({'optuna', 'sqlalchemy', 'keras', 'tensorflow', 'jax', 'torch', 'pandas', 'rich'} & set(sys.modules))"
    )
    assert succeeded(python("-c", code)).stdout == "set()\n"


def test_no_file_of_the_package_has_more_than_600_lines() -> None:
    """A file is a topic that a reader wants whole, and no more (CONTRIBUTING.md)."""
    assert [path for path, text in FILES.items() if len(text.splitlines()) > 600] == []


PACKAGE = """
import dataclasses
from contextlib import nullcontext
from typing import Literal

import numpy as np
import pydantic

from autopipe.pipeline.config import STORAGES, LoaderConfig
from autopipe.pipeline.devices.strategy import SharingStrategy
from autopipe.pipeline.loader import Loader, LoadJob
from autopipe.pipeline.loaders.workers import Threads
from autopipe.pipeline.storage.array import Array
from autopipe.workload.op import Op

class Borrowed(LoaderConfig):
    kind: Literal["borrowed"] = "borrowed"
    workers: int = pydantic.Field(default=1, ge=1)

    def worker_count(self) -> int:
        return self.workers
    def buffered_batches(self) -> int:
        return 1
    def open(self, job: LoadJob) -> Loader:
        return Threads(workers=self.workers, queue_size=1).open(job)

class Copied(Array):
    name = "copied"

STORAGES.register(Copied.name, Copied())

@dataclasses.dataclass(frozen=True)
class Invert(Op):
    batchable = True

    def apply(self, sample, spec, random):
        return self.finish(sample, spec, None)
    def finish(self, batch, spec, xp):
        return 255 - batch[0], batch[1]

class Numbers:
    def __init__(self, count):
        self._count = count
    def __len__(self):
        return self._count
    def read(self, index):
        return np.full((4, 4, 3), index, np.uint8), index

class Pair(SharingStrategy):
    looks_ahead = False

    def __init__(self, devices):
        self.devices = devices
    @classmethod
    def accelerators(cls):
        return 2
    def scope(self):
        return nullcontext()
    def place(self, array):
        return array
"""

USE = """
import warnings
from pathlib import Path

import autopipe as ap
from autopipe.artifact import converting
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices import strategy as strategies
from autopipe.search.space import parameter_types, to_config

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    config = to_config({"loader": "borrowed", "borrowed.workers": 2, "keep": "copied"})
assert ["broken" in str(one.message) and "their-package" in str(one.message) for one in said] == [True], said
assert "borrowed.workers" in parameter_types()
assert PipelineConfig.model_validate_json(config.model_dump_json()) == config
workload = ap.Workload(data=ap.Numbers(8), ops=[ap.Invert()], batch_size=4, converted="kept")
converting.job(workload, "copied").run()
with ap.make_loader(workload, config) as loader:
    print(sorted(int(label) for _, y in loader.epoch(0) for label in y))
    print(all((x[:, 0, 0, 0] == 255 - y).all() for x, y in loader.epoch(0)))
print(type(strategies.chosen(2)).__name__)
"""

ENTRIES = """
[autopipe.loaders]
borrowed = their_package
broken = their_package.missing
[autopipe.storage]
copied = their_package
[autopipe.device_strategies]
numpy = their_package:Pair
[autopipe.ops]
Invert = their_package:Invert
[autopipe.sources]
Numbers = their_package:Numbers
"""


@pytest.mark.slow
def test_an_installed_package_adds_plugins_of_every_kind_by_entry_points(tmp_path: Path) -> None:
    """Installed by what an installer leaves behind: the package, and its dist-info on the path."""
    (tmp_path / "their_package.py").write_text(PACKAGE)
    (info := tmp_path / "their_package-1.0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    done = succeeded(python("-c", USE, cwd=tmp_path, backend="numpy", PYTHONPATH=path))
    assert done.stdout.split("\n")[:3] == ["[0, 1, 2, 3, 4, 5, 6, 7]", "True", "Pair"]
