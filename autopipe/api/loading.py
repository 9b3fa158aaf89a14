"""Reads artifacts: `ap.load` gives the tuned pipeline, `ap.show` and `ap.report` all that one holds, and `ap.eject` the
pipeline as plain code.
"""

from __future__ import annotations

import dataclasses
import datetime
import html
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import filelock

from autopipe.artifact import artifact as files
from autopipe.artifact import factory, pick, schema
from autopipe.artifact.factory import ProfileWarning, Tuned
from autopipe.errors import ArtifactError, AutopipeError, ConfigError
from autopipe.measure import fingerprint
from autopipe.measure.trial.child import IN_TRIAL
from autopipe.reports import profile_report
from autopipe.workload import digests
from autopipe.workload.workload import Workload

if TYPE_CHECKING:  # it imports Rich, of which `load` has no need
    from autopipe.reports.answer import Answer

RETUNE_SECONDS: Final = 90.0
_PATIENCE: Final = 3.0  # times its budget: importing, and other tunes on the machine, come before a retune
_AT_LEAST_SECONDS: Final = 300.0

OnNewHardware: TypeAlias = Literal["nearest", "retune", "error"]


def load(  # noqa: PLR0913  the entry point: what is asked for most, by keyword
    path: str | os.PathLike[str] = files.NAME,
    *,
    workload: Workload | str | None = None,
    pinned: Mapping[str, Any] | None = None,
    strict: bool = False,
    allow_outside: bool = False,
    on_new_hardware: OnNewHardware = "nearest",
    retune_seconds: float = RETUNE_SECONDS,
) -> Tuned:
    """Load the tuned pipeline of an artifact, with the profile that fits this machine.

    The user's code is imported only when a loader or a trainer is made, and nothing is ever unpickled. The
    artifact may name the workload that the generated module beside it names; without one, a `Workload` in a file of its
    own folder. SECURITY.md lists what an artifact can and cannot do.

    Args:
        path: the artifact, or its folder.
        workload: the workload, or "train.py:workload", in place of the one that the artifact names.
        pinned: the only workload that the artifact may name, as the generated module holds it.
        strict: refuse a profile of another machine instead of warning.
        allow_outside: trust everything that the artifact names: any file, any module, and any function in it.
        on_new_hardware: what to do on a machine that has no profile: take the "nearest" one, with a warning;
            "retune" first, which imports the workload in child processes and writes the artifact; or "error", as
            `strict`. Of several jobs that start at once on one kind of machine, one retunes and the others wait for
            it. If it fails, the nearest profile is taken, with a warning that gives the reason.
        retune_seconds: the budget of that retune.

    Raises:
        ArtifactError: the file is no artifact; or it has no profile of this machine, and that is an "error".
        ConfigError: `on_new_hardware` is none of the three.

    Examples:
        >>> tuned = ap.load("autopipe.json")            # doctest: +SKIP
        >>> tuned.make_trainer().fit(epochs=3)          # doctest: +SKIP
    """
    if on_new_hardware not in (choices := get_args(OnNewHardware)):
        raise ConfigError(f"`on_new_hardware` must be one of {', '.join(choices)}, but got {on_new_hardware!r}.")
    if on_new_hardware == "retune" and IN_TRIAL not in os.environ:  # a trial imports the script that loads
        _retuned(files.located(path).absolute(), workload, retune_seconds, allow_outside=allow_outside)
    return factory.load(
        files.located(path),
        workload=workload,
        pinned=pinned,
        strict=strict or on_new_hardware == "error",
        allow_outside=allow_outside,
        shown=profile_report.piece,
    )


def _retuned(path: Path, workload: Workload | str | None, seconds: float, *, allow_outside: bool) -> None:
    here = fingerprint.detect()

    def is_known() -> bool:
        return pick.nearest(files.read(path), here)[1].level is fingerprint.MatchLevel.SAME

    if is_known():
        return
    from autopipe.api import tuning
    from autopipe.search import searching
    from autopipe.search.result import nothing_measured
    from autopipe.search.settings import Settings

    kind = digests.digest(digests.canonical(here))[:8]
    waits_seconds = max(_AT_LEAST_SECONDS, _PATIENCE * seconds)
    try:
        with filelock.FileLock(path.with_name(f".{path.name}.{kind}.lock"), timeout=waits_seconds):
            if is_known():  # by now
                return
            stored = files.stored(path, workload=workload, allow_outside=allow_outside)
            settings = Settings(trials=tuning.TRIALS, budget_seconds=seconds)
            done = tuning.rerun(stored, settings, searching.Watcher(), given=["budget_seconds"])
            if done.profile is None and done.result is not None:
                raise nothing_measured(done.result)
    except (AutopipeError, OSError) as error:  # a lock that is never released is an OSError, too
        said = f"This machine has no profile in `{path}`, and a retune failed: {error}"
        warnings.warn(said, ProfileWarning, stacklevel=3)


# -------------------- report

