from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autopipe.cli import again


def test_without_an_activated_environment_the_interpreter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert again.autopipe("check", Path("my models/a.json")) == f"{sys.executable} -m autopipe check 'my models/a.json'"
    assert again.python("-c", "pass") == f"{sys.executable} -c pass"


def test_in_an_activated_environment_the_commands_have_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("python", "autopipe"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert again.autopipe("check", "a.json") == "autopipe check a.json"
    assert again.python("-c", "pass") == "python -c pass"
