"""Which options a command line says by itself, and those among them that would be passed over: refused, not ignored."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from autopipe.errors import ConfigError


def given(context: typer.Context, names: Iterable[str]) -> list[str]:
    """Return those of a command's parameters that its command line says, and not a default or the environment."""
    return [name for name in names if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"]


def refuse_idle(context: typer.Context, *names: str, why: str) -> None:
    """Refuse options that were given and would have no effect.

    Args:
        context: of the command.
        names: of its parameters.
        why: ends the sentence: "without `--prune`".

    Raises:
        ConfigError: naming the first of them.
    """
    if idle := given(context, names):
        option = next(each.opts[0] for each in context.command.params if each.name == idle[0])
        raise ConfigError(f"`{option}` has no effect {why}.", hint="Leave it out.")
