"""A fleet as a table: in the terminal, as a page, and as plain values."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import rich.table
from rich.console import Group, RenderableType
from rich.text import Text

from autopipe.extensions.fleet.members import Member
from autopipe.reports import page, wording
from autopipe.reports.page import Column, Row, Table
from autopipe.reports.terminal import labelled

_UNKNOWN = "-"
_WIDE = 110  # columns of a terminal: with fewer, a machine's name takes six lines of a table


def document(members: Sequence[Member], now: datetime.datetime) -> list[dict[str, Any]]:
    """Return the members as plain values, for `--json`."""
    return [_row(member, now) for member in members]


def render(members: Sequence[Member], now: datetime.datetime, *, width: int) -> RenderableType:
    """Return a table; lines for each member if the terminal has too few columns for it."""
    if width < _WIDE:
        return Group(*_blocks(_table(members, now)))
    shown = rich.table.Table(box=None, pad_edge=False, header_style="bold")
    table = _table(members, now)
    for column in table.columns:
        shown.add_column(column.title, justify="right" if column.numeric else "left", overflow="fold")
    for cells in table.cells():
        shown.add_row(*cells)
    return shown


def _blocks(table: Table) -> Iterator[RenderableType]:
    for cells in table.cells():
        yield labelled((column.title, cell) for column, cell in zip(table.columns, cells, strict=True))
        yield Text()


def html_page(members: Sequence[Member], now: datetime.datetime) -> str:
    """Return the same as one self-contained page."""
    head = f"<h1>Fleet</h1><p>{page.words(_sentence(members))}</p>"
    foot = f"<p>{now:%Y-%m-%d %H:%M} UTC</p>"
    return page.page("Fleet", head, page.table(_table(members, now), "Fleet"), foot)


def _sentence(members: Sequence[Member]) -> str:
    workloads, machines = {each.workload for each in members}, {str(each.machine) for each in members}
    stale = sum(each.state == "stale" for each in members)
    tail = f"; {stale} stale: `autopipe retune` on these machines" if stale else ""
    return f"{wording.count(len(workloads), 'workload')} on {wording.count(len(machines), 'machine')}{tail}."


def _row(member: Member, now: datetime.datetime) -> dict[str, Any]:
    machine = member.machine
    return {
        "workload": member.workload,
        "machine": None if machine is None else machine.cpu_model,
        "cores": None if machine is None else machine.cores,
        "gpus": None if machine is None else [gpu.name for gpu in machine.gpus],
        "winner": member.winner,
        "images_per_second": member.images_per_second,
        "gain": member.gain,
        "best_on_similar": member.best_on_similar,
        "age_days": None if member.measured_at is None else (now - member.measured_at).days,
        "state": member.state,
        "trials": member.trials,
        "place": member.place,
    }


def _table(members: Sequence[Member], now: datetime.datetime) -> Table:
    return Table(_COLUMNS, [_row(member, now) for member in members])


def _machine(row: Row) -> str:
    if row["machine"] is None:
        return _UNKNOWN
    gpus = f", {len(row['gpus'])} x {row['gpus'][0]}" if row["gpus"] else ""
    return f"{row['cores']} x {row['machine']}{gpus}"


def _number(key: str, digits: str, unit: str = "") -> Any:
    return lambda row: _UNKNOWN if row[key] is None else f"{row[key]:{digits}}{unit}"


def _rate(key: str) -> Any:
    return lambda row: _UNKNOWN if row[key] is None else wording.rate(row[key])


_COLUMNS = (
    Column("workload", lambda row: row["workload"], numeric=False),
    Column("machine", _machine, numeric=False),
    Column("images/s", _rate("images_per_second")),
    Column("gain", _number("gain", ".2f", "x")),
    Column("similar machines", _rate("best_on_similar")),
    Column("age", _number("age_days", "d", " d")),
    Column("here", lambda row: row["state"], numeric=False),
    Column("winner", lambda row: row["winner"] or _UNKNOWN, numeric=False),
)
