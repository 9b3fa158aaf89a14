"""`autopipe eject`: the tuned pipeline without autopipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli import artifact_options


def eject(
    artifact: artifact_options.Artifact = artifact_options.DEFAULT,
    workload: artifact_options.Override = None,
    allow_outside: artifact_options.AllowOutside = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; stdout by default.")] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="If the tuned configuration has no plain form, take the fastest that has.")
    ] = False,
) -> None:
    """Write the tuned pipeline as plain tf.data or Keras code.

    The code does not import autopipe. Configurations whose loader is autopipe's own have no such form, which is said.
    """
    from rich.console import Console

    from autopipe.api import ejecting, stored_workload
    from autopipe.reports import wording
    from autopipe.tuned import artifact as files

    ejected = ejecting.eject(
        stored_workload.read(artifact, workload=workload, allow_outside=allow_outside), plain=plain
    )
    if out is None:
        print(ejected.code, end="")
        return
    files.replace_text(out, ejected.code)
    share = "" if ejected.share == 1.0 else f", which reached {ejected.share:.0%} of the tuned one's images/s"
    Console(stderr=True).print(
        f"wrote     {out}: {wording.short(ejected.config)}{share}", highlight=False, soft_wrap=True
    )
