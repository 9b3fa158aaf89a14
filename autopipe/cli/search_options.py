"""The options of commands that search, and the settings that they amount to: one text and one meaning for all."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autopipe.cli import given_options, workload_options

if TYPE_CHECKING:  # imported by commands' modules, and so before `--help` answers
    from autopipe.search.settings import Settings


def finite(value: float | None) -> float | None:
    """Return a number that an option was given, if something can come to an end by it; typer itself refuses nan."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no finite number.")
    return value


PageCache = Literal["warm", "cold", "auto"]
Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json", help="Write what was done when, as a trace for ui.perfetto.dev or chrome://tracing."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show every trial, and what was left out and why.")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What a search is asked for, as it is written on a command line."""

    space: Annotated[
        str,
        typer.Option(help="A shipped search space, such as default, quick or exhaustive, or a file."),
    ] = "default"
    trials: Annotated[int, typer.Option(min=1, help="At most so many trials, without the confirmation run.")] = 30
    budget: Annotated[str, typer.Option(help="At most this long, the confirmation run included: 90s, 3m, 1h.")] = "2m"
    storage: Annotated[
        str | None,
        typer.Option(envvar="AUTOPIPE_STORAGE", help="An Optuna storage URL instead of study.db beside the artefact."),
    ] = None
    seed: Annotated[int, typer.Option(help="Of everything random in the search.")] = 0
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Hold a parameter to a value.")
    ] = None
    only: Annotated[list[str] | None, typer.Option(metavar="KEY=A,B", help="Try these values of a parameter only.")] = (
        None
    )
    max_memory: Annotated[str | None, typer.Option(help="Memory that the training may take: 8G.")] = None
    max_workers: Annotated[int | None, typer.Option(min=1, help="Workers that the loader may have.")] = None
    max_cpu: Annotated[
        float | None, typer.Option(min=1, callback=finite, help="CPU that the training may use; 100 is one core.")
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:function",
            help="Your own pipeline, to be beaten: a function that returns a tf.data.Dataset, a PyDataset or (x, y).",
        ),
    ] = None
    convert: Annotated[
        bool | None,
        typer.Option(
            "--convert/--no-convert",
            help="Try other storage forms; by default they win with known --epochs only, and are advice without.",
        ),
    ] = None
    epochs: Annotated[int | None, typer.Option(min=1, help="Charge one-time costs over so many epochs.")] = None
    simulate_step: workload_options.SimulateStep = None
    virtual_devices: workload_options.VirtualDevices = 0
    hosts: Annotated[
        int, typer.Option(min=1, help="So many hosts will share each batch: tune one host's part of it.")
    ] = 1
    page_cache: Annotated[PageCache, typer.Option(help="Whether trials read files from memory or from disk.")] = "auto"
    isolation: Annotated[
        Literal["warm", "process"], typer.Option(help="One process for many trials, or a fresh one for each.")
    ] = "warm"
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin a new study instead of going on with one that was cut off.")
    ] = False

    def settings(self, study: Path, context: typer.Context) -> Settings:
        """Return what the options ask for; `study` is the file that keeps the study unless they name another storage.

        The budget counts from when the command of `context` began.

        Raises:
            ConfigError: one of them cannot be read.
        """
        from autopipe.cli import option_values
        from autopipe.core.facts import Limits
        from autopipe.search import storage
        from autopipe.search.settings import Settings

        began = context.find_root().obj
        return Settings(
            space=self.space,
            began=began,
            end_seconds=time.monotonic() - began,  # to write and to exit takes about as long as what was imported
            storage=self.storage or storage.url_of(study),
            trials=self.trials,
            budget_seconds=option_values.seconds(self.budget, "--budget"),
            seed=self.seed,
            limits=Limits(
                memory_bytes=None if self.max_memory is None else option_values.size(self.max_memory, "--max-memory"),
                workers=self.max_workers,
                cpu_percent=self.max_cpu,
                only=option_values.allowed([*(self.setting or []), *(self.only or [])]),
            ),
            baseline=self.baseline,
            convert=self.convert,
            epochs=self.epochs,
            virtual_devices=self.virtual_devices,
            hosts=self.hosts,
            simulate=workload_options.simulated(self.simulate_step),
            page_cache=self.page_cache,
            isolation=self.isolation,
            fresh=self.fresh,
        )


_FIELDS = {
    "budget": "budget_seconds",
    "max_memory": "memory_bytes",
    "max_workers": "workers",
    "max_cpu": "cpu_percent",
    "simulate_step": "simulate",
}


def given(context: typer.Context) -> frozenset[str]:
    """Return the fields of `Settings` and `Limits` that a command line says by itself, and not by a default."""
    said = given_options.given(context, [field.name for field in dataclasses.fields(SearchOptions)])
    return frozenset(_FIELDS.get(name, name) for name in said)


USUAL = SearchOptions()
