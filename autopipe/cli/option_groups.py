"""Groups of options that several commands share: a command takes a dataclass, its command line an option per field."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

Command = Callable[..., None]


def ungrouped(command: Command) -> Command:
    """Return a command that takes the fields of its groups one by one, in the groups' places.

    A group is a parameter whose type is a dataclass. Its default is an instance: the defaults of this command.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    types = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        group = types[name]
        if not dataclasses.is_dataclass(group):
            parameters.append(parameter.replace(annotation=types[name]))
            continue
        groups[name] = group
        parameters += [
            parameter.replace(name=field, annotation=annotation, default=getattr(parameter.default, field))
            for field, annotation in get_type_hints(group, include_extras=True).items()
        ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
