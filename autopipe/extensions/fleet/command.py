"""`autopipe fleet`: what is tuned on which machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli import options, screen
from autopipe.errors import ConfigError

GROUP = "Data and files"


def fleet(
    context: typer.Context,
    place: Annotated[str, typer.Argument(metavar="DIR|STORAGE", help="A folder with artefacts, or a storage URL.")],
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete old studies of a storage; without --yes, only list them.")
    ] = False,
    older_than: Annotated[
        str, typer.Option(help="With --prune: the age from which on studies are deleted, in days.")
    ] = "180d",
    yes: Annotated[bool, typer.Option("--yes", help="With --prune: delete, do not only list.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show what is tuned on which machines.

    For each workload on each machine: the winner, its gain and age, whether it fits here, and the rate of similar
    machines.
    """
    import datetime

    from autopipe.extensions.fleet import members
    from autopipe.reports.terminal import Console

    now = datetime.datetime.now(datetime.UTC)
    if prune:
        options.refuse_idle(context, "as_json", why="with `--prune`, which shows what it deletes")
        _prune(place, older_than, really=yes)
        return
    options.refuse_idle(context, "older_than", "yes", why="without `--prune`: it says what is deleted")
    found = members.of_storage(place, now) if "://" in place else members.of_folder(Path(place), now)
    if as_json:
        print(json.dumps(members.document(found, now), indent=2))
    else:
        console = Console()
        console.print(members.render(found, now, width=console.width))


def _prune(place: str, older_than: str, *, really: bool) -> None:
    import datetime

    from autopipe.extensions.fleet import members
    from autopipe.reports import wording
    from autopipe.search import record

    number, unit = older_than[:-1], older_than[-1:]
    if unit != "d" or not number.isdecimal():
        raise ConfigError(f"`--older-than` must be a number of days such as 180d, but got {older_than!r}.")
    if "://" not in place:
        raise ConfigError(
            f"`--prune` deletes studies of a storage, but `{place}` is not the URL of one.",
            hint="For example: sqlite:///study.db",
        )
    found = members.old(place, int(number), datetime.datetime.now(datetime.UTC))
    if not found:
        screen.say("no study is so old")
        return
    for each in found:
        last = "never" if each.last_at is None else f"{each.last_at:%Y-%m-%d}"
        done = "deleted" if really else "would delete"
        screen.say(f"{done}  {each.name} ({wording.count(each.trials, 'trial')}, the last {last})")
    if really:
        record.remove(place, [each.name for each in found])
    else:
        screen.say("next      the same command with --yes deletes them")
