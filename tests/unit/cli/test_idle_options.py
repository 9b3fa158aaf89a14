"""Options that would be passed over in the company of others are refused, before anything is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Autopipe


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fleet", ".", "--older-than", "30d"), "`--older-than` has no effect without `--prune`"),
        (("fleet", ".", "--yes"), "`--yes` has no effect without `--prune`"),
        (("fleet", "sqlite:///a.db", "--prune", "--json"), "`--json` has no effect with `--prune`"),
        (("measure", "a.py:w", "--mode", "train", "--trace", "t.json"), "`--trace` has no effect with `--mode`"),
        (("verify", "a.py:w", "--workers", "2"), "`--workers` has no effect without `--files`"),
        (("verify", "a.py:w", "--files", "--samples", "9"), "`--samples` has no effect with `--files`"),
        (("report", "--json", "--out", "a.html"), "`--out` has no effect with `--json`"),
        (("eject", "--to", "keras", "--plain"), "`--plain` has no effect with `--to`"),
        (("convert", "--finish", "set", "--verify"), "`--verify` has no effect with `--finish`"),
        (("convert", "--finish", "set", "--out", "other"), "`--out` has no effect with `--finish`"),
        (("convert", "--finish", "set", "--cut", "1"), "`--cut` has no effect with `--finish`"),
        (("diagnose", "--steps", "9", "--seconds", "10", "a.py"), "`--seconds` has no effect with `--steps`"),
        (("diagnose", "--callbacks", "--keep-running", "a.py"), "`--callbacks` has no effect with `--keep-running`"),
        (("tune", "a.py:w", "--batch-size", "64"), "`--batch-size` goes with `--images`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_an_option_that_would_have_no_effect_is_refused_by_name(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = autopipe(*arguments)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {said}")
    assert list(tmp_path.iterdir()) == []
