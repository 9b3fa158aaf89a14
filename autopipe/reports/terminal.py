"""Where text for people is printed: on a terminal, or to whatever stdout and stderr are. It is not made here."""

from __future__ import annotations

import rich.console


class Console(rich.console.Console):
    """Rich's console, which prints text as it is: brackets and colons of paths and messages are no markup and no emoji.

    Colours and weights are given as `rich.text.Text` and as styles of columns.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)
