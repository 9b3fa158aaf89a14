"""`autopipe report`: writes the result of a tune as one page."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli import options, screen


def report(
    context: typer.Context,
    artifacts: Annotated[
        list[Path] | None,
        typer.Argument(metavar="tuned/", help="The artefact, or the folder that a tune wrote to."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Set all profiles of these artefacts side by side.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; by default report.html beside the artefact.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, and write nothing.")] = False,
) -> None:
    """Write the result of a tune as an HTML page.

    Its figures lie beside the page as JSON.
    """
    from autopipe.api import reporting
    from autopipe.cli.output import use_beside
    from autopipe.errors import ConfigError
    from autopipe.reports import profile_report

    if as_json:
        options.refuse_idle(context, "out", why="with `--json`, which writes nothing")
    paths = artifacts or [Path("tuned") if Path("tuned").is_dir() else Path("autopipe.json")]
    if len(paths) > 1 and not compare:
        raise ConfigError(
            f"A report is of one artefact, but {len(paths)} were given.", hint="`--compare` sets them side by side."
        )
    file = reporting.located(paths[0])
    made = reporting.compare(paths) if compare else reporting.of_file(file, use=functools.partial(use_beside, file))
    if as_json:
        print(profile_report.json_text(made.document), end="")
        return
    beside = Path("comparison.html") if compare else file.with_name(reporting.NAME)
    written = made.save(beside if out is None else out / beside.name if out.is_dir() else out)
    screen.say(f"wrote     {written}")
