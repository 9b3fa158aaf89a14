"""What a tune prints as the next step, pasted into a shell where the user stands. No search is run for it."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

import pytest

from autopipe.artifact import factory, reference
from autopipe.cli.output import say_next, write_outputs
from autopipe.measure import fingerprint
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.search.settings import Request
from tests.fakes.commands import in_shell, succeeded
from tests.fakes.profiles import HALVED, digest, profile
from tests.fakes.workload_script import TRAIN

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
    ("stands", "out"),
    [("home", "tuned"), ("elsewhere", "tuned"), ("home", "../models of mine"), ("home/tuned", ".")],
)
def test_each_printed_command_works_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stands: str, out: str
) -> None:
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
def test_the_line_after_a_tune_with_a_simulated_accelerator_needs_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(TRAIN.replace(", model=build_model", ""))
    request = Request(simulate=SimulatedAccelerator(step_seconds=0.01, batch_size=4))
    lines = _printed(tmp_path, tmp_path, Path("tuned"), monkeypatch, request=request)
    done = succeeded(in_shell(lines[0], tmp_path))
    assert done.stdout.strip() == "64"  # batches
