"""`autopipe scale`: the command, its tables and its JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autopipe.cli import options, screen
from autopipe.errors import ConfigError, near

if TYPE_CHECKING:  # imported before `--help` answers
    from rich.console import RenderableType
    from rich.table import Table

    from autopipe.extensions.scale.model import Interconnect, Row, Scaling

GROUP = "Look closer"
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(B|bits?)/s", re.IGNORECASE)
_DECIMAL = {"": 1e0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def scale(
    workload: options.WorkloadOptions = options.WORKLOAD,
    devices: Annotated[str, typer.Option(metavar="1,2,4,8", help="The numbers of devices to tell of.")] = "1,2,4,8",
    interconnect: Annotated[
        str | None,
        typer.Option(
            metavar="12GB/s",
            help="What lies between devices: 12GB/s, 25Gbit/s, or one of pcie3, pcie4, nvlink-a100, nvlink-h100, "
            "10gbe, 25gbe, 100gbe. By default as measured here.",
        ),
    ] = None,
    simulate_step: options.SimulateStep = None,
    virtual_devices: options.VirtualDevices = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
) -> None:
    """Tell what more devices would bring.

    It is measured for as many as are here, and predicted for more.
    """
    from autopipe.extensions.scale import model
    from autopipe.search.settings import Settings

    chosen = workload.chosen()
    numbers = counts(devices, "--devices")
    link = None if interconnect is None else rate_of(interconnect, "--interconnect")
    settings = Settings(simulate=options.simulated(simulate_step), virtual_devices=virtual_devices)
    with screen.working("training the model on batches that are there already"):
        found = model.scale(chosen.workload, numbers, interconnect=link, settings=settings)
    if as_json:
        print(json.dumps(document(found), indent=2))
    else:
        screen.show(render(found))


def counts(text: str, option: str) -> list[int]:
    """Return the numbers that a list such as `1,2,4` holds, each at least 1."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(f"`{option}` must be whole numbers from 1 on, such as 1,2,4, but got {text!r}.")
    return [int(part) for part in parts]


def rate_of(text: str, option: str) -> Interconnect:
    """Return the connection between devices: a preset by name, or a rate such as `12GB/s` or `25Gbit/s`."""
    from autopipe.extensions.scale.model import INTERCONNECTS, Interconnect

    if text in INTERCONNECTS:
        return INTERCONNECTS[text]
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise ConfigError(
            f"`{option}` must be a rate such as 12GB/s or 25Gbit/s, or one of {', '.join(INTERCONNECTS)}; "
            f"but got {text!r}.{near(text, INTERCONNECTS)}"
        )
    bits = 8 if match[3].lower().startswith("bit") else 1
    return Interconnect(bytes_per_second=float(match[1]) * _DECIMAL[match[2].upper()] / bits, source=f"{option} {text}")


def render(found: Scaling) -> RenderableType:
    """Return two tables and a verdict."""
    from rich.console import Group
    from rich.text import Text

    from autopipe.hardware.machine import size_text
    from autopipe.reports import terminal, wording

    known = found.measured
    strong = _table(f"Strong scaling: all share a batch of {known.batch_size}", found.strong, virtual=found.virtual)
    weak = _table(f"Weak scaling: each gets a batch of {known.batch_size}", found.weak, virtual=found.virtual)
    fed = known.fed_images_per_second
    loader = f"{wording.rate(fed)} images/s from {wording.count(known.cores, 'core')}"
    link = f"{known.interconnect.bytes_per_second / 1e9:,.3g} GB/s ({known.interconnect.source})"
    lines = [
        ("Weights", f"{size_text(known.gradient_bytes)} of gradients a step, over {link}"),
        ("Input", f"{loader}, {known.cache}" if math.isfinite(fed) else "unknown"),
        ("Verdict", found.verdict),
    ]
    lines += [("Note", f"{note[:1].upper()}{note[1:]}.") for note in found.notes]
    if found.virtual:
        said = "Virtual devices are parts of this machine's CPU: they rehearse, and say nothing of GPUs."
        lines.append(("Note", said))
    return Group(strong, Text(), weak, Text(), terminal.labelled(lines))


def _table(title: str, rows: Sequence[Row], *, virtual: bool) -> Table:
    from autopipe.reports import terminal, wording

    columns = ("devices", "step", "exchange", "images/s", "speedup", "efficiency", "limited by", "")
    table = terminal.figures(*columns, words=(columns[0], *columns[-2:]))
    table.title, table.title_justify = title, "left"
    for row in rows:
        table.add_row(
            f"{row.devices}{' virtual' if virtual and row.devices > 1 else ''}",
            wording.milliseconds(row.step_seconds),
            wording.milliseconds(row.exchange_seconds),
            wording.rate(row.images_per_second),
            f"{row.speedup:.2f}x",
            f"{row.efficiency:.0%}",
            row.limit.value if row.devices > 1 or row.limit.value == "input" else "",
            "measured" if row.measured else "predicted",
        )
    return table


def document(found: Scaling) -> dict[str, Any]:
    """Return the document that `autopipe scale --json` prints.

    Keys: `strong` and `weak` (a row for each number of devices: seconds of a step and of the exchange that shows in it,
    images/s, efficiency, speedup, limit, the cores that feeding takes, whether it was measured), `batch_size`,
    `step_seconds` (of one device, by its samples), `gradient_bytes`, `interconnect`, `fed_images_per_second` (None
    where it is not known), `virtual`, `verdict`, `notes`.
    """
    known, fed = found.measured, found.measured.fed_images_per_second
    return {
        "strong": [dataclasses.asdict(row) for row in found.strong],
        "weak": [dataclasses.asdict(row) for row in found.weak],
        "batch_size": known.batch_size,
        "step_seconds": {str(samples): seconds for samples, seconds in sorted(known.step_seconds.items())},
        "gradient_bytes": known.gradient_bytes,
        "interconnect": dataclasses.asdict(known.interconnect),
        "fed_images_per_second": fed if math.isfinite(fed) else None,
        "virtual": found.virtual,
        "verdict": found.verdict,
        "notes": list(found.notes),
    }
