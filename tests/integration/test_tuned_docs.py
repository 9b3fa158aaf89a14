"""docs/retune.md: its Python runs, its commands exist, and its units and manifests are well-formed."""

from __future__ import annotations

import configparser
import datetime
import functools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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
    lines += [text.split("&&")[1] for text in _blocks("cron")]
    lines += [line.partition("=")[2] for text in _blocks("ini") for line in text.splitlines() if "ExecStart" in line]
    words = [shlex.split(line.partition(" || ")[0].partition(" >>")[0], comments=True) for line in lines]
    words += [_container()["command"]]
    return [command for command in words if command and Path(command[0]).name == "autopipe"]


def _container() -> dict[str, list[str]]:
    (manifest,) = map(yaml.safe_load, _blocks("yaml"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "CronJob")
    container: dict[str, list[str]] = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    return container


@functools.cache
def _help(command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "autopipe", command, "--help"], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_every_command_and_its_options_exist() -> None:
    commands = _commands()
    assert {command[1] for command in commands} == {"check", "retune", "merge", "fleet"}
    for command in commands:
        unknown = [word for word in command[2:] if word.startswith("-") and word not in _help(command[1])]
        assert unknown == [], command


def test_the_shell_lines_are_shell() -> None:
    for text in _blocks("sh"):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    for text in _blocks("cron"):
        assert re.fullmatch(r"(\S+ +){5}.+\n", text)
        subprocess.run(["bash", "-n"], input=text.split(maxsplit=5)[5], text=True, check=True)


def test_the_units_are_units() -> None:
    units = []
    for text in _blocks("ini"):
        unit = configparser.ConfigParser(interpolation=None, strict=True)
        unit.optionxform = str  # type: ignore[method-assign,assignment]  # the documented way to keep capitals
        unit.read_string(text)
        units.append(unit)
    assert [unit.sections() for unit in units] == [["Unit", "Service"], ["Unit", "Timer", "Install"]]
    assert units[0]["Service"]["Type"] == "oneshot"


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
