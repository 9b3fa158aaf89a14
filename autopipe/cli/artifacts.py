"""The commands for an artifact: check, show, report, eject, merge, repoint."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from autopipe import again
from autopipe.cli import options, screen
from autopipe.errors import ConfigError
from autopipe.pipeline.eject import NAMES


def check(
    stored: options.ArtifactOptions = options.ARTIFACT,
    quick: Annotated[bool, Option("--quick", help="Compare fingerprints only, and measure nothing.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check whether a tuned configuration still fits.

    Exits with 0 if it fits, 4 if it is stale (the machine, the software, the data or the model changed, or it is old),
    5 if it has drifted (a new measurement is slower than the old one). `autopipe retune` renews it.
    """
    from autopipe.api import tuning
    from autopipe.search.result import Event, Waiting

    def tell(event: Event) -> None:
        if isinstance(event, Waiting):
            screen.say(f"waiting   {event.why} measures on this machine")

    with screen.working("comparing" if quick else "comparing, and measuring for some 20 s"):
        answer = tuning.check(**stored.named, quick=quick, on_event=tell)
    screen.answer(answer, as_json=as_json)
    if answer.figures.exit_code and not as_json:
        screen.say(f"next      {again.autopipe('retune', *stored.arguments)}")
    raise typer.Exit(answer.figures.exit_code)


def show(
    artifact: options.Artifact = None,
    html: Annotated[bool, Option("--html", help="Also write its report as a page, report.html, and open it.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the profiles in an artifact, and the one for this machine.

    For a folder with several artifacts, it prints a line for each profile.
    """
    from autopipe.api import loading

    answer = loading.show(artifact)
    if as_json and len(answer.figures) == 1:
        print(next(iter(answer.figures.values())).model_dump_json(indent=2))
    else:
        screen.answer(answer, as_json=as_json)
    if html:
        import webbrowser

        webbrowser.open(_write_report(options.located(artifact)).absolute().as_uri())


def report(
    artifact: options.Artifact = None,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="The file to write; by default report.html beside the artifact.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the figures as JSON, and write nothing.")] = False,
) -> None:
    """Write the result of a tune as an HTML page.

    A JSON file beside the page has its figures.
    """
    file = options.located(artifact)
    if as_json:
        from autopipe.api import loading
        from autopipe.reports import profile_report

        print(profile_report.json_text(loading.of_file(file).document), end="")
    else:
        _write_report(file, out)


def _write_report(file: Path, out: Path | None = None) -> Path:
    from autopipe.api import loading
    from autopipe.cli.output import use_beside

    page = loading.of_file(file, use=functools.partial(use_beside, file))
    written = page.save(file.with_name(loading.NAME) if out is None else out)
    screen.say(f"wrote     {written}")
    return written


def eject(
    stored: options.ArtifactOptions = options.ARTIFACT,
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="FILE", help="The file to write; stdout by default.")
    ] = None,
    to: Annotated[
        str | None,
        Option(
            metavar="|".join(NAMES),
            help="Write the untuned workload in this usual form, which a tune takes as a baseline. It may be named as "
            "train.py:workload in the artifact's place.",
        ),
    ] = None,
) -> None:
    """Write the tuned pipeline as plain code.

    The code does not import autopipe. A configuration with one of autopipe's own loaders has no plain form; an error
    then says so.
    """
    from autopipe.api import loading
    from autopipe.artifact import artifact as files

    with screen.aside():
        code = loading.eject(**stored.named, to=to).figures
    if out is None:
        print(code, end="")
    else:
        files.replace_text(out, code, usual="plain_pipeline.py")
        screen.say(f"wrote     {out}")


def merge(
    artifacts: Annotated[
        list[Path], Argument(metavar="A.json B.json ...", help="Artifacts of one workload, or their folders.")
    ],
    out: Annotated[Path, Option("--out", "-o", metavar="FILE", help="The artifact to write, or its folder.")],
) -> None:
    """Join the artifacts of several machines into one.

    If several profiles are of one machine, the latest stays. The first artifact names the workload.
    """
    from autopipe.artifact import artifact as files
    from autopipe.values import count_text

    out = files.located(out)
    merged = files.merge([files.located(each) for each in artifacts], out)
    screen.say(f"wrote     {out}, with {count_text(len(merged.profiles), 'profile')}")


def repoint(
    artifact: options.Artifact = None,
    workload: Annotated[
        str | None,
        Argument(
            metavar="train.py:workload",
            help="Where it is now: FILE.py:NAME or package.module:NAME; of a tune with --images, the folder.",
        ),
    ] = None,
) -> None:
    """Change the workload that an artifact names.

    The workload is imported, to check that it exists. `tuned_pipeline.py` beside the artifact is written again.
    """
    from autopipe.artifact import codegen

    if workload is None:  # one argument is the workload
        artifact, workload = None, None if artifact is None else str(artifact)
    if workload is None:
        raise ConfigError("A workload must be named.", hint="Such as: autopipe repoint tuned/ train.py:workload")
    written, differences = codegen.repoint(options.located(artifact), workload)
    screen.say(f"wrote     {' and '.join(map(str, written))}")
    for difference in differences:
        screen.say(f"note      {difference}")
