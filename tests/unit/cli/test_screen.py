from __future__ import annotations

import pytest
from rich.text import Text

from autopipe.cli import screen


def test_what_is_said_is_no_markup_and_leaves_stdout_to_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"photos[red]/{'a' * 200}/autopipe.json"
    screen.say(f"wrote     {name}")
    screen.show(Text("the result"))
    assert capsys.readouterr() == ("the result\n", f"wrote     {name}\n")
