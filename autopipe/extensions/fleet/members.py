"""A fleet: the tuned workloads of several machines, from the artefacts of a folder or the studies of a storage.

It is shown as a table in the terminal, and as plain values.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

import pydantic
import rich.table
from rich.console import Group, RenderableType
from rich.text import Text

from autopipe.artifact import artifact as files
from autopipe.artifact import drift, reference
from autopipe.artifact.pick import readable
from autopipe.artifact.schema import Artifact, Profile
from autopipe.errors import ArtifactError, ConfigError
from autopipe.measure import fingerprint
from autopipe.measure.fingerprint import Hardware, MatchLevel, compare_hardware
from autopipe.reports import page, terminal, wording
from autopipe.reports.page import Column, Row, Table
from autopipe.search import record
from autopipe.values import Value

_FILE = re.compile(r"sqlite:///(?!file:)([^?]+)")  # a storage in a file, in whose name SQLAlchemy reads `%20`
_UNKNOWN = "-"
_WIDE = 110  # columns of a terminal: with fewer, a machine's name takes six lines of a table


class Member(Value):
    """A workload on a machine, as `--json` shows it."""

    workload: str  # its name, or its study's
    machine: str | None = None  # the model of its processor; None if it was not recorded, as of the next two
    cores: int | None = None
    gpus: list[str] | None = None
    winner: str | None = None  # the fastest configuration; None without a measurement
    images_per_second: float | None = None  # of the winner
    gain: float | None = None  # times the best of its baselines; None without a comparison
    best_on_similar: float | None = None  # images/s of the same workload and data on machines like it, at most
    age_days: int | None = None  # None without a measurement
    state: Literal["fits", "stale", "elsewhere"]  # here and now; "elsewhere" is another machine's
    trials: int | None = None  # of its study; None for an artefact
    place: str  # the artefact's path, or the study's name


_Found: TypeAlias = tuple[str, Hardware | None, Member]
"""A member with its machine, and the workload and data by which it is compared."""


def of_folder(folder: Path, now: datetime.datetime) -> list[Member]:
    """Return the members in the artefacts of a folder and its subfolders, or of one file."""
    if not folder.exists():
        raise ConfigError(
            f"There is no folder or file `{folder}`.",
            hint="Name a folder with artefacts, one artefact, or the URL of a storage, such as sqlite:///tuned/study.db.",
        )
    found: list[_Found] = []
    here = fingerprint.detect()
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*.json")):
        try:
            artifact = files.read(path)
        except ArtifactError:
            continue  # a foreign file, or a cut one: `autopipe show` says which
        for profile in artifact.profiles:
            of = profile.workload
            alike = f"{of.ops}/{of.batch_size}/{of.model}/{of.samples}/{of.mean_bytes:.0f}"
            found.append((alike, profile.hardware, _member(artifact, profile, path, here, now)))
    if not found:
        raise ConfigError(f"There is no artefact in `{folder}`, or below it.", hint="`autopipe tune` writes them.")
    return _compared(found)


def of_storage(url: str, now: datetime.datetime) -> list[Member]:
    """Return the members in the studies of a storage."""
    here = fingerprint.detect()
    found = []
    for kept in _studies(url):
        data = re.sub(r" times=\S+", "", kept.data)  # copies on several machines differ in the files' times
        try:
            machine = Hardware.model_validate_json(kept.hardware) if kept.hardware else None
        except pydantic.ValidationError:
            machine = None
        found.append((f"{kept.workload}/{data}", machine, _studied(kept, machine, here, now)))
    return _compared(found)


def _studies(url: str) -> list[record.Kept]:
    found = _FILE.match(url)
    if found and not Path(unquote(found[1])).exists():  # opening it would make it
        raise ConfigError(
            f"There is no study in `{url}`: no such file.",
            hint="`autopipe tune` keeps its study beside the artefact, as in sqlite:///tuned/study.db.",
        )
    return sorted(record.every(url), key=lambda each: each.name)


def _member(artifact: Artifact, profile: Profile, path: Path, here: Hardware, now: datetime.datetime) -> Member:
    winner = next(readable([profile.winner.config]), None)
    rate = profile.winner.images_per_second.value
    measured = [each.images_per_second for each in profile.result.baselines if each.images_per_second is not None]
    rivals = [each.value for each in measured if each.value > 0]
    return Member(
        workload=path.stem if artifact.workload is None else reference.text(artifact.workload),
        **_described(profile.hardware),
        winner=None if winner is None else winner.short(),
        images_per_second=rate,
        gain=rate / max(rivals) if rivals else None,
        age_days=(now - profile.measured_at).days,
        state=_state(profile, here, now),
        place=str(path),
    )


def _described(machine: Hardware | None) -> dict[str, Any]:
    if machine is None:
        return {}
    return {"machine": machine.cpu_model, "cores": machine.cores, "gpus": [gpu.name for gpu in machine.gpus]}


def _studied(kept: record.Kept, machine: Hardware | None, here: Hardware, now: datetime.datetime) -> Member:
    is_here = machine is not None and compare_hardware(machine, here).level is MatchLevel.SAME
    age = None if kept.last_at is None else (now - kept.last_at).days
    return Member(
        workload=kept.workload,
        **_described(machine),
        winner=None if kept.best is None else kept.best[0].short(),
        images_per_second=None if kept.best is None else kept.best[1],
        age_days=age,
        state="stale" if age is not None and age > drift.MAX_AGE_DAYS else "fits" if is_here else "elsewhere",
        trials=kept.trials,
        place=kept.name,
    )


def _state(profile: Profile, here: Hardware, now: datetime.datetime) -> Literal["fits", "stale", "elsewhere"]:
    if (now - profile.measured_at).days > drift.MAX_AGE_DAYS:
        return "stale"
    if compare_hardware(profile.hardware, here).level is not MatchLevel.SAME:
        return "elsewhere"
    return "fits" if drift.judge(profile, here, now).verdict is drift.Verdict.FITS else "stale"


def _compared(found: Sequence[_Found]) -> list[Member]:
    """Add to each member the results of the same workload and data on similar machines."""

    def best(key: str, machine: Hardware | None, member: Member) -> float | None:
        rates = [
            other.images_per_second
            for other_key, there, other in found
            if other_key == key and other is not member and other.images_per_second is not None
            if machine is not None and there is not None
            if compare_hardware(there, machine).level is not MatchLevel.OTHER
        ]
        return max(rates, default=None)

    return [each[-1].model_copy(update={"best_on_similar": best(*each)}) for each in found]


# -------------------- table


def render(members: Sequence[Member], *, width: int) -> RenderableType:
    """Return a table; lines for each member if the terminal has too few columns for it."""
    table = Table(_COLUMNS, [each.model_dump() for each in members])
    titles = [column.title for column in table.columns]
    if width < _WIDE:
        blocks: list[RenderableType] = []
        for cells in table.cells():
            blocks += [terminal.labelled(zip(titles, cells, strict=True)), Text()]
        return Group(*blocks)
    shown = rich.table.Table(box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        shown.add_column(column.title, justify="right" if column.numeric else "left", overflow="fold")
    for cells in table.cells():
        shown.add_row(*cells)
    return shown


def _machine(row: Row) -> str:
    if row["machine"] is None:
        return _UNKNOWN
    gpus = f", {len(row['gpus'])} x {row['gpus'][0]}" if row["gpus"] else ""
    return f"{row['cores']} x {row['machine']}{gpus}"


def _known(key: str, show: Callable[[Any], str]) -> Callable[[Row], str]:
    return lambda row: _UNKNOWN if row[key] is None else show(row[key])


_COLUMNS = (
    page.words_column("workload", "workload"),
    Column("machine", _machine, numeric=False),
    Column("images/s", _known("images_per_second", wording.rate)),
    Column("gain", _known("gain", "{:.2f}x".format)),
    Column("similar machines", _known("best_on_similar", wording.rate)),
    Column("age", _known("age_days", "{:d} d".format)),
    page.words_column("here", "state"),
    Column("winner", _known("winner", str), numeric=False),
)
