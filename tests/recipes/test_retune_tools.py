"""examples/retune, read by the tools that will read them, and run with the real `autopipe`: nothing is skipped.

`make test-recipes` installs the tools. Airflow is in an environment of its own, since it wants versions of its own.
"""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from autopipe.artifact import artifact as files
from tests.fakes.commands import Done, environment
from tests.fakes.profiles import of_this_machine
from tests.integration.test_retune_recipes import RECIPES, SHELL, ran, with_program

BIN = Path(sys.executable).parent
TODAY = datetime.datetime.now(datetime.UTC)
LONG_AGO = TODAY - datetime.timedelta(days=400)


def _project(folder: Path, options: str = "") -> Path:
    """Return a project with the real program, which gets these options too, where the recipes look for it."""
    return with_program(folder, f'exec {sys.executable} -m autopipe "$@" {options}')


def _tuned(project: Path, measured_at: datetime.datetime) -> Path:
    return of_this_machine(project, below="tuned", measured_at=measured_at)


def _run(recipe: str, project: Path) -> Done:
    path = f"{project}/.venv/bin:{os.environ['PATH']}"
    return ran(SHELL[recipe](), project, **environment(PATH=path, ON_CHANGED="echo published"))


@pytest.mark.parametrize(
    "command",
    [[BIN / "shellcheck", *RECIPES.glob("*.sh")], ["crontab", "-n", RECIPES / "crontab"]],
    ids=["shellcheck", "cron"],
)
def test_tools_take_the_scripts_and_the_crontab(command: list[Any]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    project = _project(tmp_path / "project")
    for unit in RECIPES.glob("autopipe-retune.*"):
        (tmp_path / unit.name).write_text(unit.read_text().replace("/srv/project", str(project)))
    units = (tmp_path / f"autopipe-retune.{kind}" for kind in ("timer", "service"))
    command = ["systemd-analyze", "verify", "--man=no", *map(str, units)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "autopipe" in line]) == (0, [])


@pytest.mark.parametrize("name", ["cronjob.yaml", "training_job.yaml"])
def test_kubernetes_takes_the_manifests(name: str) -> None:
    kubernetes_validate.validate(yaml.safe_load((RECIPES / name).read_text()), "1.31", strict=True)


AIRFLOW = """
import json, runpy, sys
path, *projects = sys.argv[1:]
dag = runpy.run_path(path)["dag"]
retune = dag.get_task("retune")
ended = []
for retune.cwd in projects:
    try:
        retune.execute({})
        ended.append("went on")
    except Exception as error:
        ended.append(type(error).__name__)
print(json.dumps([dag.dag_id, sorted(retune.downstream_task_ids), ended]))
"""


def test_airflow_imports_the_dag_and_skips_what_follows_unless_there_is_a_change(tmp_path: Path) -> None:
    projects = [with_program(tmp_path / str(code), f"exit {code}") for code in (0, 6, 7, 3)]
    done = subprocess.run(
        [BIN.parent / "airflow" / "bin" / "python", "-c", AIRFLOW, RECIPES / "airflow_dag.py", *projects],
        env={"PATH": os.environ["PATH"], "AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ended = ["went on", "AirflowSkipException", "AirflowSkipException", "AirflowException"]
    assert json.loads(done.stdout.splitlines()[-1]) == ["autopipe_retune", ["publish"], ended]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["crontab", "training_job"])
def test_a_profile_that_fits_is_left_as_it_is(recipe: str, tmp_path: Path) -> None:
    path = _tuned(_project(tmp_path), TODAY)
    before = path.read_text()
    done = _run(recipe, tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert path.read_text() == before


@pytest.mark.slow
def test_a_profile_that_is_old_would_be_renewed_and_is(tmp_path: Path) -> None:
    path = _tuned(_project(tmp_path, "--dry-run"), LONG_AGO)
    done = _run("service", tmp_path)
    assert (done.returncode, "published tuned/autopipe.json" in done.stdout) == (0, True), done.stderr
    assert "would     retune: it was measured 400 days ago" in done.stderr
    program = tmp_path / ".venv/bin/autopipe"
    program.write_text(program.read_text().replace("--dry-run", "--trials 2 --budget 30s"))
    done = _run("cronjob", tmp_path)
    assert done.returncode == 0, done.stderr
    assert files.read(path).profiles[0].measured_at >= TODAY
    assert ("published" in done.stdout) == ("the former configuration stays" not in done.stdout)
