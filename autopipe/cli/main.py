"""The `autopipe` command: its sub-commands, and what happens when one fails.

Errors that were raised on purpose become one line and a hint; `--debug` shows where they came from.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from typing import Annotated

import typer

from autopipe import _version
from autopipe.cli import commands
from autopipe.errors import AutopipeError, TrialError

DONE, USAGE, NOTHING_MEASURED, INTERRUPTED = 0, 2, 3, 130


def _show_version(wanted: bool) -> None:
    if wanted:
        print(_version.__version__)
        raise typer.Exit


def _common(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Measures how to feed your model from images, and writes the fastest pipeline as code to import."""


def application() -> typer.Typer:
    """Return the command with its sub-commands: the function of the same name in each module of `autopipe.cli.commands`."""
    app = typer.Typer(
        name="autopipe",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    for module in pkgutil.iter_modules(commands.__path__):
        command = getattr(importlib.import_module(f"{commands.__name__}.{module.name}"), module.name)
        app.command(module.name.replace("_", "-"))(command)
    return app


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        application()()
    except AutopipeError as error:
        sys.exit(_report(error, debug="--debug" in sys.argv[1:]))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _report(error: AutopipeError, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"\nhint: {error.hint}", file=sys.stderr)
    return NOTHING_MEASURED if isinstance(error, TrialError) else USAGE
