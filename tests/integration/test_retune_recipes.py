"""examples/retune: what each recipe runs, run by a shell with an `autopipe` that ends as told.

Where the tools that read them are needed, it is `tests/recipes`'s.
"""

import configparser
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.commands import ROOT, Done, autopipe, succeeded

RECIPES = ROOT / "examples" / "retune"
CHANGED, KEPT, NOTHING, UNMEASURED, MISUSED = 0, 6, 7, 3, 2


def _crontab() -> str:
    (line,) = [line for line in (RECIPES / "crontab").read_text().splitlines() if re.match(r"^[\d*]", line)]
    return line.split(maxsplit=5)[5]


def _unit(name: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[method-assign,assignment]  # the documented way to keep capitals
    unit.read_string((RECIPES / name).read_text())
    return unit


def _service() -> str:
    """Return the service as a shell would do it: systemd hands the code on, and takes some for success."""
    service = _unit("autopipe-retune.service")["Service"]
    successes = "|".join(["0", *service["SuccessExitStatus"].split()])
    after = service["ExecStopPost"]
    return f"{service['ExecStart']}; EXIT_STATUS=$?; {after}; case $EXIT_STATUS in {successes}) ;; *) exit 9;; esac"


def _pod(name: str) -> dict[str, Any]:
    manifest = yaml.safe_load((RECIPES / name).read_text())
    job = manifest["spec"]["jobTemplate"] if manifest["kind"] == "CronJob" else manifest
    pod: dict[str, Any] = job["spec"]["template"]["spec"]
    return pod


def _retune(name: str) -> dict[str, Any]:
    pod = _pod(name)
    (container,) = pod.get("initContainers", pod["containers"])
    return dict(container)


SHELL: dict[str, Callable[[], str]] = {
    "crontab": _crontab,
    "service": _service,
    "cronjob": lambda: shlex.join(_retune("cronjob.yaml")["command"]),
    "training_job": lambda: shlex.join(_retune("training_job.yaml")["command"]),
}


def with_program(project: Path, line: str) -> Path:
    """Put an `autopipe` of this line of shell, and the script for afterwards, where recipes look for them."""
    program = project / ".venv" / "bin" / "autopipe"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)
    (project / "after_retune.sh").symlink_to(RECIPES / "after_retune.sh")
    return project


def ran(command: str, project: Path, **variables: str) -> Done:
    path = {"PATH": f"{project}/.venv/bin:{os.environ['PATH']}", "ON_CHANGED": "echo published"}
    line = ["sh", "-c", command.replace("/srv/project", str(project))]
    return subprocess.run(line, cwd=project, env=path | variables, capture_output=True, text=True, check=False)


def ended(command: str, code: int, project: Path) -> Done:
    """Run a recipe's command in a project whose `autopipe` ends with this code."""
    with_program(project, f'echo "$@" >>{project}/asked\nexit {code}')
    done = ran(command, project, TMPDIR=str(project), AUTOPIPE_ARTIFACT="tuned/autopipe.json")
    assert (project / "asked").read_text().startswith("retune tuned/autopipe.json --if-stale ")
    return done


@pytest.mark.parametrize("recipe", SHELL)
@pytest.mark.parametrize("code", [CHANGED, KEPT, NOTHING, UNMEASURED, MISUSED])
def test_a_recipe_publishes_changes_alone_and_fails_as_the_retune_did(recipe: str, code: int, tmp_path: Path) -> None:
    done = ended(SHELL[recipe](), code, tmp_path)
    assert ("published tuned/autopipe.json\n" in done.stdout) == (code == CHANGED)
    assert (done.stdout + done.stderr == "") == (code == NOTHING)
    failed = {"service": 9, "training_job": 0}.get(recipe, code)
    assert done.returncode == (failed if code in (UNMEASURED, MISUSED) else 0)
    if recipe == "training_job" and code in (UNMEASURED, MISUSED):
        assert "training with the profile that is there" in done.stderr


@pytest.mark.parametrize(
    ("code", "came"), [(CHANGED, "changed"), (KEPT, "kept"), (NOTHING, "fits"), (UNMEASURED, "failed"), (127, "failed")]
)
def test_the_task_prolog_tells_slurm_what_came_of_it_and_never_fails(code: int, came: str, tmp_path: Path) -> None:
    done = ended(str(RECIPES / "slurm_task_prolog.sh"), code, tmp_path)
    exported, *printed = done.stdout.splitlines()
    assert (done.returncode, exported) == (0, f"export AUTOPIPE_RETUNE={came}")
    assert [line.split()[0] for line in printed] == (["print"] if came == "failed" else [])


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [("slurm_task_prolog.sh", 0, ""), ("after_retune.sh TERM a.json", 1, "a.json: autopipe retune failed (TERM)\n")],
)
def test_who_asks_for_no_retune_gets_none_and_the_end_by_a_signal_is_a_failure(
    line: str, status: int, said: str
) -> None:
    path = {"PATH": "/nowhere:/bin:/usr/bin"}
    done = subprocess.run(f"{RECIPES}/{line}", shell=True, env=path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", said)


def test_every_option_exists_and_the_page_names_every_recipe() -> None:
    files = {path.name: path.read_text() for path in RECIPES.iterdir() if path.is_file()}
    lines = [line for text in files.values() for line in text.splitlines() if "autopipe retune" in line]
    assert f"skip_on_exit_code=[{KEPT}, {NOTHING}]" in files["airflow_dag.py"]
    options = {word for line in lines for word in re.findall(r"--[a-z-]+", line)}
    shown = succeeded(autopipe("retune", "--help"))
    assert options == {"--if-stale", "--exit-code", "--budget"}
    assert [option for option in options if option not in shown.stdout] == []
    assert [name for name in files if f"]({name})" not in files["README.md"]] == ["README.md"]
