"""`autopipe retune`: renew this machine's profile in an artefact."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from autopipe.cli import again, artifact_options, search_options

_SHORTER = search_options.SearchOptions(trials=15, budget="90s")  # the known configurations come first


def retune(
    artifact: artifact_options.Artifact = artifact_options.DEFAULT,
    workload: artifact_options.Override = None,
    allow_outside: artifact_options.AllowOutside = False,
    if_stale: Annotated[
        bool, typer.Option("--if-stale", help="Do nothing if the profile fits this machine and workload.")
    ] = False,
    search: search_options.SearchOptions = _SHORTER,
    as_json: search_options.AsJson = False,
    verbose: search_options.Verbose = False,
) -> None:
    """Renew this machine's profile in an artefact, or add it.

    What is known already, of other machines too, is tried first. Profiles of other machines stay, and so does the
    former configuration unless another is proved faster.
    """
    from rich.console import Console

    from autopipe.api import retuning, searching, stored_workload
    from autopipe.cli.output import writable_folder, write_report
    from autopipe.cli.progress import Progress
    from autopipe.reports import document, headline, text
    from autopipe.reports.summary import summary_of

    known = stored_workload.read(artifact, workload=workload, allow_outside=allow_outside)
    folder = writable_folder(
        known.path.parent, "The artefact's folder", "Make it so, or retune a copy of the artefact elsewhere."
    )
    settings = dataclasses.replace(search.settings(folder / "study.db"), command=again.this())
    with Progress(Console(stderr=True), verbose=verbose, budget_seconds=settings.budget_seconds) as progress:
        retuned = retuning.run(known, settings, progress.watcher, if_stale=if_stale)
        if retuned.result is None:
            progress.say("fits", "the profile fits this machine and workload: nothing to do")
    if retuned.result is None:
        if as_json:
            print(json.dumps({"retuned": False, "artifact": str(artifact)}, indent=2))
        return
    if retuned.profile is None:
        raise searching.nothing_measured(retuned.result)
    summary = summary_of(retuned.result)
    if as_json:
        done = {"retuned": True, "kept": retuned.kept, "config": retuned.profile.config}
        print(json.dumps({**done, **document.document(summary, str(artifact))}, indent=2))
    else:
        Console().print(text.render(summary, headline.sentence(retuned.profile)), soft_wrap=True)
    what = "the former configuration stays: no other was proved faster" if retuned.kept else "a new configuration"
    progress.say("wrote", f"{artifact}: {what}")
    report = write_report(known.path, retuned.profile)
    if report is not None:
        progress.say("report", str(report))
    if retuned.result.interrupted:
        raise typer.Exit(130)
