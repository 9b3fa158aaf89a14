"""docs/retune.md: its Python runs, and its commands exist. Its recipes are `test_retune_recipes.py`'s."""

from __future__ import annotations

import datetime
import functools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from autopipe.trial.workload_import import load_workload
from autopipe.tuned import artifact as files
from autopipe.tuned import fingerprint
from autopipe.tuned.schema import FileReference
from tests.fakes.profiles import artifact, figures, profile
from tests.fakes.workload_script import TRAIN

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs" / "retune.md").read_text(), flags=re.M | re.S)


def _blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


def _commands() -> list[list[str]]:
    """Return the autopipe commands of all blocks, as words."""
    lines = [line for text in _blocks("sh") for line in text.splitlines()]
    words = [shlex.split(line.partition(" || ")[0], comments=True) for line in lines]
    return [command for command in words if command and command[0] == "autopipe"]


@functools.cache
def _help(command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "autopipe", command, "--help"], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_every_command_and_its_options_exist() -> None:
    commands = _commands()
    assert {command[1] for command in commands} == {"check", "retune", "merge", "fleet", "tune"}
    for command in commands:
        unknown = [word for word in command[2:] if word.startswith("-") and word not in _help(command[1])]
        assert unknown == [], command


def test_the_shell_lines_are_shell() -> None:
    for text in _blocks("sh"):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("code", _blocks("python"))
def test_the_python_runs_beside_an_artifact_that_fits(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    workload = load_workload(f"{tmp_path / 'train.py'}:workload")
    here = profile(
        hardware=fingerprint.detect(workload.data).model_copy(update={"keras_backend": "jax"}),
        workload=fingerprint.workload_digest(workload),
        measurement=figures(1.0),
        measured_at=datetime.datetime.now(datetime.UTC),
    )
    files.write(artifact(here, workload=FileReference(path="train.py")), tmp_path / "autopipe.json")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "jax"}
    command = [sys.executable, "-W", "error::UserWarning:autopipe", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
