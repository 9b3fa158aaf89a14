"""A fleet: the tuned workloads of several machines, from the artefacts of a folder or the studies of a storage."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import pydantic

from autopipe.artifact import artifact as files
from autopipe.artifact import check, reference
from autopipe.artifact.pick import readable
from autopipe.artifact.schema import Artifact, Profile
from autopipe.errors import ArtifactError, ConfigError
from autopipe.measure import fingerprint
from autopipe.measure.fingerprint import Hardware, MatchLevel, compare_hardware
from autopipe.search import record
from autopipe.search.record import Kept
from autopipe.search.storage import path_of_journal

_FILE = re.compile(r"sqlite:///(?!file:)([^?]+)")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A workload on a machine."""

    workload: str  # its name, or its study's
    machine: Hardware | None  # None if it was not recorded
    winner: str | None  # the fastest configuration; None without a measurement
    images_per_second: float | None  # of the winner
    gain: float | None  # times the best of its baselines; None without a comparison
    measured_at: datetime.datetime | None  # with time zone; None without a measurement
    state: Literal["fits", "stale", "elsewhere"]  # here and now; "elsewhere" is another machine's
    best_on_similar: float | None = None  # images/s of the same workload and data on machines like it, at most
    trials: int | None = None  # of its study; None for an artefact
    place: str  # the artefact's path, or the study's name


def of_folder(folder: Path, now: datetime.datetime) -> list[Member]:
    """Return the members in the artefacts of a folder and its subfolders, or of one file. Raise ConfigError if there is
    no such folder, or no artefact in it.
    """
    if not folder.exists():
        raise ConfigError(
            f"There is no folder or file `{folder}`.",
            hint="Name a folder with artefacts, one artefact, or the URL of a storage, such as sqlite:///tuned/study.db.",
        )
    found: list[tuple[str, Member]] = []
    here = fingerprint.detect()
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*.json")):
        try:
            artifact = files.read(path)
        except ArtifactError:
            continue  # a foreign file, or a cut one: `autopipe show` says which
        for profile in artifact.profiles:
            of = profile.workload
            alike = f"{of.ops}/{of.batch_size}/{of.model}/{of.samples}/{of.mean_bytes:.0f}"
            found.append((alike, _member(artifact, profile, path, here, now)))
    if not found:
        raise ConfigError(f"There is no artefact in `{folder}`, or below it.", hint="`autopipe tune` writes them.")
    return _compared(found)


def of_storage(url: str, now: datetime.datetime) -> list[Member]:
    """Return the members in the studies of a storage. Raise ConfigError if the storage is a file that does not exist,
    and TrialError if it cannot be used.
    """
    here = fingerprint.detect()
    return _compared([(f"{each.workload}/{_content(each.data)}", _studied(each, here, now)) for each in _studies(url)])


def _content(data: str) -> str:
    """Return a digest of data without the files' times, in which copies on several machines differ."""
    return re.sub(r" times=\S+", "", data)


def old(url: str, older_than_days: float, now: datetime.datetime) -> list[Kept]:
    """Return the studies whose last trial is older than that; one without a trial may just be beginning. Raise
    TrialError if the storage cannot be used.
    """
    try:
        oldest = now - datetime.timedelta(days=older_than_days)
    except OverflowError:  # before the calendar begins
        return []
    times = [(each, each.last_at or each.began_at) for each in _studies(url)]
    return [each for each, time in times if time is None or time < oldest]


def _studies(url: str) -> list[Kept]:
    kept_in = _file(url)
    if kept_in is not None and not kept_in.exists():  # opening it would make it
        raise ConfigError(
            f"There is no study in `{url}`: no such file.",
            hint="`autopipe tune` keeps its study beside the artefact, as in sqlite:///tuned/study.db.",
        )
    return sorted(record.every(url), key=lambda each: each.name)


def _file(url: str) -> Path | None:
    """Return the file that holds a storage, None for another kind; SQLAlchemy reads `%20` in one."""
    if url.startswith("journal://"):
        return Path(path_of_journal(url))
    found = _FILE.match(url)
    return None if found is None else Path(unquote(found[1]))


def _member(artifact: Artifact, profile: Profile, path: Path, here: Hardware, now: datetime.datetime) -> Member:
    winner = next(readable([profile.winner.config]), None)
    rate = profile.winner.images_per_second.value
    rates = [each.images_per_second.value for each in profile.result.baselines if each.images_per_second is not None]
    rivals = [each for each in rates if each > 0]
    return Member(
        workload=path.stem if artifact.workload is None else reference.text(artifact.workload),
        machine=profile.hardware,
        winner=None if winner is None else winner.short(),
        images_per_second=rate,
        gain=rate / max(rivals) if rivals else None,
        measured_at=profile.measured_at,
        state=_state(profile, here, now),
        place=str(path),
    )


def _studied(kept: Kept, here: Hardware, now: datetime.datetime) -> Member:
    try:
        machine = Hardware.model_validate_json(kept.hardware) if kept.hardware else None
    except pydantic.ValidationError:
        machine = None
    is_here = machine is not None and compare_hardware(machine, here).level is MatchLevel.SAME
    is_old = kept.last_at is not None and (now - kept.last_at).days > check.MAX_AGE_DAYS
    return Member(
        workload=kept.workload,
        machine=machine,
        winner=None if kept.best is None else kept.best[0].short(),
        images_per_second=None if kept.best is None else kept.best[1],
        gain=None,
        measured_at=kept.last_at,
        state="stale" if is_old else "fits" if is_here else "elsewhere",
        trials=kept.trials,
        place=kept.name,
    )


def _state(profile: Profile, here: Hardware, now: datetime.datetime) -> Literal["fits", "stale", "elsewhere"]:
    if (now - profile.measured_at).days > check.MAX_AGE_DAYS:
        return "stale"
    if compare_hardware(profile.hardware, here).level is not MatchLevel.SAME:
        return "elsewhere"
    return "fits" if check.judge(profile, here, now).verdict is check.Verdict.FITS else "stale"


def _compared(found: Sequence[tuple[str, Member]]) -> list[Member]:
    """Add to each member the results of the same workload and data on similar machines."""

    def best(key: str, member: Member) -> float | None:
        rates = [
            other.images_per_second
            for other_key, other in found
            if other_key == key and other is not member and other.images_per_second is not None
            if member.machine is not None and other.machine is not None
            if compare_hardware(other.machine, member.machine).level is not MatchLevel.OTHER
        ]
        return max(rates, default=None)

    return [dataclasses.replace(member, best_on_similar=best(key, member)) for key, member in found]
