"""A profile as a report: the sections in their order, as one HTML page and as one JSON document."""

from __future__ import annotations

import html
import json
from typing import Any

from autopipe._version import __version__
from autopipe.hardware.memory import size_text
from autopipe.reports import forest, headline, history, ladder, page, payoff, step_lines, waterfall, wording
from autopipe.reports.figure import Column, Row, Section, Table
from autopipe.tuned import pick, reference
from autopipe.tuned.schema import Artifact, Profile

SCHEMA_VERSION = 1


def sections(profile: Profile) -> list[Section]:
    """Return the sections of a profile for which there is something to show, in their order."""
    findings = profile.findings
    found = [
        ladder.section(profile),
        waterfall.section(profile),
        forest.confirmation(findings),
        forest.settings(findings),
        history.section(findings),
        payoff.section(findings, profile.workload.samples),
        step_lines.section(findings),
        _circumstances(profile),
    ]
    return [each for each in found if each is not None]


def document(artifact: Artifact, profile: Profile) -> dict[str, Any]:
    """Return the report as JSON: the verdict, the action, and the raw figures of each section under its key."""
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": named(artifact),
        "verdict": headline.sentence(profile),
        "action": headline.action(profile),
        "measured_at": profile.measured_at.isoformat(),
        "config": profile.config,
        "images_per_second": profile.measurement.images_per_second.model_dump(),
        "trust": profile.findings.trust,
        "limit": profile.findings.limit,
        "notes": list(profile.findings.notes),
        **{
            each.key: {"title": each.title, "rows": [dict(row) for row in each.table.rows]}
            for each in sections(profile)
        },
    }


def json_text(found: dict[str, Any]) -> str:
    """Return a document as `report.json` holds it."""
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


def html_page(artifact: Artifact, profile: Profile, *, use: str = "") -> str:
    """Return the report as HTML; `use` is the line that trains with the winner, where it is known."""
    body = page.facts(_facts(profile)) + _action(profile, use) + _notes(profile)
    body += "".join(page.section(each) for each in sections(profile))
    return page.page(f"autopipe: {named(artifact)}", _head(artifact, profile), body, foot())


def named(artifact: Artifact) -> str:
    """Return what the workload is called."""
    named = artifact.workload
    return "a workload that no file holds" if named is None else reference.short_text(named)


def foot() -> str:
    """Return what ends every page."""
    return f"<p>Written by autopipe {html.escape(__version__)}. The raw figures are beside it, as JSON.</p>"


def piece(profile: Profile) -> str:
    """Return the verdict and the ladder as a piece of HTML with its own style, for a notebook."""
    part = ladder.section(profile)
    return (
        f'<style>{page.style()}</style><div class="ap" style="padding:0.5rem 0.75rem;max-width:52rem">'
        f"<p><b>{html.escape(headline.sentence(profile))}</b></p>{page.figure(part)}"
        f"{page.fold('The same as a table', page.table(part.table, part.title))}</div>"
    )


def note(profile: Profile) -> str:
    """Return the verdict as Markdown."""
    config = pick.config_of(profile).short()
    return f"**{headline.sentence(profile)}**\n\n{headline.action(profile)}\n\nThe winner: `{config}`\n"


def _head(artifact: Artifact, profile: Profile) -> str:
    said = f"{named(artifact)}, {profile.measured_at:%d %B %Y %H:%M} UTC, {headline.machine(profile)}"
    return f"<p>{page.words(said)}</p><h1>{page.words(headline.sentence(profile))}</h1>"


def _facts(profile: Profile) -> list[tuple[str, str, str]]:
    rate, gain = profile.measurement.images_per_second, headline.gain(profile)
    items = [("images/s, the winner", wording.rate(rate.value), wording.span(rate.low, rate.high))]
    if gain is not None:
        own = headline.own_baseline(profile) is not None
        which = "the pipeline to be beaten" if own else "the baseline that came nearest"
        which += "" if headline.is_proved(profile) else ", not proved"
        items.append((f"times {gain[1]}", wording.times(gain[0]), which))
    share = headline.share(profile)
    if share is not None:
        items.append(("of the model alone", f"{min(1.0, share):.0%}", "no loader can bring more than all of it"))
    good, _, why = profile.findings.trust.partition(": ")
    items.append(("trust in these figures", good, why))
    return items


def _action(profile: Profile, use: str) -> str:
    config = pick.config_of(profile).short()
    line = f"<p><code>{html.escape(use)}</code></p>" if use else ""
    return (
        f'<div class="do"><p><b>{page.words(headline.action(profile))}</b></p>'
        f"<p>The winner: <code>{html.escape(config)}</code></p>{line}</div>"
    )


def _notes(profile: Profile) -> str:
    limit = profile.findings.limit or ""
    kept = [each for each in (limit[:1].upper() + limit[1:], *profile.findings.notes) if each]
    return page.listed(kept) if kept else ""


def _circumstances(profile: Profile) -> Section:
    """Return what the figures depend on, and the command that repeats them."""
    hardware, workload = profile.hardware, profile.workload
    asked = profile.findings.asked
    found = [] if asked is None else [("command", asked.command), ("seed", str(asked.seed))]
    found += [
        ("machine", headline.machine(profile)),
        ("memory", size_text(hardware.memory_bytes)),
        ("data on", hardware.storage),
        ("system", f"{hardware.system}, Python {hardware.python}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in hardware.packages.items())),
        ("samples", f"{workload.samples:,} of {size_text(round(workload.mean_bytes))} on average"),
        ("batch size", str(workload.batch_size)),
        ("files were", "in memory" if profile.measurement.page_cache == "warm" else "on disk"),
        ("ops", ", ".join(op.text for op in workload.op_list)),
    ]
    if asked is not None:
        budget = "none" if asked.budget_seconds is None else wording.seconds(asked.budget_seconds)
        found += [("search space", asked.space), ("budget", budget)]
        found += [("epochs charged", str(asked.epochs))] if asked.epochs is not None else []
        found += [("data digest", asked.data)] if asked.data else []
    found.append(("digests", f"ops {workload.ops}, model {workload.model or 'none'}"))
    rows: list[Row] = [{"name": name, "value": value} for name, value in found]
    columns = (Column("", lambda row: row["name"], numeric=False), Column("", lambda row: row["value"], numeric=False))
    return Section(
        key="circumstances",
        title="On which machine, with which data?",
        text="Figures hold for these; `autopipe check` says whether they still do.",
        table=Table(columns=columns, rows=rows),
    )
