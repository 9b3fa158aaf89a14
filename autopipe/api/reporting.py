"""Makes reports: `ap.report`, which the command line calls as well. The artefact holds everything in a report."""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autopipe.artifact import artifact as files
from autopipe.artifact import pick
from autopipe.artifact.factory import Tuned
from autopipe.artifact.schema import Artifact, Profile
from autopipe.errors import ArtifactError
from autopipe.measure import fingerprint
from autopipe.reports import profile_report

NAME = "report.html"
_USUAL = "autopipe.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """A finished report.

    Attributes:
        html: one HTML file, which fetches nothing and runs no script.
        document: the raw figures, as `report.json` holds them.
    """

    html: str
    document: dict[str, Any]

    def save(self, path: str | os.PathLike[str] = NAME) -> Path:
        """Write the report, and its figures beside it as JSON; return the report's path.

        Raises:
            ArtifactError: a file cannot be written.
        """
        file = Path(path)
        file = file / NAME if file.is_dir() else file
        if file.suffix == ".json":
            raise ArtifactError(
                f"A report is a page, with its figures beside it as JSON, but got `{file}` for the page.",
                hint=f"Name the page: {file.with_suffix('.html')}",
            )
        files.replace_text(file.with_suffix(".json"), profile_report.json_text(self.document), usual="report.json")
        return files.replace_text(file, self.html, usual=NAME)

    def __repr__(self) -> str:
        verdict = self.document.get("verdict", "profiles side by side")
        return f"<Report: {verdict} .save({NAME!r}) writes all of it>"

    def _repr_html_(self) -> str:
        style = "width:100%;height:46rem;border:1px solid #8886;border-radius:8px"
        return f'<iframe title="autopipe report" sandbox style="{style}" srcdoc="{html.escape(self.html)}"></iframe>'


def report(tuned: Tuned | str | os.PathLike[str] = _USUAL) -> Report:
    """Return the report of a tuned pipeline: verdict, rates, costs, confirmation run, settings, history, machine.

    Args:
        tuned: the result of `ap.tune` or `ap.load`; or an artefact, or its folder.

    Raises:
        ArtifactError: there is no artefact at this path.

    Example:
        >>> ap.report(tuned).save("report.html")        # doctest: +SKIP
    """
    if isinstance(tuned, Tuned):
        return of_profile(tuned.artifact, tuned.profile)
    return of_file(located(tuned))


def of_file(path: Path, *, use: Callable[[Profile], str] = lambda profile: "") -> Report:
    """Make the report of the profile in an artefact whose machine is most like this one; see `of_profile`."""
    artifact = files.read(path)
    profile = pick.nearest(artifact, fingerprint.detect())[0]
    return of_profile(artifact, profile, use=use(profile))


def of_profile(artifact: Artifact, profile: Profile, *, use: str = "") -> Report:
    """Make the report of one profile; `use` is the command that trains with it, if it is known."""
    page = profile_report.html_page(artifact, profile, use=use)
    return Report(html=page, document=profile_report.document(artifact, profile))


def compare(paths: Sequence[str | os.PathLike[str]]) -> Report:
    """Make the report that compares all profiles of several artefacts, in their order. Raises ArtifactError if a file
    is no artefact, or there are too few profiles, or too many.
    """
    read = [files.read(located(path)) for path in paths]
    found = [(artifact, profile) for artifact in read for profile in artifact.profiles]
    return Report(html=profile_report.comparison_page(found), document=profile_report.comparison_document(found))


def located(path: str | os.PathLike[str]) -> Path:
    """Return the path of an artefact, given that or its folder."""
    file = Path(path)
    return file / _USUAL if file.is_dir() else file
