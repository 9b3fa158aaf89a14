from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autopipe.hardware.neighbours import Neighbours, busy_seconds, own_seconds


class Machine:
    """Core-seconds look by look, each of which takes its time."""

    def __init__(
        self, busy: list[float], own: list[float], look_seconds: float = 0.0, spare_cores: float = 0.0
    ) -> None:
        self.now = 0.0
        self.busy = busy
        self._own = own
        self._look_seconds = look_seconds
        self._spare_cores = spare_cores

    def watched(self) -> Neighbours:
        return Neighbours(
            clock=lambda: self.now,
            busy=lambda: self.busy.pop(0),
            own=self._looked,
            spare=lambda: self._spare_cores,
        )

    def _looked(self) -> float:
        self.now += self._look_seconds
        return self._own.pop(0)


def test_what_others_did_is_the_machines_work_less_ones_own() -> None:
    machine = Machine(busy=[100.0, 130.0, 131.0], own=[5.0, 20.0, 25.0])
    neighbours = machine.watched()
    machine.now += 10.0
    assert neighbours.cores() == pytest.approx(1.5)
    machine.now += 10.0
    assert neighbours.cores() == 0.0  # clocks differ a little


def test_looking_takes_a_small_part_of_the_time_and_what_was_seen_last_stands_meanwhile() -> None:
    machine = Machine(busy=[0.0, 20.0, 30.0], own=[0.0, 0.0, 0.0], look_seconds=0.05)
    neighbours = machine.watched()
    machine.now += 19.0
    assert (neighbours.cores(), len(machine.busy)) == (0.0, 2)
    machine.now += 1.0
    assert neighbours.cores() == pytest.approx(20 / 20.05)
    machine.now += 19.0
    assert neighbours.cores() == pytest.approx(20 / 20.05)
    assert len(machine.busy) == 1


@pytest.mark.parametrize(("others", "taken"), [(20.0, 0.0), (62.0, 0.0), (63.5, 1.5)])
def test_others_on_cores_that_a_quota_leaves_idle_take_nothing(others: float, taken: float) -> None:
    machine = Machine(busy=[0.0, 10 * (others + 2)], own=[0.0, 20.0], spare_cores=62.0)  # two of 64 cores
    neighbours = machine.watched()
    machine.now += 10.0
    assert neighbours.cores() == pytest.approx(taken)


def test_no_time_is_no_work() -> None:
    assert Neighbours(clock=lambda: 1.0, busy=lambda: 2.0, own=lambda: 3.0).cores() == 0.0


STAT = """cpu  900 0 0 100 0 0 0 0 0 0
cpu0 100 10 20 5000 3 4 5 6 50 7
cpu2 700 0 0 100 0 0 0 0 0 0
intr 123 0 0
"""


@pytest.mark.parametrize(("cores", "seconds"), [({0}, 1.45), ({2}, 7.0), ({0, 2}, 8.45)])
def test_only_the_cores_that_may_be_used_are_looked_at(
    cores: set[int], seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stat").write_text(STAT)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores)
    monkeypatch.setattr("autopipe.hardware.neighbours._TICKS_PER_SECOND", 100)
    assert busy_seconds(tmp_path) == pytest.approx(seconds)


def test_processes_that_one_started_are_ones_own() -> None:
    work = "import time; t = time.process_time()\nwhile time.process_time() < t + 0.2: pass\nprint(flush=True); input()"
    before = own_seconds()
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = own_seconds()
        child.communicate(b"\n")
    assert during - before >= 0.15  # the kernel counts in hundredths
    assert own_seconds() > during - 0.02  # what the child took is no less this one's since it ended
    assert busy_seconds() > 0.0
