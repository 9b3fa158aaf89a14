"""The README and docs/train.md, as a reader would follow them: the same blocks, in their order, in their folders.

The commands of all pages exist. What a tune prints as the next step is pasted into a shell where the user stands.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from autopipe.artifact import factory, reference
from autopipe.cli import main
from autopipe.cli.output import say_next, write_outputs
from autopipe.measure import fingerprint
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.search.settings import Request
from tests.fakes.commands import ROOT, Done, in_shell, python, succeeded
from tests.fakes.images import in_classes
from tests.fakes.profiles import HALVED, digest, of_this_machine, profile
from tests.fakes.workload_script import TRAIN

FOLLOWED = [ROOT / "README.md", ROOT / "docs" / "train.md"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _blocks(page: Path) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.M)


PYTHON = [text for page in FOLLOWED for kind, text in _blocks(page) if kind == "python"]
WORKLOAD = next(text for text in PYTHON if "workload = ap.Workload(" in text)
INLINE = [" ".join(each.split()) for page in PAGES for each in re.findall(r"`(autopipe [a-z][^`]*)`", page.read_text())]
LINES = [line for page in PAGES for kind, text in _blocks(page) if kind in ("", "sh") for line in text.splitlines()]
COMMANDS = [line.partition("#")[0].strip() for line in LINES if line.startswith("autopipe ")] + INLINE
SHORT = ["--space", "quick", "--trials", "3", "--budget", "60s"]


def followed(test: Any) -> Any:
    return pytest.mark.slow(pytest.mark.timeout(300)(test))


def _run(folder: Path, *arguments: str, shell: str | None = None) -> Done:
    done = succeeded(python(*arguments, cwd=folder) if shell is None else in_shell(shell, folder))
    assert "Exception ignored" not in done.stderr
    return done


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos in ten classes, and the README's workload as train.py."""
    folder = tmp_path_factory.mktemp("project")
    in_classes(folder / "photos", 40, (72, 96), classes=10, suffix=".jpg")
    (folder / "train.py").write_text(WORKLOAD)
    return folder


@pytest.fixture(scope="module")
def tuned(project: Path) -> str:
    """What `autopipe tune train.py:workload`, the README's command with less to try, said on stderr."""
    assert "autopipe tune train.py:workload" in COMMANDS
    return _run(project, "-m", "autopipe", "tune", "train.py:workload", *SHORT).stderr


def _script(*blocks: str) -> str:
    return "\n".join(blocks).replace("        ...", "        break")


@followed
def test_a_tune_writes_the_three_files_that_the_readme_names(project: Path, tuned: str) -> None:
    assert {"autopipe.json", "study.db", "tuned_pipeline.py"} <= {path.name for path in (project / "tuned").iterdir()}


@followed
def test_what_the_tune_printed_as_the_next_step_trains(project: Path, tuned: str) -> None:
    (step,) = [line.partition("next")[2].strip() for line in tuned.splitlines() if line.startswith("next")]
    assert "make_trainer().fit" in step
    # What the user's own code opens by a relative path is there as it was in the tune.
    _run(project, shell=step.replace("import tuned_pipeline", 'open("train.py"); import tuned_pipeline'))


@followed
@pytest.mark.parametrize("folder", ["project", "elsewhere"])
def test_training_with_the_result_runs_from_any_folder(project: Path, tuned: str, folder: str, tmp_path: Path) -> None:
    blocks = [block for block in PYTHON if "tuned_pipeline" in block]
    assert len(blocks) == 3  # the trainer, a `fit` of one's own, a loop of one's own
    (project / "follow.py").write_text(_script(*blocks))
    stands = project if folder == "project" else tmp_path
    _run(stands, str(project / "follow.py"))
    assert (stands / "final.keras").exists()


@followed
def test_a_configuration_chosen_by_hand_gives_batches(project: Path) -> None:
    (block,) = (block for block in PYTHON if "build_loader" in block)
    (project / "by_hand.py").write_text(_script(block))
    assert "(8, 64, 64, 3)" in _run(project, "by_hand.py").stdout


