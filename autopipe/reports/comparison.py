"""Profiles side by side, of several machines or dates: one table of what matters, and their ladders on one axis."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from autopipe.core.value import Estimate
from autopipe.errors import ArtifactError
from autopipe.reports import headline, ladder, page, story, waterfall, wording
from autopipe.reports.figure import NARROW, Column, Row, Table
from autopipe.tuned import pick
from autopipe.tuned.schema import Artifact, Profile

MOST = 6
"""Profiles that stand beside each other."""


def document(found: Sequence[tuple[Artifact, Profile]]) -> dict[str, Any]:
    """Return the comparison as JSON: the rows of its table, and each profile's report."""
    _require(found)
    rows = [dict(row) for row in _table(found).rows]
    reports = [story.document(artifact, profile) for artifact, profile in found]
    return {"schema_version": story.SCHEMA_VERSION, "rows": rows, "reports": reports}


def html_page(found: Sequence[tuple[Artifact, Profile]]) -> str:
    """Return the comparison as HTML.

    Raises:
        ArtifactError: there is nothing to compare, or more than stands beside each other.
    """
    _require(found)
    title = _sentence(found)
    names = list(dict.fromkeys(story.named(artifact) for artifact, _ in found))
    head = f"<p>{html.escape(', '.join(names))}</p><h1>{html.escape(title)}</h1>"
    body = (
        '<section aria-labelledby="s-all"><h2 id="s-all">What differs?</h2>'
        f"{page.table(_table(found), 'What differs', 'wide')}</section>"
        '<section aria-labelledby="s-ladders"><h2 id="s-ladders">How fast could each part be?</h2>'
        f'<p>All on one axis.</p><div class="pair">{_ladders(found)}</div></section>'
    )
    return page.page("autopipe: comparison", head, body, story.foot())


def _require(found: Sequence[tuple[Artifact, Profile]]) -> None:
    if not 2 <= len(found) <= MOST:
        raise ArtifactError(
            f"A comparison takes 2 to {MOST} profiles, but these artefacts hold {len(found)}.",
            hint="Name two artefacts: autopipe report --compare a/autopipe.json b/autopipe.json",
        )


def _sentence(found: Sequence[tuple[Artifact, Profile]]) -> str:
    first, last = (found[at][1].measurement.images_per_second for at in (0, -1))
    ratio = last.value / first.value if first.value > 0 else 0.0
    apart = first.has_interval and last.has_interval and (last.low > first.high or last.high < first.low)
    said = f"{wording.rate(first.value)} images/s and {wording.rate(last.value)}"
    if not apart:
        return f"{said}: no difference that their intervals would tell."
    which = wording.times(ratio) if ratio >= 1 else wording.times(1 / ratio)
    return f"{said}: the last is {which} {'faster' if ratio >= 1 else 'slower'} than the first."


def _ladders(found: Sequence[tuple[Artifact, Profile]]) -> str:
    lines = [ladder.rungs(profile) for _, profile in found]
    top = max(ladder.highest(each) for each in lines)
    return "".join(
        f'<div class="always"><h3>{html.escape(_title(profile))}</h3>'
        f"<figure>{ladder.draw(each, NARROW, top).render(css='narrow')}</figure></div>"
        for each, (_, profile) in zip(lines, found, strict=True)
    )


def _title(profile: Profile) -> str:
    return f"{headline.machine(profile)}, {profile.measured_at:%Y-%m-%d %H:%M}"


def _table(found: Sequence[tuple[Artifact, Profile]]) -> Table:
    columns = [_column(number, profile) for number, (_, profile) in enumerate(found)]
    told = [dict(_told(profile)) for _, profile in found]
    names = dict.fromkeys(name for each in told for name in each)
    rows: list[Row] = [{"name": name, "values": [each.get(name, "") for each in told]} for name in names]
    return Table(columns=(Column("", lambda row: row["name"], numeric=False), *columns), rows=rows)


def _column(number: int, profile: Profile) -> Column:
    return Column(_title(profile), lambda row: row["values"][number], numeric=False)


def _told(profile: Profile) -> list[tuple[str, str]]:
    """Return what is worth comparing, as text."""
    gain, share = headline.gain(profile), headline.share(profile)
    found = [
        ("images/s", wording.rates(profile.measurement.images_per_second)),
        ("the winner", pick.config_of(profile).short()),
        ("gain", "" if gain is None else f"{wording.times(gain[0])} {gain[1]}"),
        ("of the model alone", "" if share is None else f"{min(1.0, share):.0%}"),
    ]
    alone: Estimate | None = None if profile.ceiling is None else profile.ceiling.model_images_per_second
    found.append(("the model alone", "" if alone is None else wording.rates(alone)))
    found += [(each.name, wording.rates(each.images_per_second)) for each in profile.baselines]
    found += [(f"an image: {each.name}", wording.milliseconds(each.whole)) for each in waterfall.steps(profile)]
    hardware = profile.hardware
    versions = ", ".join(f"{name} {version}" for name, version in hardware.packages.items())
    found += [("machine", headline.machine(profile)), ("data on", hardware.storage), ("versions", versions)]
    return [*found, ("trust", profile.findings.trust)]
