"""The commands for an artefact: check, show, report, eject, merge, repoint."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Annotated

import typer

from autopipe import again
from autopipe.cli import options, screen
from autopipe.errors import ArtifactError, ConfigError
from autopipe.pipeline.eject import NAMES


def check(
    stored: options.ArtifactOptions = options.ARTIFACT,
    quick: Annotated[bool, typer.Option("--quick", help="Compare fingerprints only, and measure nothing.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check whether a tuned configuration still fits.

    Exits with 0 if it fits, 4 if it is stale (the machine, the software, the data or the model changed, or it is old),
    5 if it has drifted (a new measurement is slower than the old one). `autopipe retune` renews it.
    """
    from autopipe.api import retuning
    from autopipe.reports import tables
    from autopipe.search.trials import Event, Waiting

    def tell(event: Event) -> None:
        if isinstance(event, Waiting):
            screen.say(f"waiting   {event.why} measures on this machine")

    known = stored.read()
    with screen.working("comparing" if quick else "comparing, and measuring for some 20 s"):
        result = retuning.check(known, quick=quick, on_search=tell)
    if as_json:
        print(result.model_dump_json(indent=2))
    else:
        screen.show(tables.fitness(result))
        if result.exit_code:
            screen.say(f"next      {again.autopipe('retune', *stored.arguments)}")
    raise typer.Exit(result.exit_code)


def show(artifact: options.Artifact = None, as_json: options.AsJson = False) -> None:
    """Show the profiles in an artefact, and the one for this machine.

    Of a folder with several artefacts, a line for each profile.
    """
    import datetime

    from autopipe.artifact import artifact as files
    from autopipe.artifact import pick
    from autopipe.measure import fingerprint
    from autopipe.reports import tables

    if artifact is not None and artifact.is_dir():
        found = files.below(artifact)
    else:
        file = options.located(artifact)
        found = {file: files.read(file)}
    here, now = fingerprint.detect(), datetime.datetime.now(datetime.UTC)
    if len(found) > 1:
        if as_json:
            print(json.dumps({str(path): each.model_dump(mode="json") for path, each in found.items()}, indent=2))
        else:
            screen.show(tables.artifacts(found, here=here, now=now))
        return
    ((file, content),) = found.items()
    if as_json:
        print(content.model_dump_json(indent=2))
        return
    try:
        choice = pick.pick(content, here, name=str(file))
        used, note, live = choice.profile, choice.warning, choice.live
    except ArtifactError as error:  # the package of its loader is missing: show the rest
        used, note, live = None, str(error), None
    screen.show(tables.profiles(content, used, note, here=here, now=now, live=live))


def report(
    artifact: options.Artifact = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; by default report.html beside the artefact.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, and write nothing.")] = False,
) -> None:
    """Write the result of a tune as an HTML page.

    A JSON file beside the page has its figures.
    """
    from autopipe.api import loading
    from autopipe.cli.output import use_beside
    from autopipe.reports import profile_report

    file = options.located(artifact)
    made = loading.of_file(file, use=functools.partial(use_beside, file))
    if as_json:
        print(profile_report.json_text(made.document), end="")
        return
    written = made.save(file.with_name(loading.NAME) if out is None else out)
    screen.say(f"wrote     {written}")


def eject(
    stored: options.ArtifactOptions = options.ARTIFACT,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; stdout by default.")] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(NAMES),
            help="Write the untuned workload in this usual form, which a tune takes as a baseline. With --workload, no "
            "artefact is needed.",
        ),
    ] = None,
) -> None:
    """Write the tuned pipeline as plain code.

    The code does not import autopipe. A configuration with one of autopipe's own loaders has no plain form; an error
    then says so.
    """
    from autopipe.artifact import artifact as files
    from autopipe.artifact import codegen
    from autopipe.measure.trial import protocol

    with screen.aside():
        if to is not None:
            named = None if stored.workload is None else protocol.Reference(text=stored.workload)
            code = codegen.eject_usual(named or stored.read().workload, to)
        else:
            code = codegen.eject(stored.read())
    if out is None:
        print(code, end="")
    else:
        files.replace_text(out, code, usual="plain_pipeline.py")
        screen.say(f"wrote     {out}")


def merge(
    artifacts: Annotated[
        list[Path], typer.Argument(metavar="A.json B.json ...", help="Artefacts of one workload, or their folders.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The artefact to write, or its folder.")],
) -> None:
    """Join the artefacts of several machines into one.

    If several profiles are of one machine, the latest stays. The first artefact names the workload.
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
        typer.Argument(metavar="train.py:workload", help="Where it is now: FILE.py:NAME or package.module:NAME."),
    ] = None,
) -> None:
    """Change the workload that an artefact names.

    The workload is imported, to check that it exists. `tuned_pipeline.py` beside the artefact is written again.
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
