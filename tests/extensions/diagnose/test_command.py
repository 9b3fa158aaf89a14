"""What `autopipe diagnose` refuses, and how it ends a script. Whole runs: test_diagnose.py."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from autopipe.cli.options import Exit
from autopipe.errors import AutopipeError, NothingMeasuredError
from autopipe.extensions.diagnose.script import diagnose
from tests.unit.cli.conftest import Autopipe


def test_an_option_that_cannot_be_is_refused_by_name(autopipe: Autopipe) -> None:
    assert autopipe("diagnose", "--time", "soon", "a.py").refused().startswith("error: `time` must be a duration")
    assert "`time` must be at least 0.1 s, but got '1ms'" in autopipe("diagnose", "--time", "1ms", "a.py").refused()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "`nowhere.py` is not there"),
        ({"script": "nowhere.ipynb"}, "is a notebook.*Diagnose.*in ap.watch"),
        ({"script": 3}, "`script` must be the path of a training script, but got 3"),
        ({"time": 0}, "`time` must be longer than 0 s"),
        ({"steps": 0}, "`steps` must be a whole number of 1 or more, but got 0"),
    ],
)
def test_what_python_asks_for_and_cannot_have_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(AutopipeError, match=said):
        diagnose(**{"script": "nowhere.py", **options})


@pytest.mark.parametrize("named", [["-m", "package.train"], ["package.train"], ["-m", "package"], ["package/train.py"]])
def test_a_module_or_a_script_of_a_package_runs_as_after_python(
    named: list[str], autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package").mkdir()  # without __init__.py, as a namespace
    (tmp_path / "package/data.py").touch()
    for name in ("train", "__main__"):
        code = "import sys; from . import data; open('ran', 'w').write(' '.join([__spec__.name, *sys.argv[1:]]))"
        (tmp_path / f"package/{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert autopipe("diagnose", *named, "--epochs", "3").status == Exit.NOTHING_MEASURED  # it trains nothing
    assert Path("ran").read_text() == f"package.{'train' if 'train' in named[-1] else '__main__'} --epochs 3"


def test_a_signal_that_comes_while_the_script_is_being_started_ends_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess.Popen

    def started(*arguments: Any, **named: Any) -> Any:
        process = start(*arguments, **named)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(5)\n")
    monkeypatch.setattr(subprocess, "Popen", started)
    outside = list[int]()  # what SIGTERM does outside a diagnosis
    before = signal.signal(signal.SIGTERM, lambda number, frame: outside.append(number))
    try:
        with pytest.raises(NothingMeasuredError, match="was ended by signal 15 before enough of a training was seen"):
            diagnose(script)
        assert outside == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert outside == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
