"""`autopipe retune`: renews this machine's profile in an artefact."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe import again
from autopipe.cli import options, screen

if TYPE_CHECKING:
    from autopipe.api.retuning import Retuned
    from autopipe.artifact.pin import Stored
    from autopipe.artifact.schema import Profile
    from autopipe.search.result import Result

_KEPT, _NOTHING = 6, 7
_SHORTER = options.SearchOptions(trials=15, budget="90s")  # the known configurations come first


def retune(
    context: typer.Context,
    stored: options.ArtifactOptions = options.ARTIFACT,
    if_stale: Annotated[
        bool, typer.Option("--if-stale", help="Do nothing if the profile fits this machine and workload.")
    ] = False,
    if_drifted: Annotated[
        bool, typer.Option("--if-drifted", help="Measure for some 30 s, and do nothing if it is as fast as it was.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell whether it would search, and why.")] = False,
    exit_code: Annotated[
        bool,
        typer.Option("--exit-code", help="Exit with 6 where the configuration was kept, 7 where nothing was to do."),
    ] = False,
    search: options.SearchOptions = _SHORTER,
    as_json: options.AsJson = False,
    verbose: options.Verbose = False,
) -> None:
    """Renew this machine's profile in an artefact, or add it.

    What is known already, of other machines too, is tried first. Profiles of other machines stay, and so does the
    former configuration unless another is proved faster. The search asks for what the tune asked for, limits and all,
    in half the trials and three quarters of the time; options given here come before that.
    """
    from autopipe.api import retuning
    from autopipe.cli.output import say_renewed, writable_folder
    from autopipe.cli.progress import Progress
    from autopipe.reports.terminal import Console
    from autopipe.search.trial_measurer import nothing_measured

    known = stored.read()
    folder = writable_folder(
        known.path.parent, "The artefact's folder", "Make it so, or retune a copy of the artefact elsewhere."
    )
    settings = dataclasses.replace(search.settings(folder / "study.db", context), command=again.this())
    when = retuning.When(stale=if_stale, drifted=if_drifted, dry_run=dry_run)
    with screen.saying_how_to_go_on():  # where half a search was enough to write a profile, its study is done with
        with Progress(Console(stderr=True), verbose=verbose, budget_seconds=settings.budget_seconds) as progress:
            given = options.given_settings(context)
            retuned = retuning.run(known, settings, progress.watcher, when=when, given=given)
        if retuned.result is not None and retuned.profile is None:
            raise nothing_measured(retuned.result)
    if retuned.result is None or retuned.profile is None:
        _without_search(retuned, stored.artifact, as_json=as_json)
    else:
        before = {each.winner.key for each in known.artifact.profiles}
        what = _changed(retuned.profile, before, kept=retuned.kept)
        _searched(retuned.result, retuned.profile, known.path, what, kept=retuned.kept, as_json=as_json)
        workload = None if retuned.converted else _workload(known)
        say_renewed(known.path, retuned.profile, workload, stored.arguments)
    if retuned.result is not None and retuned.result.interrupted:
        raise typer.Exit(130)
    if exit_code:
        raise typer.Exit(_KEPT if retuned.kept else 0 if retuned.profile is not None or retuned.would else _NOTHING)


def _without_search(retuned: Retuned, artifact: Path, *, as_json: bool) -> None:
    from autopipe.artifact.check import Verdict

    checked = retuned.checked
    reasons = [] if checked is None else list(checked.reasons)
    if as_json:
        done = {"retuned": False, "would": retuned.would, "kept": retuned.kept, "reasons": reasons}
        print(json.dumps({**done, "artifact": str(artifact)}, indent=2))
        return
    if retuned.would:
        said = f"would     retune: {'; '.join(reasons) or 'it was asked for'}"
    elif retuned.kept:
        said = f"wrote     {artifact}: as fast as before, so that only versions are new ({'; '.join(reasons)})"
    elif checked is not None and checked.verdict is not Verdict.FITS:
        said = f"{checked.verdict:<10}but not what was asked for: nothing to do ({'; '.join(reasons)})"
    else:
        said = "fits      the profile fits this machine and workload: nothing to do"
    screen.say(said)


def _changed(profile: Profile, before: Collection[str], *, kept: bool) -> str:
    """Print what is new in the artefact, which held the configurations `before`."""
    if kept:
        return "the former configuration stays: no other was proved faster"
    return "the same configuration, with new figures" if profile.winner.key in before else "a new configuration"


def _searched(result: Result, profile: Profile, path: Path, what: str, *, kept: bool, as_json: bool) -> None:
    from autopipe.reports import text

    if as_json:
        done = {"retuned": True, "kept": kept, "config": profile.winner.config}
        print(json.dumps({**done, **text.document(result, str(path))}, indent=2))
    else:
        screen.show(text.render(result))
    screen.say(f"wrote     {path}: {what}")


def _workload(stored: Stored) -> str:
    """Return the words that name an artefact's samples and ops on a command line, quoted for a shell."""
    from autopipe.artifact import reference
    from autopipe.artifact.schema import ImagesReference
    from autopipe.cli.options import Chosen
    from autopipe.workload.workload import Workload

    if not isinstance(stored.workload, Workload):
        return Chosen(workload=stored.workload.text).arguments
    named = stored.artifact.workload
    assert isinstance(named, ImagesReference)  # a workload without code
    place = reference.located(named, stored.path, with_origin=True)
    return Chosen(workload=stored.workload, named=named.model_copy(update={"path": str(place)})).arguments
