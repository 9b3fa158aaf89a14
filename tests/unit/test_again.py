"""What is printed as a next step works as printed."""

import importlib.metadata
import importlib.util
import shlex
import sys
from pathlib import Path

import pytest

from autopipe import again
from autopipe.errors import MissingExtraError


@pytest.fixture
def activated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Activate an environment whose programs are found by their names."""
    for name in ("python", "autopipe", "pip"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))


@pytest.mark.usefixtures("activated")
def test_an_activated_environment_has_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> tuple[str, str]:
        return again.autopipe("check", Path("my models/a.json")), again.python("-c", "pass")

    assert shown() == ("autopipe check 'my models/a.json'", "python -c pass")
    monkeypatch.setenv("PATH", "/nowhere")
    assert shown() == (f"{sys.executable} -m autopipe check 'my models/a.json'", f"{sys.executable} -c pass")
    assert again.installing("s3fs") == f"{sys.executable} -m pip install s3fs"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # an environment that uv made
    assert again.installing("s3fs") == f"uv pip install --python {sys.executable} s3fs"
    # The command that goes on is the same but for a new study.
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
def test_an_extra_is_what_it_brings_or_the_checkout_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    brought = {"grain": "'grain>=0.2.10'", "dali": "'nvidia-dali-cuda120<3,>=2.0'"}
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: NOTED)
    for extra, packages in {**brought, "tfds": "plain 'with-more[fast,small]>=1'"}.items():
        assert again.installing_extra(extra) == f"pip install {packages}"
        assert MissingExtraError.of(extra, "x").hint == f"Run: pip install {packages}"
    assert again.on_nodes("ray", "1.2").endswith("in a checkout of the same version: pip install '.[ray]'")
    copy = tmp_path / "my copy"
    monkeypatch.setattr(again, "__file__", str(copy / "autopipe" / "again.py"))
    assert again.on_nodes("ray", "1.2") == "Run on the nodes: pip install 'autopipe-tuner[ray]==1.2'"
    of_release = again.installing_extra("hdf5")
    copy.mkdir()
    (copy / "pyproject.toml").touch()
    for requires in (lambda name: NOTED, nothing):
        monkeypatch.setattr(importlib.metadata, "requires", requires)
        assert again.installing_extra("hdf5") == f"pip install -e '{copy}[hdf5]'"
    assert of_release == "pip install 'autopipe-tuner[hdf5]'"