NAME = "report.html"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """A finished report: one HTML file, which runs no script, and the raw figures as `report.json` holds them."""

    html: str
    document: dict[str, Any]

    def save(self, path: str | os.PathLike[str] = NAME) -> Path:
        """Write it, and its figures beside it as JSON; return its path. Raise ArtifactError if that fails."""
        file = Path(path)
        file = file / NAME if file.is_dir() else file
        figures = file.with_suffix(".json")
        if file == figures:
            raise ArtifactError(
                f"A report is a page, with its figures beside it as JSON, but got `{file}` for the page.",
                hint=f"Name the page: {file.with_suffix('.html')}",
            )
        if files.is_artifact(figures):
            raise ArtifactError(
                f"The figures of a report stand beside its page, but `{figures}` is an artifact.",
                hint=f"Give the page another name: {file.with_name(NAME)}",
            )
        files.replace_text(figures, profile_report.json_text(self.document), usual="report.json")
        return files.replace_text(file, self.html, usual=NAME)

    def __repr__(self) -> str:
        return f"<Report: {self.document['verdict']} .save({NAME!r}) writes all of it>"

    def _repr_html_(self) -> str:
        style = "width:100%;height:46rem;border:1px solid #8886;border-radius:8px"
        return f'<iframe title="autopipe report" sandbox style="{style}" srcdoc="{html.escape(self.html)}"></iframe>'


def report(tuned: Tuned | str | os.PathLike[str] = files.NAME) -> Report:
    """Return the report of a tuned pipeline: verdict, rates, costs, confirmation run, settings, history, machine.

    Args:
        tuned: the result of `ap.tune` or `ap.load`; or an artifact, or its folder.

    Raises:
        ArtifactError: there is no artifact at this path.

    Examples:
        >>> ap.report(tuned).save("report.html")        # doctest: +SKIP
    """
    if isinstance(tuned, Tuned):
        return of_profile(tuned.artifact, tuned.profile)
    return of_file(files.located(tuned))


def of_file(path: Path, *, use: Callable[[schema.Profile], str] = lambda profile: "") -> Report:
    """Make the report of the profile in an artifact whose machine is most like this one; see `of_profile`."""
    artifact = files.read(path)
    profile = pick.nearest(artifact, fingerprint.detect())[0]
    return of_profile(artifact, profile, use=use(profile))


def of_profile(artifact: schema.Artifact, profile: schema.Profile, *, use: str = "") -> Report:
    """Make the report of one profile; `use` is the command that trains with it, if it is known."""
    page = profile_report.html_page(artifact, profile, use=use)
    return Report(html=page, document=profile_report.document(artifact, profile))


# -------------------- for people: what one holds, and its pipeline as plain code


def show(path: str | os.PathLike[str] | None = None) -> Answer[dict[str, schema.Artifact]]:
    """Return the profiles of an artifact, and which of them this machine would use.

    Of a folder with several artifacts it has a line for each profile. The figures are the artifacts by their files.

    Args:
        path: the artifact, or a folder, in which and below which artifacts are looked for; None: that of `tuned/`.

    Raises:
        ArtifactError: there is no artifact.

    Examples:
        >>> ap.show("tuned")    # doctest: +SKIP
    """
    from autopipe.reports import tables
    from autopipe.reports.answer import Answer

    file = files.located(path)
    found = {file: files.read(file)} if path is None or not Path(path).is_dir() else files.below(Path(path))
    named = {str(file): content for file, content in found.items()}
    here, now = fingerprint.detect(), datetime.datetime.now(datetime.UTC)
    if len(found) > 1:
        return Answer(named, tables.artifacts(found, here=here, now=now))
    ((file, content),) = found.items()
    try:
        choice = pick.pick(content, here, name=str(file))
        used, note, live = choice.profile, choice.warning, choice.live
    except ArtifactError as error:  # the package of its loader is missing: show the rest
        used, note, live = None, str(error), None
    return Answer(named, tables.profiles(content, used, note, here=here, now=now, live=live))


def eject(
    path: Workload | str | os.PathLike[str] | None = None,
    *,
    to: str | None = None,
    workload: Workload | str | None = None,
    allow_outside: bool = False,
) -> Answer[str]:
    """Return the tuned pipeline as plain code, which does not import autopipe.

    Args:
        path: the artifact, or its folder; None: that of `tuned/`. With `to` also a workload or a folder of images.
        to: writes the untuned workload in this usual form, which a tune takes as a baseline: "tf.data", say.
        workload: the workload, or "train.py:workload", in place of the one that the artifact names.
        allow_outside: trust everything that the artifact names; see `ap.load`.

    Raises:
        PlainCodeError: the configuration, an op or the source has no plain form.
        ArtifactError: the file is no artifact, or its workload cannot be found.

    Examples:
        >>> ap.eject("tuned").save("plain_pipeline.py")         # doctest: +SKIP
    """
    from rich.text import Text

    from autopipe.api import request
    from autopipe.artifact import codegen  # imports Optuna
    from autopipe.reports.answer import Answer

    if to is not None and (workload is not None or request.artifact_of(path) is None):
        code = codegen.eject_usual(request.target(path if workload is None else workload).workload, to)
    else:
        stored = files.stored(files.located(path), workload=workload, allow_outside=allow_outside)
        code = codegen.eject(stored) if to is None else codegen.eject_usual(stored.workload, to)
    return Answer(code, Text(code.rstrip("\n")))
