"""`autopipe replay`: how good is a sampler on a recorded table?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def replay(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A recorded table: NAME.jsonl or NAME.jsonl.gz.")],
    sampler: Annotated[
        list[str] | None, typer.Option(help="A sampler, more than once for several: surrogate, random, tpe+seeds, ...")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Searches a sampler.")] = 20,
    trials: Annotated[int, typer.Option(min=1, help="Trials a search.")] = 25,
    space: Annotated[str | None, typer.Option(help="The table's search space, if not the one that it names.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the regret after every trial as JSON.")] = False,
) -> None:
    """Search a recorded table, again and again.

    Shows how far below the table's best a search is after so many trials: the median, and the 90th percentile in
    brackets.
    """
    from rich.console import Console

    from autopipe.api import replaying
    from autopipe.cli.bar import bar
    from autopipe.report import regret

    recorded = replaying.read(table)
    with bar(Console(stderr=True), "replaying", unit="searches") as on_search:
        compared = replaying.compare(
            recorded, sampler or ["surrogate", "random"], seeds=seeds, trials=trials, space=space, on_search=on_search
        )
    if as_json:
        print(json.dumps(regret.document(compared), indent=2))
    else:
        Console().print(regret.render(compared), soft_wrap=True)
