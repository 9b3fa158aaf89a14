"""The README, docs/train.md and the examples, as a reader would follow them: the same blocks, in their order.

The commands of all pages exist. What a tune prints as the next step is pasted into a shell where the user stands. Of
examples/migrate each script after its migration trains; those before it are what others wrote, and are not run.
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import typer.main

from autopipe.artifact import factory, reference
from autopipe.cli import main
from autopipe.cli.output import say_next, write_outputs
from autopipe.measure import fingerprint
from autopipe.workload.data.records import frame, serialise
from tests.fakes.commands import ROOT, TRAIN, Done, in_shell, python, succeeded
from tests.fakes.damage import in_classes
from tests.fakes.profiles import HALVED, digest, profile

FOLLOWED = [ROOT / "README.md", ROOT / "docs" / "train.md"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _blocks(page: Path) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.M)


PYTHON = [text for page in FOLLOWED for kind, text in _blocks(page) if kind == "python"]
WORKLOAD = next(text for text in PYTHON if "workload = ap.Workload(" in text)
INLINE = [" ".join(each.split()) for page in PAGES for each in re.findall(r"`(autopipe [a-z][^`]*)`", page.read_text())]
LINES = [line for page in PAGES for kind, text in _blocks(page) if kind in ("", "sh") for line in text.splitlines()]
COMMANDS = [line.partition("#")[0].strip() for line in LINES if line.startswith("autopipe ")] + INLINE


def _run(folder: Path, *arguments: str, shell: str | None = None) -> Done:
    done = succeeded(python(*arguments, cwd=folder) if shell is None else in_shell(shell, folder))
    assert "Exception ignored" not in done.stderr
    return done


def _script(*blocks: str) -> str:
    return "\n".join(blocks).replace("        ...", "        break")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_readmes_commands_and_scripts_run_one_after_the_other(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    in_classes(project / "photos", 40, (72, 96), classes=10, suffix=".jpg")
    (project / "train.py").write_text(WORKLOAD)
    for begins in ("measure", "convert", "verify"):
        command = next(each for each in COMMANDS if each.startswith(f"autopipe {begins} train.py:workload"))
        _run(project, "-m", *shlex.split(command))
    assert "autopipe tune train.py:workload" in COMMANDS
    less = ("--space", "quick", "--trials", "3", "--budget", "60s")
    tuned = _run(project, "-m", "autopipe", "tune", "train.py:workload", *less).stderr
    assert {"autopipe.json", "study.db", "tuned_pipeline.py"} <= {path.name for path in (project / "tuned").iterdir()}

    (step,) = [line.partition("next")[2].strip() for line in tuned.splitlines() if line.startswith("next")]
    assert "make_trainer().fit" in step
    # What the user's own code opens by a relative path is there as it was in the tune.
    _run(project, shell=step.replace("import tuned_pipeline", 'open("train.py"); import tuned_pipeline'))

    blocks = [block for block in PYTHON if "tuned_pipeline" in block]
    assert len(blocks) == 3  # the trainer, a `fit` of one's own, a loop of one's own
    (project / "follow.py").write_text(_script(*blocks))
    for stands in (project, elsewhere):
        _run(stands, str(project / "follow.py"))
        assert (stands / "final.keras").exists()

    (by_hand,) = (block for block in PYTHON if "ap.make_loader" in block)
    (project / "by_hand.py").write_text(_script(by_hand))
    assert "(8, 64, 64, 3)" in _run(project, "by_hand.py").stdout
    assert len(PYTHON) == len(blocks) + 2  # all of them, and the workload


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


# ---------------------------------------------------------------- printed as the next step: no search is run for it

SAVE = "import os\nimport autopipe as ap\nnp.save(os.path.dirname(__file__) + '/x.npy', np.zeros((256, 4), 'float32'))"
RELATIVE = TRAIN.replace("import autopipe as ap", SAVE).replace('np.zeros((256, 4), "float32"), ', '"x.npy", ')


def _printed(home: Path, stands: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that a tune of `home/train.py` prints at its end, run in folder `stands` with `--out out`."""
    monkeypatch.chdir(stands)
    named = reference.parse(os.path.relpath(home / "train.py", stands) + ":workload")
    here = fingerprint.detect().model_copy(update={"keras_backend": "jax"})
    known = profile(hardware=here, workload=digest(samples=256, batch_size=4, op_list=HALVED))
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


