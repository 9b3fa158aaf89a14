"""`autopipe doctor`: shows this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from autopipe.cli import screen


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False) -> None:
    """Show what this machine has: cores, memory, GPUs, versions.

    Cores and memory are those that this process may use, by affinity and cgroup.
    """
    import dataclasses
    import json

    from autopipe.hardware import machine, opencv
    from autopipe.reports import tables

    found = machine.detect()
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=2))
    else:
        screen.show(tables.machine(found, opencv.installed()))
