"""What was found on a machine, as text."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from autopipe.hardware import opencv
from autopipe.hardware.machine import Machine
from autopipe.hardware.memory import size_text
from autopipe.reports import labelled


def render(machine: Machine, opencv_found: Mapping[str, str]) -> Table:
    """Return the table that `autopipe doctor` prints."""
    table = labelled.table()
    cpu = machine.cpu
    table.add_row("cores", f"{cpu.cores} usable of {cpu.logical_cores} ({cpu.model})")
    table.add_row(
        "memory", f"{size_text(machine.memory.available_bytes)} free of {size_text(machine.memory.usable_bytes)}"
    )
    if not machine.gpus:
        table.add_row("GPU", "none found by NVML")
    for gpu in machine.gpus:
        size = "" if gpu.memory_bytes is None else f", {size_text(gpu.memory_bytes)}"
        table.add_row("GPU", f"{gpu.name}{size}, driver {gpu.driver or 'unknown'}")
    table.add_row("system", f"{machine.os}, {machine.kernel}, Python {machine.python}")
    for name, version in machine.versions.items():
        table.add_row(name, version or "not installed")
    table.add_row("OpenCV package", ", ".join(f"{name} {version}" for name, version in opencv_found.items()) or "none")
    warning = opencv.warning(opencv_found)
    if warning is not None:
        table.add_row(Text("note", style="bold yellow"), warning)
    return table