@followed
@pytest.mark.parametrize("begins", ["autopipe measure", "autopipe convert", "autopipe verify"])
def test_commands_on_the_workload_run(project: Path, begins: str) -> None:
    command = next(each for each in COMMANDS if each.startswith(f"{begins} train.py:workload"))
    _run(project, "-m", *shlex.split(command))


def test_every_command_and_option_of_the_pages_exists() -> None:
    application: Any = typer.main.get_command(main.application())
    for name, *words in (shlex.split(command)[1:] for command in COMMANDS):
        if name.startswith("-"):
            continue
        command = application.commands[name]
        known = {"--help", *(option for each in command.params for option in (*each.opts, *each.secondary_opts))}
        if name == "diagnose":  # what stands behind the script is the script's own
            words = words[: next((at for at, word in enumerate(words) if word.endswith(".py")), None)]
        assert {word.partition("=")[0] for word in words if word.startswith("--")} - known == set(), name


def test_every_python_block_is_run_by_one_of_these_tests() -> None:
    assert len(PYTHON) == 5


@pytest.mark.slow
@pytest.mark.parametrize("code", [text for kind, text in _blocks(ROOT / "docs" / "retune.md") if kind == "python"])
def test_the_python_of_retunes_page_runs_beside_an_artifact_that_fits(code: str, tmp_path: Path) -> None:
    of_this_machine(tmp_path)
    _run(tmp_path, "-W", "error::UserWarning:autopipe", "-c", code)


# ---------------------------------------------------------------- printed as the next step: no search is run for it

_ASKED = Request()
SAVE = "import os\nimport autopipe as ap\nnp.save(os.path.dirname(__file__) + '/x.npy', np.zeros((256, 4), 'float32'))"
RELATIVE = TRAIN.replace("import autopipe as ap", SAVE).replace('np.zeros((256, 4), "float32"), ', '"x.npy", ')


def _printed(
    home: Path, stands: Path, out: Path, monkeypatch: pytest.MonkeyPatch, request: Request = _ASKED
) -> list[str]:
    """Return the lines that a tune of `home/train.py` prints at its end, run in folder `stands` with `--out out`."""
    monkeypatch.chdir(stands)
    named = reference.parse(os.path.relpath(home / "train.py", stands) + ":workload")
    here = fingerprint.detect().model_copy(update={"keras_backend": "jax"})
    known = profile(hardware=here, workload=digest(samples=256, batch_size=4, op_list=HALVED), request=request)
    out.mkdir(parents=True, exist_ok=True)
    tuned = factory.of_profile(known, lambda: pytest.fail("imported"), named=named)
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        written, _ = write_outputs(tuned, [out])
        say_next(written, known, "train.py:workload", [str(written)])
    lines = shown.getvalue().splitlines()
    assert (out / "report.html").is_file()
    assert lines[0] == f"report    {out / 'report.html'}"
    return [line[10:] for line in lines[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stands", "out"), [("home", "tuned"), ("elsewhere", "tuned"), ("home", "../models of mine"), ("home/tuned", ".")]
)
def test_each_command_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stands: str, out: str) -> None:
    home = tmp_path / "home"
    (tmp_path / stands).mkdir(parents=True)
    home.mkdir(exist_ok=True)
    (home / "train.py").write_text(RELATIVE)
    lines = _printed(home, tmp_path / stands, Path(out), monkeypatch)
    assert len(lines) == 2
    for line in [lines[0], f"{lines[1]} --quick"]:  # without --quick, half a minute of measuring more
        done = in_shell(line, tmp_path / stands)
        assert done.returncode in (0, 4), f"{line}\n{done.stderr}"  # 4: the profile is not of this model
        assert "Traceback" not in done.stderr
    assert sys.executable in lines[1] or lines[1].startswith("autopipe check")


@pytest.mark.slow
def test_the_line_after_a_simulated_accelerator_needs_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(TRAIN.replace(", model=build_model", ""))
    request = Request(simulate=SimulatedAccelerator(step_seconds=0.01, batch_size=4))
    lines = _printed(tmp_path, tmp_path, Path("tuned"), monkeypatch, request=request)
    assert succeeded(in_shell(lines[0], tmp_path)).stdout.strip() == "64"  # batches
