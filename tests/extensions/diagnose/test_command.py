"""What `autopipe diagnose` refuses before it runs a script. Whole runs: test_diagnose.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Autopipe


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--steps", "9", "--seconds", "10"), "`--seconds` has no effect with `--steps`"),
        (("--callbacks", "--keep-running"), "`--callbacks` has no effect with `--keep-running`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_an_option_that_would_have_no_effect_is_refused_by_name(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = autopipe("diagnose", *options, "a.py")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {said}")


def test_what_would_never_end_is_wrong_use(autopipe: Autopipe) -> None:
    ended = autopipe("diagnose", "--seconds", "inf", "train.py")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].endswith("inf is no finite number.")


def test_debug_behind_the_script_is_the_scripts(autopipe: Autopipe, tmp_path: Path) -> None:
    for before, traced in (((), False), (("--debug",), True)):
        ended = autopipe("diagnose", *before, tmp_path / "absent.py", "--debug")
        assert ended.status == 2
        assert ended.err.startswith("Traceback") is traced
