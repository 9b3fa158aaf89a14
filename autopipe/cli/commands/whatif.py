"""`autopipe whatif`: what another machine would do, by what was measured on this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli import artifact_options, screen


def whatif(
    artifact: artifact_options.Artifact = Path("autopipe.json"),
    cores: Annotated[float | None, typer.Option(min=0.1, max=1_000_000, help="Usable cores.")] = None,
    step: Annotated[str | None, typer.Option(metavar="5ms", help="What a step takes on one accelerator.")] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="Devices that share a batch.")] = None,
    read_latency: Annotated[
        str | None, typer.Option(metavar="20ms", help="What one read takes with no other beside it.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Samples a batch.")] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="64G", help="Usable memory, which may hold all samples.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Predict the rate on another machine.

    The best configuration there is told, too, and what more cores, memory, devices or faster storage would bring.
    """
    from autopipe.api import predicting
    from autopipe.cli import option_values
    from autopipe.core.whatif import Machine, what_if
    from autopipe.errors import ConfigError
    from autopipe.reports import whatif_lines

    machine = Machine(
        cores=cores,
        step_seconds=None if step is None else option_values.seconds(step, "--step"),
        devices=devices,
        read_latency_seconds=None if read_latency is None else option_values.seconds(read_latency, "--read-latency"),
        batch_size=batch,
        memory_bytes=None if memory is None else option_values.size(memory, "--memory"),
    )
    if machine.step_seconds == 0:
        raise ConfigError(f"`--step` must be longer than 0 s, but got {step!r}.")
    measured = predicting.measured(artifact)
    found = what_if(measured, machine)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        screen.show(whatif_lines.render(found, measured.pairs[0][1]))
