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
    other_machines: Annotated[
        int | None,
        typer.Option(
            min=1, help="Let the table play so many other machines, and compare tunes from nothing with retunes there."
        ),
    ] = None,
    space: Annotated[str | None, typer.Option(help="The table's search space, if not the one that it names.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="KEY=A,B", help="Search these values of a parameter only.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the regret after every trial as JSON.")] = False,
) -> None:
    """Search a recorded table, again and again.

    Shows how far below the table's best a search is after so many trials: the median, and the 90th percentile in
    brackets.
    """
    from rich.console import Console

    from autopipe.api import replaying
    from autopipe.cli import settings
    from autopipe.cli.bar import bar
    from autopipe.report import regret

    recorded = replaying.read(table)
    searched = replaying.space_of(recorded, space, settings.allowed(only or []))
    if other_machines is not None:
        with bar(Console(stderr=True), "replaying", unit="machines") as on_machine:
            both = replaying.retune(recorded, searched, machines=other_machines, trials=trials, on_search=on_machine)
        if as_json:
            print(json.dumps(regret.document(both), indent=2))
        else:
            Console().print(regret.render(both), regret.verdict(*both), soft_wrap=True)
        return
    with bar(Console(stderr=True), "replaying", unit="searches") as on_search:
        compared = replaying.compare(
            recorded, searched, sampler or ["surrogate", "random"], seeds=seeds, trials=trials, on_search=on_search
        )
    if as_json:
        print(json.dumps(regret.document(compared), indent=2))
    else:
        Console().print(regret.render(compared), soft_wrap=True)
