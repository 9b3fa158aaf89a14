"""`autopipe scale`: does another device pay?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from autopipe.cli import screen, workload_options


def scale(
    workload: workload_options.WorkloadOptions = workload_options.USUAL,
    devices: Annotated[str, typer.Option(metavar="1,2,4,8", help="The numbers of devices to tell of.")] = "1,2,4,8",
    interconnect: Annotated[
        str | None,
        typer.Option(
            metavar="12GB/s",
            help="What lies between devices: 12GB/s, 25Gbit/s, or one of pcie3, pcie4, nvlink-a100, nvlink-h100, "
            "10gbe, 25gbe, 100gbe. By default as measured here.",
        ),
    ] = None,
    simulate_step: workload_options.SimulateStep = None,
    virtual_devices: workload_options.VirtualDevices = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
) -> None:
    """Tell what more devices would bring.

    It is measured for as many as are here, and predicted for more.
    """
    from autopipe.api import scale_runs
    from autopipe.cli import option_values
    from autopipe.reports import scaling_table
    from autopipe.search.settings import Settings

    chosen = workload.chosen()
    counts = option_values.counts(devices, "--devices")
    link = None if interconnect is None else option_values.interconnect(interconnect, "--interconnect")
    settings = Settings(simulate=workload_options.simulated(simulate_step), virtual_devices=virtual_devices)
    with screen.working("training the model on batches that are there already"):
        found = scale_runs.scale(chosen.workload, counts, interconnect=link, settings=settings)
    if as_json:
        print(json.dumps(scaling_table.document(found), indent=2))
    else:
        screen.show(scaling_table.render(found))
