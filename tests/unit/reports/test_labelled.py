"""What is shown behind labels, on a narrow terminal."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

from autopipe.reports import labelled

PATH = "/home/somebody/projects/segmentation-of-streets/train_with_a_long_name.py:workload"


def narrow(shown: RenderableType) -> str:
    """Return what a terminal of 40 columns shows, without its line breaks."""
    written = io.StringIO()
    Console(file=written, width=40).print(shown)
    return "".join(written.getvalue().split())


def test_of_a_path_that_is_longer_than_a_line_nothing_is_left_out() -> None:
    assert f"note{PATH}" in narrow(labelled.table([("note", PATH)]))
