"""A profile as a report, as one HTML page and as one JSON document."""

from __future__ import annotations

import html
import json
from typing import Any

from autopipe._version import __version__
from autopipe.artifact import pick, reference
from autopipe.artifact.schema import Artifact, Live, Profile
from autopipe.hardware.machine import size_text
from autopipe.reports import ladder, page, plots, verdict, wording
from autopipe.reports.page import Column, Row, Section, Table, words_column
from autopipe.values import span_text

SCHEMA_VERSION = 1


def sections(profile: Profile, live: Live | None = None) -> list[Section]:
    """Return the sections of a profile, and of what a training has learnt later, that have content, in their order."""
    result = profile.result
    parts = (ladder.ladder, ladder.rows, ladder.costs, plots.confirmation, plots.settings, plots.history)
    found = [*(part(result) for part in parts), plots.payback(result, profile.workload.samples), _trained(live)]
    return [each for each in (*found, _circumstances(profile)) if each is not None]


def document(artifact: Artifact, profile: Profile) -> dict[str, Any]:
    """Return the report as JSON: the verdict, the action, and the raw figures of each section under its key."""
    result = profile.result
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": named(artifact),
        "verdict": verdict.headline(result),
        "action": verdict.action(result),
        "measured_at": profile.measured_at.isoformat(),
        "config": profile.winner.config,
        "images_per_second": profile.winner.images_per_second.model_dump(),
        "trust": verdict.trust_text(result),
        "epoch": verdict.epoch(result),
        "notes": verdict.notes(result),
        **{
            each.key: {"title": each.title, "rows": [dict(row) for row in each.table.rows]}
            for each in sections(profile, pick.live_of(artifact, profile.hardware))
        },
    }


def json_text(found: dict[str, Any]) -> str:
    """Return a document as the text of `report.json`."""
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


def html_page(artifact: Artifact, profile: Profile, *, use: str = "") -> str:
    """Return the report as HTML; `use` is the line that trains with the winner, if it is known."""
    result = profile.result
    said = f"{named(artifact)}, {profile.measured_at:%d %B %Y %H:%M} UTC, {wording.machine(profile.hardware)}"
    head = f"<p>{page.words(said)}</p><h1>{page.words(verdict.headline(result))}</h1>"
    line = f"<p><code>{html.escape(use)}</code></p>" if use else ""
    body = (
        f'{page.facts(_facts(profile))}<div class="do"><p><b>{page.words(verdict.action(result))}</b></p>'
        f"<p>The winner: <code>{html.escape(wording.config(profile.winner.config))}</code></p>{line}</div>"
    )
    notes = [*(f"An epoch takes {told}" for told in [verdict.epoch(result)] if told), *verdict.notes(result)]
    body += page.listed(notes) if notes else ""
    body += "".join(map(page.section, sections(profile, pick.live_of(artifact, profile.hardware))))
    foot = f"<p>Written by autopipe {html.escape(__version__)}. The raw figures are beside it, as JSON.</p>"
    return page.page(f"autopipe: {named(artifact)}", head, body, foot)


def named(artifact: Artifact) -> str:
    """Return the name of the workload."""
    named = artifact.workload
    return "a workload that no file holds" if named is None else reference.short_text(named)


def piece(profile: Profile) -> str:
    """Return the verdict and the ladder as a piece of HTML with its own style, for a notebook."""
    part = ladder.ladder(profile.result)
    said = html.escape(verdict.headline(profile.result))
    table = page.fold("The same as a table", page.table(part.table, part.title))
    return page.framed(f"<p><b>{said}</b></p>{page.figure(part)}{table}")


def _facts(profile: Profile) -> list[tuple[str, str, str]]:
    result, best = profile.result, profile.winner
    rate, rival = best.images_per_second, verdict.compared_with(result)
    items = [("images/s, the winner", wording.rate(rate.value), span_text(rate.low, rate.high))]
    if rival is not None and (times := result.times_faster(rival)) is not None:
        which = "your own pipeline" if verdict.is_own(rival) else "the fastest baseline"
        said = ", ".join(filter(None, (which, verdict.doubt(result, rival))))
        items.append((f"times {rival.name}", wording.times(times), said))
    if best.share_of_model is not None:
        items.append(("of the model alone", f"{best.share_of_model:.0%}", "no loader can exceed 100 %"))
    good, why = verdict.trust(result)
    return [*items, ("trust in these figures", "good" if good else "low", why)]


def _trained(live: Live | None) -> Section | None:
    if live is None:
        return None
    columns = (
        Column("epoch", lambda row: str(row["epoch"] + 1)),
        words_column("tried", "after"),
        words_column("in place of", "before"),
        Column("times its rate", lambda row: "" if row["ratio"] is None else wording.times(row["ratio"])),
        Column("", lambda row: row["failure"] or ("kept" if row["kept"] else "taken back"), numeric=False),
    )
    return Section(
        key="live",
        title="What did a training change?",
        text=f'A training with `tune="live"` ended on {live.trained_at:%d %B %Y %H:%M} UTC with '
        f"`{wording.config(live.config)}`, at {wording.rates(live.images_per_second)} images/s. It waited for data "
        f"{live.data_wait_share:.0%} of the time. No confirmation run has proved this.",
        table=Table(columns, [each.model_dump(mode="json") for each in live.changes]),
    )


def _circumstances(profile: Profile) -> Section:
    hardware, workload, result = profile.hardware, profile.workload, profile.result
    budget = "none" if result.budget_seconds is None else wording.seconds(result.budget_seconds)
    found = [
        ("command", result.command),
        ("seed", str(result.seed)),
        ("machine", wording.machine(hardware)),
        ("memory", size_text(hardware.memory_bytes)),
        ("data on", hardware.storage),
        ("system", f"{hardware.system}, Python {hardware.python}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in hardware.packages.items())),
        ("samples", f"{workload.samples:,} of {size_text(round(workload.mean_bytes))} on average"),
        ("batch size", str(workload.batch_size)),
        ("files were", "in memory" if profile.winner.page_cache == "warm" else "on disk"),
        ("ops", ", ".join(op.text for op in workload.op_list)),
        ("search space", result.space),
        ("budget", budget),
        ("epochs charged", "" if result.epochs is None else str(result.epochs)),
        ("data digest", result.data),
        ("digests", f"ops {workload.ops}, model {workload.model or 'none'}"),
    ]
    left_out = {"epochs charged", "data digest"}
    rows: list[Row] = [{"name": name, "value": said} for name, said in found if said or name not in left_out]
    return Section(
        key="circumstances",
        title="On which machine, with which data?",
        text="The figures hold for these; `autopipe check` says whether they still do.",
        table=Table((words_column("", "name"), words_column("", "value")), rows),
    )
