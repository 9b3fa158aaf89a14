"""What people read is what was meant: rich changes nothing in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TextIO

import pytest
from rich.table import Table

from autopipe.reports.terminal import Console, Count

FOREIGN = "it failed: 'photos[final]' [/data] [bold]a:dog:b"


def test_brackets_and_colons_are_printed_as_they_are_in_lines_and_in_cells(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(FOREIGN)
    table.add_row(FOREIGN)
    Console(stderr=True).print(FOREIGN, soft_wrap=True)
    Console().print(table, soft_wrap=True)
    said = capsys.readouterr()
    assert said.err == f"{FOREIGN}\n"
    assert said.out.count(FOREIGN) == 2


def nobody_reads() -> TextIO:
    reads, pipe = os.pipe()
    os.close(reads)
    return open(pipe, "w", buffering=1)


def full_disk() -> TextIO:
    return open("/dev/full", "w", buffering=1)


@pytest.mark.parametrize("refusing", [nobody_reads, full_disk])
def test_what_is_told_beside_a_result_is_lost_where_stderr_takes_no_more_and_the_work_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refusing: Callable[[], TextIO]
) -> None:
    with refusing() as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        told = Console(stderr=True)
        told.print("trial 1")
        told.print("trial 2")
        Console(stderr=True).print("wrote")
        sys.stderr.write("a line of somebody else's\n")
        Console().print("the result")
    assert capsys.readouterr().out == "the result\n"


def test_a_count_tells_its_rate_and_the_time_left_now_and_then_and_the_end() -> None:
    said: list[str] = []
    clock = iter([0.0, 1.0, 20.0, 31.0, 32.0, 33.0]).__next__
    count = Count(said.append, "samples", every_seconds=30, clock=clock)
    for done in (100, 500, 3_100, 3_500, 10_100):
        count(done, 10_100)
    assert said == ["3,100 of 10,100 samples, 100 samples/s, 70 s left", "10,100 of 10,100 samples"]
