"""`autopipe doctor`: what was found on this machine."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False) -> None:
    """Show what this machine has: cores by affinity and cgroup, memory, GPUs and versions."""
    import dataclasses
    import json

    from autopipe.hardware import machine, opencv
    from autopipe.reports import doctor as report
    from autopipe.reports.terminal import Console

    found = machine.detect()
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=2))
    else:
        Console().print(report.render(found, opencv.installed()), soft_wrap=True)
