"""The `autopipe` command: its sub-commands, and the handling of their errors.

Errors that were raised on purpose become one line and a hint; `--log-level debug` shows where they came from.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import signal
import stat
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer import Option
from typer.core import TyperGroup

from autopipe import _version, registry
from autopipe.cli import artifacts, data, measure, options, tune
from autopipe.cli.options import Exit
from autopipe.errors import AutopipeError, ConfigError, NothingMeasuredError, OpError, SearchInterruptedError, near

# The headings of `--help`, and below each the core's commands, the most used first. Commands of extensions follow them,
# below the heading that their module has as `GROUP`. What is below no heading works, but is not listed.
_GROUPS = {
    "Tune and train": (tune.tune, tune.retune, artifacts.check, artifacts.show),
    "Look closer": (measure.measure, measure.doctor),
    "Data and files": (data.verify, data.convert, artifacts.eject),
    "": (measure.compare, artifacts.report, artifacts.merge, artifacts.repoint),
}
_OTHERS = "More"
_USAGE_ERROR: Any = typer.BadParameter.__base__  # click's, of which newer versions of Typer have a copy of their own


class _Grouped(TyperGroup):
    """Lists the sub-commands below headings, without Rich, and takes options from a file of settings, too."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # Any: the two types are private to Typer
        width = max(map(len, self.commands))
        rows: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _GROUPS}
        for name, command in self.commands.items():
            sentence = command.get_short_help_str(limit=1000)  # a long one is wrapped, not cut
            if not command.hidden:
                rows.setdefault(getattr(command, "rich_help_panel", _OTHERS), []).append((name.ljust(width), sentence))
        for heading, listed in rows.items():
            if listed:
                with formatter.section(heading):
                    formatter.write_dl(listed)

    def invoke(self, ctx: Any) -> Any:  # Any: as above
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # pydantic's, which typer has checked it by
            raise
        except _USAGE_ERROR as error:
            if alike := getattr(error, "possibilities", None):  # of an unknown option, nearest first
                error.possibilities, is_like = None, near(error.option_name[2:], [alike[0][2:]])  # not by `--` alone
                error.message += f". Did you mean `{alike[0]}`?" * bool(is_like)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # Any: as above
        if (command := self.commands.get(args[0])) is not None:
            try:
                place, tables = options.settings_file(Path.cwd())
            except FileNotFoundError as error:
                hint = "Change to a folder that is there, and run the command again."
                raise ConfigError("The folder that this shell is in was removed.", hint=hint) from error
            if unknown := next((name for name in tables if name not in self.commands), None):
                said = f"{place} has options of `{unknown}`, which is no command.{near(unknown, self.commands)}"
                raise ConfigError(said)
            ctx.meta["settings"] = place
            table = tables.get(str(command.name), {})
            ctx.default_map = {command.name: options.defaults(command, ctx, table, place)}
        return super().resolve_command(ctx, args)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(_version.__version__)
        raise typer.Exit


_Version = Annotated[
    bool, Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
]


def _common(context: typer.Context, version: _Version = False) -> None:
    """Measures how to feed your model from images, and writes the fastest pipeline as code to import."""
    context.obj = time.monotonic()  # a budget counts from here, before anything large is imported


def application() -> typer.Typer:
    """Return the command with the core's sub-commands, and those of extensions (`autopipe.commands`)."""
    app = typer.Typer(
        name="autopipe",
        cls=_Grouped,
        no_args_is_help=True,
        rich_markup_mode=None,  # Rich's help takes 0.3 s of imports, most of the time that `--help` may take
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    for heading, functions in _GROUPS.items():
        for function in functions:
            command = app.command(function.__name__, rich_help_panel=heading, hidden=not heading)
            command(options.ready(function))
    for name, module in sorted(registry.loaded("autopipe.commands", "command")):
        context, heading = getattr(module, "CONTEXT", None), getattr(module, "GROUP", _OTHERS)
        command = app.command(name.replace("_", "-"), context_settings=context, rich_help_panel=heading)
        command(options.ready(getattr(module, name)))
    return app


def main() -> None:
    """Run the command line and exit with its status; `Exit` has the codes other than 0."""
    warnings.showwarning = _show_warning
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: no letter that a locale lacks costs a result
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` has it
        signal.signal(signal.SIGHUP, _hang_up)
    options.LOG.setLevel(logging.WARNING)
    try:
        with _whole_output():
            application()(sys.argv[1:], prog_name="autopipe")
    except AutopipeError as error:
        sys.exit(_report(error))
    except OSError as error:  # such as a path that may not be looked into
        said = f"{error.strerror or error}" + f": `{error.filename}`" * bool(error.filename)
        refused = AutopipeError(said, hint=_WHERE)
        refused.__cause__ = error
        sys.exit(_report(refused))
    except SystemExit as end:
        if end.code == Exit.INTERRUPTED:
            print("interrupted", file=sys.stderr)
        raise


@contextlib.contextmanager
def _whole_output() -> Iterator[None]:
    """Raise an AutopipeError if a command has done its work but stdout does not take all of its output."""
    try:
        yield
    except (OSError, SystemExit) as ended:
        refusal = _refusal_of_output(more=isinstance(ended, OSError) and ended.filename is None)
        if refusal is None or (isinstance(ended, SystemExit) and ended.code):
            raise
        if refusal.errno == errno.EPIPE:  # the reader has seen enough
            sys.exit(Exit.DIFFERENT)
        hint = "Make room where it goes, or send it elsewhere, and run the command again."
        raise AutopipeError(f"The output cannot be written to stdout: {refusal.strerror}.", hint=hint) from refusal


def _refusal_of_output(*, more: bool) -> OSError | None:
    """Flush stdout, and return the error if it fails; with `more`, after an empty line."""
    try:
        if sys.stdout is not None:  # None if the shell closed it
            sys.stdout.write("\n" * more)
            sys.stdout.flush()
    except OSError as refusal:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # Python tries once more when it ends
        os.close(nowhere)
        return refusal
    return None


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """End as on Ctrl-C, once: the job still writes its result, and batch systems and `timeout` repeat the signal."""
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # not SIG_IGN, which new processes would inherit
    raise KeyboardInterrupt


def _hang_up(number: int, frame: FrameType | None) -> NoReturn:
    """End as on Ctrl-C, without the terminal, which is gone: printing to it would be an error."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a shell and the kernel both send it
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            os.dup2(nowhere, descriptor)
    raise KeyboardInterrupt


def _show_warning(message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
    with contextlib.suppress(OSError):  # a failing stderr must not end the program that warns
        print(f"warning: {message}", file=sys.stderr)


_WHERE = "With --log-level debug, the same command shows where."


def _report(error: AutopipeError) -> int:
    if debug := options.LOG.isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    print(f"error: {error.message}", file=sys.stderr)
    of_users = isinstance(error, OpError) and error.__cause__ is not None and not debug
    if hint := _WHERE if error.hint is None and of_users else error.hint:
        print(f"\nhint: {hint}", file=sys.stderr)
    if isinstance(error, SearchInterruptedError):
        return Exit.INTERRUPTED
    return Exit.NOTHING_MEASURED if isinstance(error, NothingMeasuredError) else Exit.USAGE