# ---------------------------------------------------------------- each example, as its own docstring says

ON_JAX = ("photos", "custom_source", "two_inputs")  # it is imported in a second
EXAMPLES = sorted((ROOT / "examples").glob("*/train.py"))
MIGRATED = sorted(path.stem.removesuffix("_before") for path in (ROOT / "examples" / "migrate").glob("*_before.py"))


def run(script: Path, *line: str) -> str:
    """Run a script of an example, or a command on it, beside its demo data."""
    backend, maker = "jax" if script.parent.name in ON_JAX else "tensorflow", script.with_name("make_demo.py")
    if maker.exists() and not (script.parent / "demo").exists():
        succeeded(python(maker, backend=backend))
    done = succeeded(python(*line or [script], backend=backend))
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_trains_without_the_tuner(script: Path) -> None:
    shown = run(script)
    assert "loss" in shown
    if script.parent.name == "branches":  # they stay where the model puts them, and train the same
        rows = re.findall(r"^(.*): [\d,]+ images/s, loss (\S+), coarse branch on (\S+)$", shown, re.MULTILINE)
        placed = {"one device": "CPU:0", "branches on two": "CPU:1", "data parallel on two": "both"}
        assert {name: where for name, _, where in rows} == placed
        assert len({round(float(loss), 3) for _, loss, _ in rows}) == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_py_dataset_that_uses_multiprocessing_is_measured_beside_worker_processes() -> None:
    script = ROOT / "examples" / "existing_pydataset" / "train_tuned.py"
    shown = run(script, *f"-m autopipe measure {script}:workload --time 1s --set wrapped.workers=2".split())
    assert re.search(r"the dataset without the model +images/s", shown)
    assert re.search(r"processes\(workers=\d+\).* [\d.]+ \(", shown), shown


RUN_ALL = """
import os, runpy, sys
for script, data in zip(sys.argv[1::2], sys.argv[2::2]):
    os.environ["DATA"] = data
    runpy.run_path(script, run_name="__main__")
    print("trained", script)
"""


def demos(root: Path) -> dict[str, Path]:
    """Return the data of each script that does not take photos in classes, whose folder is `photos`."""
    runpy.run_path(str(ROOT / "examples" / "photos" / "make_demo.py"))["make"](root / "photos", per_class=3)
    rng, pets, records = np.random.default_rng(0), root / "pets", root / "records"
    for folder in (pets / "images", pets / "annotations" / "trimaps", records):
        folder.mkdir(parents=True)
    for number in range(8):
        cv2.imwrite(str(pets / "images" / f"{number}.jpg"), rng.integers(0, 256, (90, 120, 3), np.uint8))
        trimap = rng.integers(1, 4, (90, 120), np.uint8)
        cv2.imwrite(str(pets / "annotations" / "trimaps" / f"{number}.png"), trimap)
    values: list[dict[str, bytes | int]] = [
        {"image/encoded": file.read_bytes(), "image/class/label": number % 8}
        for number, file in enumerate(sorted((root / "photos").rglob("*.jpg")))
    ]
    (records / "0.tfrecord").write_bytes(b"".join(frame(serialise(value)) for value in values))
    return {"segmentation": pets, "tfrecords": records}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_script_trains_after_its_migration(tmp_path: Path) -> None:
    data, home = demos(tmp_path), {name: str(tmp_path / "home") for name in ("HF_HOME", "XDG_CACHE_HOME")}
    assert set(MIGRATED) == {"classification", "generator", "hugging_face", "segmentation", "tfrecords"}
    scripts = {
        str(ROOT / "examples/migrate" / f"{each}_after.py"): data.get(each, tmp_path / "photos") for each in MIGRATED
    }
    parts = [part for pair in scripts.items() for part in pair]
    done = succeeded(python("-c", RUN_ALL, *parts, HF_HUB_OFFLINE="1", **home))
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("trained")] == list(scripts)


@pytest.fixture(autouse=True)
def _demo_data(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PHOTOS", "CAMVID", "PHOTOS_TAR"):
        monkeypatch.delenv(name, raising=False)
