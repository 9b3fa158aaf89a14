"""`autopipe eject`: the tuned pipeline without autopipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autopipe import registry
from autopipe.cli import options, screen

_OF_EXTENSIONS = [entry.name for entry in registry.declared("autopipe.plain_forms")]
_FORMS = ("tf.data", "tf.data-cache", "keras", "keras-workers", *_OF_EXTENSIONS, "directory", "fit")


def eject(
    context: typer.Context,
    stored: options.ArtifactOptions = options.ARTIFACT,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; stdout by default.")] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(_FORMS),
            help="The workload as it is usually written in that form, which a tune takes for a baseline: not as tuned. "
            "With --workload, no artefact is needed.",
        ),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="If the tuned configuration has no plain form, take the fastest that has.")
    ] = False,
) -> None:
    """Write the tuned pipeline as plain code.

    The code does not import autopipe. Configurations whose loader is autopipe's own have no such form, which is said.
    """
    from autopipe.artifact import artifact as files
    from autopipe.artifact import ejecting
    from autopipe.measure.trial import protocol

    if to is not None:
        options.refuse_idle(context, "plain", why="with `--to`, which asks for no tuned configuration")
        named = None if stored.workload is None else protocol.Reference(text=stored.workload)
        with screen.aside():
            code = ejecting.eject_usual(named or stored.read().workload, to)
        what = f"{to} as it is usually written"
    else:
        with screen.aside():
            ejected = ejecting.eject(stored.read(), plain=plain)
        share = "" if ejected.share == 1.0 else f", which reached {ejected.share:.0%} of the tuned one's images/s"
        code, what = ejected.code, f"{ejected.config.short()}{share}"
    if out is None:
        print(code, end="")
    else:
        files.replace_text(out, code, usual="plain_pipeline.py")
        screen.say(f"wrote     {out}: {what}")
