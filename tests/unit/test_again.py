"""What is printed as a next step works as printed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autopipe import again
from autopipe.errors import MissingExtraError


@pytest.mark.parametrize("activated", [False, True])
def test_an_activated_environment_has_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, activated: bool) -> None:
    for name in ("python", "autopipe"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path) if activated else "/nowhere")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    python, ours = ("python", "autopipe") if activated else (sys.executable, f"{sys.executable} -m autopipe")
    assert again.autopipe("check", Path("my models/a.json")) == f"{ours} check 'my models/a.json'"
    assert again.python("-c", "pass") == f"{python} -c pass"


def test_the_command_that_goes_on_is_the_same_but_for_a_new_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["autopipe", "tune", "my train.py:workload", "--fresh", "--trials", "9"])
    assert again.going_on() == again.autopipe("tune", "my train.py:workload", "--trials", "9")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///study.db", "sqlite:///study.db"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
        ("postgresql+psycopg://me@host/name", "postgresql+psycopg://me@host/name"),
        ("postgresql+psycopg://me:secret@host:5432/name?a=b", "postgresql+psycopg://me@host:5432/name?a=b"),
        ("postgresql://host/name?user=me&password=secret&a=b", "postgresql://host/name?user=me&password=&a=b"),
        ("--storage=mysql://:secret@host/name", "--storage=mysql://@host/name"),
        *[(f"postgresql://me:{word}@host/db", "postgresql://me@host/db") for word in ("a#b", "a/b", "a?b", "a@b", ":")],
    ],
)
def test_a_password_is_never_shown(url: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["autopipe", "tune", url])
    assert again.without_password(url) == shown
    assert again.this() == shlex.join(["autopipe", "tune", shown])


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str] | None], None]:
    """Say what was noted when autopipe was installed; None: it was not."""

    def say(lines: list[str] | None) -> None:
        def requires(name: str) -> list[str]:
            if lines is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return lines

        monkeypatch.setattr(importlib.metadata, "requires", requires)

    return say


@pytest.fixture
def activated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Activate an environment whose `pip` is found by its name."""
    (tmp_path / "pip").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))


NOTED = [
    "keras<3.16,>=3.12",
    "grain>=0.2.10; extra == 'grain'",
    "other>=1; extra == 'grain-of-salt'",
    "nvidia-dali-cuda120<3,>=2.0; (platform_system == 'Linux') and extra == \"dali\"",
    "of-every-install>=2; platform_system == 'Linux'",
    "of-no-python>=1; python_version < '3' and extra == 'dali'",
    "plain; extra == 'tfds'",
    "with-more[fast,small]>=1; python_version >= '3' and extra == 'tfds'",
]


@pytest.mark.usefixtures("activated")
@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ("grain", "pip install 'grain>=0.2.10'"),
        ("dali", "pip install 'nvidia-dali-cuda120<3,>=2.0'"),
        ("tfds", "pip install plain 'with-more[fast,small]>=1'"),
    ],
)
def test_an_extra_is_what_it_brings(extra: str, line: str, installed: Callable[[list[str] | None], None]) -> None:
    installed(NOTED)
    assert again.installing_extra(extra) == line
    assert MissingExtraError.of(extra, "x").hint == f"Run: {line}"


@pytest.mark.usefixtures("activated")
@pytest.mark.parametrize("noted", [None, NOTED])
def test_where_nothing_was_noted_of_an_extra_the_checkout_is_installed_with_it(
    noted: list[str] | None,
    installed: Callable[[list[str] | None], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed(noted)
    monkeypatch.setattr(again, "__file__", str(tmp_path / "my copy" / "autopipe" / "again.py"))
    assert again.installing_extra("hdf5") == "pip install 'autopipe-tuner[hdf5]'"
    (tmp_path / "my copy").mkdir()
    (tmp_path / "my copy" / "pyproject.toml").touch()
    assert again.installing_extra("hdf5") == f"pip install -e '{tmp_path}/my copy[hdf5]'"


def test_packages_go_to_this_python_whatever_pip_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert again.installing("s3fs") == f"{sys.executable} -m pip install s3fs"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # an environment that uv made
    assert again.installing("s3fs") == f"uv pip install --python {sys.executable} s3fs"


def test_nodes_are_told_a_release_or_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert again.on_nodes("ray", "1.2").endswith("in a checkout of the same version: pip install '.[ray]'")
    monkeypatch.setattr(again, "__file__", str(tmp_path / "autopipe" / "again.py"))
    assert again.on_nodes("ray", "1.2") == "Run on the nodes: pip install 'autopipe-tuner[ray]==1.2'"
