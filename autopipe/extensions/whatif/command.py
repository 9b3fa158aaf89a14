"""`autopipe whatif`: the command, and its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from autopipe.cli import options, screen

if TYPE_CHECKING:  # imported before `--help` answers
    from rich.table import Table

    from autopipe.extensions.whatif.prediction import Interconnect, WhatIf

GROUP = "Look closer"


def whatif(
    artifact: options.Artifact = None,
    cores: Annotated[float | None, Option(metavar="N", min=0.1, max=1_000_000, help="Usable cores.")] = None,
    step: Annotated[str | None, Option(metavar="5ms", help="What a step takes on one accelerator.")] = None,
    devices: Annotated[int | None, options.count(help="Devices that share a batch.")] = None,
    interconnect: Annotated[
        str | None,
        Option(
            metavar="12GB/s",
            help="What lies between devices: 12GB/s, 25Gbit/s, or one of pcie3, pcie4, nvlink-a100, nvlink-h100, "
            "10gbe, 25gbe, 100gbe. By default as measured, or else pcie3.",
        ),
    ] = None,
    read_latency: Annotated[
        str | None, Option(metavar="20ms", help="What one read takes with no other beside it.")
    ] = None,
    batch: Annotated[int | None, options.count(help="Samples a batch.")] = None,
    memory: Annotated[str | None, Option(metavar="64G", help="Usable memory, which may hold all samples.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Predict the rate on another machine.

    It also prints the best configuration there, and what more cores, memory, devices or faster storage would bring.
    """
    from autopipe import values
    from autopipe.extensions.whatif.prediction import Machine, read, what_if

    machine = Machine(
        cores=cores,
        step_seconds=None if step is None else values.seconds(step, "step"),
        devices=devices,
        interconnect=None if interconnect is None else rate_of(interconnect, "--interconnect"),
        read_latency_seconds=None if read_latency is None else values.seconds(read_latency, "read_latency"),
        batch_size=batch,
        memory_bytes=None if memory is None else values.size_bytes(memory, "memory"),
    )
    measured = read(options.located(artifact))
    found = what_if(measured, machine)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        screen.show(render(found, measured.pairs[0][1]))


def rate_of(text: str, option: str) -> Interconnect:
    """Return the connection between devices: a preset by name, or a rate such as `12GB/s` or `25Gbit/s`."""
    from autopipe import values
    from autopipe.errors import ConfigError, near
    from autopipe.extensions.whatif.prediction import INTERCONNECTS, Interconnect

    if text in INTERCONNECTS:
        return INTERCONNECTS[text]
    if (rate := values.bytes_per_second(text)) is None:
        raise ConfigError(
            f"`{option}` must be a rate such as 12GB/s or 25Gbit/s, or one of {', '.join(INTERCONNECTS)}; "
            f"but got {text!r}.{near(text, INTERCONNECTS)}"
        )
    return Interconnect(bytes_per_second=rate, source=f"{option} {text}")


def render(found: WhatIf, measured: float) -> Table:
    """Return a prediction as a table; `measured` is the rate of the winner on the machine of the tuning."""
    from autopipe.hardware.machine import size_text
    from autopipe.reports import terminal, wording

    changes = found.images_per_second.value / measured
    lines = [
        ("predicted", f"{wording.rates(found.images_per_second)} images/s, {wording.times(changes)} what was measured"),
        ("best there", found.config.short()),
        ("model alone", f"{wording.rate(found.model_images_per_second)} images/s"),
        ("limit", f"{wording.rate(found.limit)} images/s ({found.limit_kind}): {found.sentence}"),
        (
            "range",
            f"{found.error:.0%} up and down, by {wording.count(found.pairs, 'prediction')} of this study beside what "
            "was measured",
        ),
    ]
    for number, buy in enumerate(found.buys):
        gain = f"+{wording.rate(buy.gain)} images/s" if buy.gain >= 0.01 * measured else "nothing"
        size = "" if buy.cache_bytes is None else f" ({size_text(buy.cache_bytes)})"
        lines.append(("would bring" if number == 0 else "", f"{buy.what}{size}: {gain}"))
    return terminal.labelled([*lines, *(("note", note) for note in found.notes)])
