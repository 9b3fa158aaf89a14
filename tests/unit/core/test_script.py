"""Relative paths start at the script that writes them: every source, wherever the script is run or imported from."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import cv2
import numpy as np
import pytest

from autopipe.core import script
from autopipe.errors import DataError, DataWarning

SOURCES = {
    "folder": 'ap.ImageFolder("photos/")',
    "pairs": 'ap.ImagePairs("photos/cat", "photos/dog")',
    "table": 'ap.Table("labels.csv", path="file", label="label", root="photos")',
    "arrays": 'ap.Arrays("x.npy")',
    "subclass": 'type("Mine", (ap.ImageFolder,), {})("photos")',
    "library": "__import__('helper').folder('photos')",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder [of a project], whose name is a pattern, too, with data beside a script."""
    folder = tmp_path / "home[1]"
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(2):
            cv2.imwrite(str(folder / "photos" / name / f"{number}.png"), np.zeros((4, 4, 3), np.uint8))
    (folder / "labels.csv").write_text("file,label\ncat/0.png,1\ndog/1.png,2\n")
    np.save(folder / "x.npy", np.zeros((3, 2)))
    return folder


def _imported(home: Path, text: str) -> types.ModuleType:
    (home / "train.py").write_text(f"import autopipe as ap\n{text}\n")
    spec = importlib.util.spec_from_file_location("train_of_a_test", home / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("source", list(SOURCES)[:-1])
def test_every_source_starts_at_the_script(home: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    data = _imported(home, f"data = {SOURCES[source]}").data
    assert all(Path(file).is_relative_to(home) and Path(file).exists() for file in data.files())
    data.read(1)


def test_a_pattern_starts_at_the_script_whatever_its_folder_is_called(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    found = _imported(
        home, "from autopipe.core.script import located_pattern\nfound = located_pattern('photos/*/0.png')"
    )
    assert found.found == f"{home.parent}/home[[]1]/photos/*/0.png"
    with pytest.raises(DataError, match="No file matches"):
        _imported(home, "data = ap.TFRecords('nothing-*')")


def test_a_library_between_the_script_and_the_source_does_not_count(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site"
    installed.mkdir()
    (installed / "helper.py").write_text("import autopipe as ap\ndef folder(path):\n    return ap.ImageFolder(path)\n")
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setattr(script, "_NOBODYS", (*script._NOBODYS, f"{installed}/"))
    monkeypatch.chdir("/")
    assert len(_imported(home, f"data = {SOURCES['library']}").data) == 4


def test_an_absolute_path_is_as_it_is(home: Path) -> None:
    assert script.located(home) == str(home)
    assert script.located_pattern(f"{home}/*") == f"{home}/*"


@pytest.mark.parametrize("how", ["-c", "-"])
def test_an_interpreter_starts_at_the_working_directory(home: Path, how: str) -> None:
    code = "import autopipe as ap; print(len(ap.ImageFolder('photos')))"
    arguments = [sys.executable, "-W", "error", *(["-c", code] if how == "-c" else ["-"])]
    done = subprocess.run(arguments, input=code, cwd=home, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr


def test_a_notebooks_cell_starts_at_the_working_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    cell: dict[str, object] = {"__name__": "__main__"}
    exec(compile("import autopipe as ap\ndata = ap.ImageFolder('photos')", "/tmp/ipykernel_1/1.py", "exec"), cell)
    assert len(cell["data"]) == 4  # type: ignore[arg-type]  # a source


def test_what_lies_only_in_the_working_directory_is_taken_with_a_warning(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before there was this rule; but `tuned_pipeline`, run from elsewhere, would not find it."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    monkeypatch.chdir(home)
    with pytest.warns(DataWarning, match=r"`photos` is not beside `.*scripts/train\.py`") as caught:
        data = _imported(scripts, 'data = ap.ImageFolder("photos")').data
    assert len(data) == 4
    assert Path(caught[0].filename).name == "train.py"


def test_what_is_nowhere_is_looked_for_beside_the_script(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    with pytest.raises(DataError, match="does not exist") as error:
        _imported(home, 'data = ap.ImageFolder("phots")')
    assert f"`{home}/phots`" in error.value.message
    assert error.value.hint == script.RULE


def test_a_script_run_from_elsewhere_and_its_spawned_workers_agree(home: Path) -> None:
    (home / "train.py").write_text(
        textwrap.dedent("""
            import multiprocessing
            import autopipe as ap

            data = ap.ImageFolder("photos")

            def count(_):
                return len(data)

            if __name__ == "__main__":
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(pool.map(count, [0]), len(data))
        """)
    )
    command = [sys.executable, "-W", "error", "home[1]/train.py"]
    done = subprocess.run(command, cwd=home.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[4] 4\n"), done.stderr
