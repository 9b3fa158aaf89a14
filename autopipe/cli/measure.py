"""`autopipe measure` measures trainings as they are configured; `autopipe doctor` shows this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from autopipe.cli import options, screen
from autopipe.cli.options import Exit
from autopipe.workload.mode import Mode

Time = Annotated[str, Option(metavar="5s", help="Measure at most this long.")]


def measure(
    workloads: options.Workloads = None,
    images: options.ImagesOptions = options.IMAGES,
    setting: Annotated[
        list[str] | None,
        Option(
            "--set", metavar="KEY=VALUE", help="Change a setting: loader.workers=4, keep=memory, wrapped.prefetch=2."
        ),
    ] = None,
    batch_sizes: Annotated[
        str | None, Option(metavar="16,32,64", help="Measure the model alone at these batch sizes, a row each.")
    ] = None,
    mode: Annotated[Mode | None, Option(help="What the model does; by default trains, or as tuned.")] = None,
    time: Time = "5s",
    formats: Annotated[
        bool, Option("--formats", help="Also encode some images anew in memory, and time decoding each format.")
    ] = False,
    simulate_step: options.SimulateStep = None,
    virtual_devices: options.VirtualDevices = 0,
    page_cache: options.PageCache = "auto",
    trace: options.Trace = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure model, loader and both together, and what limits them.

    Several workloads or artifacts are rows of a table. An artifact is fed by its own configuration, and any other
    workload by threads, one for each core. A dataset of ap.wrap is read without its model, too, and its slow lines are
    named.
    """
    from autopipe.api import measuring

    targets = images.targets(workloads)
    with screen.aside(), screen.working("measuring"):
        answer = measuring.measure(
            *targets,
            settings=setting or (),
            batch_sizes=() if batch_sizes is None else batch_sizes,
            mode=None if mode is None else mode.value,
            simulate_step=simulate_step,
            virtual_devices=virtual_devices,
            page_cache=page_cache,
            time=time,
            formats=formats,
            trace=trace,
        )
    screen.answer(answer, as_json=as_json)
    if all((row.model if batch_sizes else row.together) is None for row in answer.figures):
        raise typer.Exit(Exit.NOTHING_MEASURED)


def compare(workloads: options.Workloads = None, time: Time = "5s", as_json: options.AsJson = False) -> None:
    """Show several workloads side by side: `autopipe measure A B`."""
    measure(workloads, time=time, as_json=as_json)


def doctor(
    data: Annotated[
        str | None, Option(metavar="DIR", help="Also look at the images of a folder: how many are progressive JPEG.")
    ] = None,
    script: Annotated[
        Path | None, Option(metavar="FILE", help="Import a script first, and name what of it takes cores away.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what this machine has: cores, memory, GPUs, versions.

    It counts the cores and the memory that this process may use, by affinity and cgroup, and says what limits them.
    """
    import dataclasses
    import json
    import warnings

    from autopipe import again, native
    from autopipe.errors import DataWarning
    from autopipe.hardware import machine
    from autopipe.measure.trial import workload_import
    from autopipe.reports import tables, wording
    from autopipe.workload.ops.headers import Progressive

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if script is not None:
            workload_import.import_file(script)
    notes = [str(each.message) for each in told if issubclass(each.category, DataWarning)]
    found = machine.detect()
    images = None if data is None else Progressive.in_folder(data)
    if as_json:
        more = {"tested": again.tested(), "library": native.facts()}
        more |= {} if images is None else {"data": images.model_dump()}
        more |= {} if script is None else {"notes": notes}
        print(json.dumps({**dataclasses.asdict(found), **more}, indent=2))
        return
    screen.show(tables.machine(found, again.tested(), library=native.facts(), images=images, notes=notes))
    if data is not None and images is not None and (line := wording.rewriting(images, data)) is not None:
        print(f"next              {line}")
