"""The options of commands that search, and the plan that they amount to: one text and one meaning for all of them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # imported by commands' modules, and so before `--help` answers
    from autopipe.core.facts import Limits


class PageCache(StrEnum):
    """The state of the files before a trial."""

    WARM = "warm"
    COLD = "cold"
    AUTO = "auto"


class Isolation(StrEnum):
    """How trials are kept apart."""

    WARM = "warm"
    PROCESS = "process"


Space = Annotated[str, typer.Option(help="A shipped search space (default, quick, exhaustive, multi_gpu) or a file.")]
Trials = Annotated[int, typer.Option(min=1, help="At most so many trials, without the proof.")]
Budget = Annotated[str, typer.Option(help="At most this long, the proof included: 90s, 3m, 1h.")]
Seed = Annotated[int, typer.Option(help="Of everything random in the search.")]
Setting = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Hold a parameter to a value.")]
Only = Annotated[list[str] | None, typer.Option(metavar="KEY=A,B", help="Try these values of a parameter only.")]
MaxMemory = Annotated[str | None, typer.Option(help="Memory that the training may take: 8G.")]
MaxWorkers = Annotated[int | None, typer.Option(min=1, help="Workers that the loader may have.")]
MaxCpu = Annotated[float | None, typer.Option(min=1, help="CPU that the training may use; 100 is one core.")]
Convert = Annotated[
    bool | None,
    typer.Option(
        "--convert/--no-convert",
        help="Try other storage forms; by default with known --epochs only, by which they pay.",
    ),
]
Epochs = Annotated[int | None, typer.Option(min=1, help="Charge one-time costs over so many epochs.")]
FilesAre = Annotated[
    PageCache, typer.Option("--page-cache", help="Whether trials read files from memory or from disk.")
]
KeptApart = Annotated[
    Isolation, typer.Option("--isolation", help="One process for many trials, or a fresh one for each.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show every trial, and what was left out and why.")]


def limits(
    settings_held: list[str] | None,
    only: list[str] | None,
    max_memory: str | None,
    max_workers: int | None,
    max_cpu: float | None,
) -> Limits:
    """Return what the options allow.

    Raises:
        ConfigError: one of them cannot be read.
    """
    from autopipe.cli import option_values
    from autopipe.core.facts import Limits

    return Limits(
        memory_bytes=None if max_memory is None else option_values.size(max_memory, "--max-memory"),
        workers=max_workers,
        cpu_percent=max_cpu,
        only=option_values.allowed([*(settings_held or []), *(only or [])]),
    )
