from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autopipe.artifact import codegen, factory
from autopipe.artifact.schema import FileReference, ImagesReference, ModuleReference, Reference
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.workload import Workload
from tests.fakes.profiles import profile

WORKLOAD = Workload(data=Arrays(np.zeros((4, 2))), ops=[], batch_size=2)


def _source(named: Reference | None, artifact: Path) -> str:
    tuned = factory.of_profile(profile(), WORKLOAD, named=named)
    return codegen.text_for(tuned.artifact_for(artifact.parent).workload, artifact.name)


def test_the_module_holds_the_workload_itself(tmp_path: Path) -> None:
    text = _source(FileReference(path=str(tmp_path / "train.py")), tmp_path / "tuned" / "autopipe.json")
    constants = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    artifact, workload = (ast.literal_eval(node.value) for node in constants[:2])
    assert artifact == "autopipe.json"
    assert workload == {
        "kind": "file",
        "path": "../train.py",
        "origin": str(tmp_path / "train.py"),
        "attribute": "workload",
    }
    assert "allow_outside" not in text


@pytest.mark.parametrize(
    "named",
    [
        None,
        ModuleReference(module="project.train"),
        FileReference(path='/a/"""; import this; """\\train.py'),
        ImagesReference(path="/photos", model="VGG16"),
    ],
)
def test_whatever_the_workload_is_called_the_module_is_the_same_code(named: Reference | None, tmp_path: Path) -> None:
    tree = ast.parse(_source(named, tmp_path / 'auto"""pipe.json'))
    kinds = [type(node).__name__ for node in tree.body]
    assert {"make_loader", "make_trainer", "make_dataset"} <= {getattr(node, "name", None) for node in tree.body}
    assert kinds == ["Expr", *["ImportFrom"] * 3, "Import", *["Assign"] * 3, "AnnAssign", *["FunctionDef"] * 3]


def test_the_module_passes_the_linter_and_the_formatter(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "tuned"):
        folder.mkdir(exist_ok=True)
        source = _source(FileReference(path=str(tmp_path / "train.py")), folder / "autopipe.json")
        (folder / "tuned_pipeline.py").write_text(source)
    for arguments in (
        ["check", "--isolated", "--select", "E,F,I,UP,B,D,FA", "--ignore", "D203,D213"],
        ["format", "--check"],
    ):
        command = [sys.executable, "-m", "ruff", *arguments, "--line-length", "120", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
