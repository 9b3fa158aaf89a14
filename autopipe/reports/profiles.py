"""What an artefact holds, as text: of each profile its machine, winner, gain and age, and whether it fits here."""

from __future__ import annotations

import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autopipe.reports import headline, labelled, wording
from autopipe.tuned import check
from autopipe.tuned.pick import readable
from autopipe.tuned.schema import Artifact, Hardware, Profile


def render(
    artifact: Artifact, used: Profile | None, note: str | None, *, here: Hardware, now: datetime.datetime
) -> RenderableType:
    """Return what `autopipe show` prints; `used` is the profile that this machine gets, `note` what to know of that."""
    parts: list[RenderableType] = []
    for number, profile in enumerate(artifact.profiles, 1):
        mark = " (used on this machine)" if profile == used else ""
        parts.append(Text(f"profile {number} of {len(artifact.profiles)}{mark}", style="bold"))
        parts += [_profile(profile, here, now), Text()]
    if note is not None:
        parts.append(Text(f"note: {note}", style="yellow"))
    return Group(*parts)


def _profile(profile: Profile, here: Hardware, now: datetime.datetime) -> Table:
    table = labelled.table()
    table.add_row("machine", headline.machine(profile))
    winner = next(readable([profile.config]), None)
    unknown = "one that this installation does not know: a package with its loader is missing"
    table.add_row("winner", Text(unknown if winner is None else winner.short()))
    table.add_row("images/s", wording.rates(profile.measurement.images_per_second) + _of_the_model(profile))
    table.add_row("gain", _gain(profile))
    age = wording.count((now - profile.measured_at).days, "day")
    measured = f"{profile.measured_at:%Y-%m-%d %H:%M} UTC, study {profile.study or 'unnamed'}"
    table.add_row("age", f"{age}, measured {measured}")
    judged = check.judge(profile, here, now)
    fits = judged.verdict is check.Verdict.FITS
    said = "yes" if fits else f"no: {'; '.join(judged.reasons)}"
    table.add_row("fits here", Text(said, style="green" if fits else "yellow"))
    return table


def _of_the_model(profile: Profile) -> str:
    share = headline.share(profile)
    return "" if share is None else f", {min(1.0, share):.0%} of the model alone"


def _gain(profile: Profile) -> str:
    found = []
    for baseline in profile.baselines:
        times = headline.times_faster(profile, baseline)
        found.append(f"{baseline.name} failed" if times is None else f"{wording.times(times)} {baseline.name}")
    return ", ".join(found) or "compared with nothing"
