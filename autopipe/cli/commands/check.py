"""`autopipe check`: checks whether a tuned configuration still fits."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from autopipe import again
from autopipe.cli import options, screen


def check(
    stored: options.ArtifactOptions = options.ARTIFACT,
    quick: Annotated[bool, typer.Option("--quick", help="Compare fingerprints only, and measure nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check whether a tuned configuration still fits.

    Exits with 0 if it fits, 4 if it is stale (the machine, the software, the data or the model changed, or it is old),
    5 if it has drifted (it is measured again, and is slower than it was). `autopipe retune` renews it.
    """
    from autopipe.artifact import checking
    from autopipe.reports import tables
    from autopipe.search.events import Event, WaitingForMachine

    known = stored.read()

    def tell(event: Event) -> None:
        if isinstance(event, WaitingForMachine):
            screen.say(f"waiting   {event.holder} measures on this machine")

    with screen.working("comparing" if quick else "comparing, and measuring for some 30 s"):
        result = checking.check(known, quick=quick, on_search=tell)
    if as_json:
        print(json.dumps(tables.fitness_document(result), indent=2))
    else:
        screen.show(tables.fitness(result))
        if result.exit_code:
            screen.say(f"next      {again.autopipe('retune', *stored.arguments)}")
    raise typer.Exit(result.exit_code)
