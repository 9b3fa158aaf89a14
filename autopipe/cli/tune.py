"""`autopipe tune` searches for the fastest pipeline and writes it; `autopipe retune` renews it for this machine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from autopipe import again
from autopipe.cli import options, screen
from autopipe.cli.options import Exit
from autopipe.errors import ArtifactError

if TYPE_CHECKING:
    from autopipe.api.tuning import Retuned
    from autopipe.artifact.artifact import Stored

_SHORTER = options.SearchOptions(trials=15, budget="90s")  # the known configurations come first


def tune(
    context: typer.Context,
    workload: options.WorkloadOptions = options.WORKLOAD,
    search: options.SearchOptions = options.SEARCH,
    out: Annotated[Path, Option(metavar="DIR", help="The folder to write to.")] = Path("tuned"),
    trace: options.Trace = None,
    as_json: options.AsJson = False,
    verbose: options.Verbose = False,
) -> None:
    """Search for the fastest way to feed a model on this machine.

    The result is written as code to import. Rarer options are in docs/reference.md; all of them may stand in a file,
    too, as `[tool.autopipe.tune]` of pyproject.toml or `[tune]` of autopipe.toml.
    """
    from autopipe.api import tuning
    from autopipe.cli import output
    from autopipe.cli.progress import Progress
    from autopipe.pipeline.batching import trace as traces
    from autopipe.reports import text
    from autopipe.search.result import nothing_measured
    from autopipe.workload.workload import Workload

    chosen = workload.untuned()
    told = chosen.workload if isinstance(chosen.workload, Workload) else chosen.workload.text
    settings = dataclasses.replace(search.settings(out / "study.db", context), command=again.this())
    with screen.saying_how_to_go_on():
        with (
            Progress(verbose=verbose, budget_seconds=settings.budget_seconds) as progress,
            output.reserved(out),
            traces.begun(trace) as trace_file,
        ):
            settings = dataclasses.replace(settings, trace=trace_file)
            result, tuned = tuning.run(told, settings, progress.watcher, named=chosen.named, folder=out)
        written, unwritten = None, None
        try:
            written = None if tuned is None else output.write_outputs(tuned, [out, *output.folder_of(search.storage)])
        except ArtifactError as error:  # raised after the figures are shown, which are all that is left
            unwritten = error
        if as_json:
            print(json.dumps(text.document(result, None if written is None else str(written[0])), indent=2))
        elif tuned is not None:
            screen.show(text.render(result))
        if unwritten is not None:
            raise unwritten
        if tuned is None or written is None:
            raise nothing_measured(result)
        study = again.without_password(search.storage) if search.storage else str(out / "study.db")
        screen.say(f"wrote     {written[0]}, {written[1]} and the study {study}")
        output.say_next(written[0], tuned.profile, chosen.arguments, [str(written[0])])
        if result.interrupted:
            raise KeyboardInterrupt


def retune(
    context: typer.Context,
    stored: options.ArtifactOptions = options.ARTIFACT,
    if_stale: Annotated[
        bool, Option("--if-stale", help="Do nothing if the profile fits this machine and workload.")
    ] = False,
    if_drifted: Annotated[
        bool, Option("--if-drifted", help="Measure for some 20 s, and do nothing if the pipeline is as fast as it was.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say whether it would search, and why.")] = False,
    exit_code: Annotated[
        bool,
        Option("--exit-code", help="Exit with 6 if the configuration was kept, with 7 if there was nothing to do."),
    ] = False,
    search: options.SearchOptions = _SHORTER,
    as_json: options.AsJson = False,
    verbose: options.Verbose = False,
) -> None:
    """Renew this machine's profile in an artifact, or add it.

    On the machine of the tune, it first measures the winner by turns with what came next to it, for some 20 s, and ends
    if nothing has changed. Else it searches, known configurations first, those of other machines too. It has the tune's
    settings and limits, half of its trials and three quarters of its time, unless options change them. Profiles of
    other machines stay, and so does the former configuration unless another is proved faster.
    """
    from autopipe.api import tuning
    from autopipe.artifact import artifact as files
    from autopipe.cli import output
    from autopipe.cli.progress import Progress
    from autopipe.reports import text
    from autopipe.search.result import nothing_measured

    known = files.stored(stored.path, workload=stored.workload, allow_outside=stored.allow_outside)
    study = known.path.with_name("study.db")
    settings = dataclasses.replace(search.settings(study, context), command=again.this())
    when = tuning.When(stale=if_stale, drifted=if_drifted, dry_run=dry_run)
    with screen.saying_how_to_go_on():  # if an interrupted search wrote a profile, its study is not continued
        with Progress(verbose=verbose, budget_seconds=settings.budget_seconds) as progress:
            given = options.given_settings(context)
            retuned = tuning.rerun(known, settings, progress.watcher, when=when, given=given)
        if retuned.result is not None and retuned.profile is None:
            raise nothing_measured(retuned.result)
    result, profile = retuned.result, retuned.profile
    if result is None or profile is None:
        _without_search(retuned, stored.path, as_json=as_json)
    else:
        if as_json:
            done = {"retuned": True, "kept": retuned.kept, "config": profile.winner.config}
            print(json.dumps({**done, **text.document(result, str(known.path))}, indent=2))
        else:
            screen.show(text.render(result))
        is_known = profile.winner.key in {each.winner.key for each in known.artifact.profiles}
        what = "the same configuration, with new figures" if is_known else "a new configuration"
        if retuned.kept:
            what = "the former configuration stays: no other was proved faster"
        screen.say(f"wrote     {known.path}: {what}")
        output.say_next(known.path, profile, None if retuned.converted else _workload(known), stored.arguments)
    if result is not None and result.interrupted:
        raise typer.Exit(Exit.INTERRUPTED)
    if exit_code:
        nothing = 0 if profile is not None or retuned.would else Exit.NOTHING_TO_DO
        raise typer.Exit(Exit.KEPT if retuned.kept else nothing)


def _without_search(retuned: Retuned, artifact: Path, *, as_json: bool) -> None:
    from autopipe.artifact.drift import Verdict

    checked = retuned.checked
    because = "; ".join(reasons := [] if checked is None else list(checked.reasons))
    if as_json:
        done = {"retuned": False, "would": retuned.would, "kept": retuned.kept, "reasons": reasons}
        print(json.dumps({**done, "artifact": str(artifact)}, indent=2))
    elif retuned.would:
        screen.say(f"would     retune: {because or 'no condition was given'}")
    elif retuned.kept:
        why = ["as fast as before", *([f"only this is new ({because})"] if because else [])]
        screen.say(f"wrote     {artifact}: {' and '.join(why)}: nothing was searched")
    elif checked is not None and checked.verdict is not Verdict.FITS:
        screen.say(f"{checked.verdict:<10}but no given condition asks for a retune: nothing to do ({because})")
    else:
        screen.say("fits      the profile fits this machine and workload: nothing to do")


def _workload(stored: Stored) -> str:
    from autopipe.api.request import Target
    from autopipe.artifact import reference, schema
    from autopipe.workload.workload import Workload

    if not isinstance(stored.workload, Workload):
        return Target(name="", workload=stored.workload).arguments
    named = stored.artifact.workload
    assert isinstance(named, schema.ImagesReference)  # a workload without code
    place = reference.located(named, stored.path, with_origin=True)
    named = named.model_copy(update={"path": str(place)})
    return Target(name="", workload=stored.workload, named=named).arguments
