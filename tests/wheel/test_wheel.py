"""What `make wheel` made, where there is neither the checkout nor a compiler; and builds that cannot be.

The wheel and what it requires, wheels too, are installed into an empty environment of each Python that is found.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes import damage

ROOT = Path(__file__).parents[2]
BATCHES = """
import hashlib, sys
from pathlib import Path
import autopipe as ap
from autopipe import native

found = hashlib.sha256()
ops = [ap.Decode(), ap.RandomResizedCrop(32, 32), ap.RandomFlip(), ap.RandomContrast(), ap.Rescale(1 / 255)]
workload = ap.Workload(data=ap.ImageFolder(sys.argv[1]), ops=ops, batch_size=4, seed=3)
with ap.make_loader(workload, ap.PipelineConfig(loader=ap.Threads(2))) as loader:
    for batch in loader.epoch(0):
        for part in batch:
            found.update(part.tobytes())
print(Path(ap.__file__).parent, native.facts(), found.hexdigest(), sep="|")
"""


def _run(python: Path | str, arguments: Sequence[str], folder: Path) -> str:
    """Run Python in a folder, with nothing on PATH but what lies beside it."""
    environment = {"PATH": str(Path(python).parent), "HOME": str(folder), "COLUMNS": "200"}
    done = subprocess.run([str(python), *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel() -> Path:
    (found,) = (ROOT / "dist").glob("*.whl")
    return found


def _pythons() -> list[str]:
    """Return the Python of these tests, and one each of the other versions that are on PATH or were made by pyenv."""
    found = {sys.version_info[1]: sys.executable}
    for minor in (11, 12, 13):
        made = sorted((Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python"))
        for each in filter(None, (shutil.which(f"python3.{minor}"), *map(str, made))):
            done = subprocess.run(
                [each, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True
            )
            if done.stdout.strip() == str(minor):  # a shim of pyenv's may lead nowhere
                found.setdefault(minor, each)
    return [found[minor] for minor in sorted(found)]


@pytest.fixture(scope="module", params=_pythons())
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Return the Python of an environment with the wheel, without compilers."""
    folder = tmp_path_factory.mktemp("empty")
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--python", request.param, str(folder / "there")], check=True)
    (folder / "left-out.txt").write_text("opencv-python; sys_platform == 'never'\n")  # it needs libGL
    python = folder / "there" / "bin" / "python"
    install = [*uv, "pip", "install", "--only-binary", ":all:", "--override", str(folder / "left-out.txt")]
    subprocess.run([*install, "--python", str(python), str(wheel), "opencv-python-headless"], check=True)
    return python


def test_a_wheel_is_for_every_python_and_has_all_that_it_needs_inside(wheel: Path) -> None:
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    assert "-manylinux_2_28_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if ".so" in name] == ["autopipe/_native.so"]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"autopipe", "autopipe_tuner"}


def test_it_makes_the_batches_of_the_checkout_where_there_is_no_compiler(installed: Path, tmp_path: Path) -> None:
    assert shutil.which("cc", path=str(installed.parent)) is None
    photos = damage.in_classes(tmp_path / "photos", 12, (48, 61), suffix=".jpg")
    there, *theirs = _run(installed, ["-c", BATCHES, str(photos)], tmp_path).split("|")
    here, *ours = _run(sys.executable, ["-c", BATCHES, str(photos)], tmp_path).split("|")
    assert Path(there).is_relative_to(installed.parents[1])
    assert Path(here) == ROOT / "autopipe"
    assert theirs == ours
    assert theirs[0].startswith("_native.so ")
    told = _run(installed, ["-m", "autopipe", "doctor"], tmp_path).splitlines()
    assert ["_native.so " in each and "libjpeg-turbo" in each for each in told if "native" in each] == [True]


CONTRACT = """
import autopipe as ap
from autopipe import testing
testing.check_loader(ap.Threads(workers=1))
"""


@pytest.mark.timeout(300)
def test_it_tunes_and_tests_plugins_there(installed: Path, tmp_path: Path) -> None:
    photos = damage.in_classes(tmp_path / "photos", 48, (48, 61), suffix=".jpg")
    _run(installed, ["-c", CONTRACT], tmp_path)
    small = ["--image-size", "32", "--batch-size", "8", "--budget", "30s"]
    _run(installed, ["-m", "autopipe", "tune", "--images", str(photos), *small, "--out", "tuned"], tmp_path)
    assert (tmp_path / "tuned" / "tuned_pipeline.py").is_file()


FOUND_NOWHERE = f"""
set(CMAKE_MAKE_PROGRAM {sysconfig.get_path("scripts")}/ninja CACHE FILEPATH "")
set(CMAKE_FIND_ROOT_PATH /nowhere)
set(CMAKE_FIND_ROOT_PATH_MODE_KIND ONLY)
"""


@pytest.mark.parametrize(
    ("kind", "environment", "words"),
    [
        ("PROGRAM", {}, ["There is no C compiler", "apt-get install gcc "]),
        ("INCLUDE", {}, ["Headers or libraries", "libjpeg-dev libdeflate-dev"]),
        ("LIBRARY", {}, ["Headers or libraries", "libjpeg-dev libdeflate-dev"]),
        (None, {"CFLAGS": "-fnonsense"}, ["-fnonsense", "CFLAGS is '-fnonsense'"]),
        (None, {"CFLAGS": "-DAUTOPIPE_API=nonsense"}, ["nonsense", "CFLAGS is '-DAUTOPIPE_API=nonsense'"]),
    ],
)
def test_a_build_that_cannot_be_says_what_is_missing_or_wrong(
    kind: str | None, environment: dict[str, str], words: list[str], tmp_path: Path
) -> None:
    for name in ("native", "autopipe", "search_spaces"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    if kind is not None:
        (tmp_path / "toolchain").write_text(FOUND_NOWHERE.replace("KIND", kind))
        environment = {"CMAKE_TOOLCHAIN_FILE": str(tmp_path / "toolchain")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", str(tmp_path)]
    done = subprocess.run(
        pip, cwd=tmp_path, env={"PATH": path, "HOME": str(tmp_path), **environment}, capture_output=True, text=True
    )
    assert done.returncode == 1
    told = done.stdout + done.stderr
    assert all(word in told for word in ["native library was not built", *words]), told
    assert "Traceback" not in told
