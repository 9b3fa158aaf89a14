"""What tune and measure refuse before they start anything. Whole ones: tests/integration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Autopipe


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--space", "defualt"), "Did you mean `default`?"),
        (("--only", "loadr=threads"), "There is no setting `loadr`. Did you mean `loader`?"),
        (("--space", "quick", "--only", "loader=wrapped"), "`loader` may be threads, processes, tfdata"),
        (("--space", "quick", "--only", "loader.workers=99"), "`loader.workers` cannot be 99 in this space."),
        (("--bugdet", "2m"), "No such option: --bugdet. Did you mean `--budget`?"),
        (("--trials", "0"), "--trials"),
        (("--seed", "4294967296"), "but got 4294967296."),
        (("--baseline", "keras"), "but got 'keras'."),
        (("--page-cache", "lukewarm"), "--page-cache"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_impossible_options_start_nothing(autopipe: Autopipe, home: Path, options: tuple[str, ...], said: str) -> None:
    assert said in autopipe("tune", "train.py:workload", *options).refused()
    assert list(home.iterdir()) == []  # no folder that nothing was written to


def test_a_misspelt_backend_starts_nothing(autopipe: Autopipe, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jx")
    error = autopipe("tune", "train.py:workload").refused()
    assert "KERAS_BACKEND must be one of jax, numpy, openvino, tensorflow, torch, but got 'jx'" in error
    assert list(home.iterdir()) == []


def test_a_folder_that_cannot_be_made_or_written_to_is_refused(
    autopipe: Autopipe, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").touch()
    (home / "out").mkdir()
    error = autopipe("tune", "train.py:workload", "--out", "file").refused()
    assert error.startswith("error: `--out` must be a folder that can be made, but got 'file'")
    monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)  # as root one may write anywhere
    error = autopipe("tune", "train.py:workload", "--out", "out").refused()
    assert error == "error: `--out` must be writable, but 'out' is not.\n\nhint: Choose another with --out DIR.\n"


def test_a_trace_that_cannot_be_written_is_refused_before_any_import(autopipe: Autopipe, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from pathlib import Path\n\nPath(__file__).with_name('imported').touch()\n")
    error = autopipe("measure", f"{script}:workload", "--trace", tmp_path / "nowhere" / "trace.json").refused()
    assert error.startswith("error: `--trace` must name a file that can be written to")
    assert not (tmp_path / "imported").exists()
