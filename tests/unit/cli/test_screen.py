from __future__ import annotations

import pytest
from rich.text import Text

from autopipe.cli import screen


def test_what_is_said_is_no_markup_and_leaves_stdout_to_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"photos[red]/{'a' * 200}/autopipe.json"
    screen.say(f"wrote     {name}")
    screen.show(Text("the result"))
    assert capsys.readouterr() == ("the result\n", f"wrote     {name}\n")


def test_a_bar_tells_on_a_terminal_how_much_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with screen.bar("looking", unit="samples") as told:
        told(10, 40)
        told(40, 40)
    out, error = capsys.readouterr()
    assert out == ""
    assert "looking" in error
    assert "40/40" in error


def test_a_bar_writes_nothing_into_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with screen.bar("looking", unit="samples") as told:
        told(40, 40)
    assert capsys.readouterr() == ("", "")
