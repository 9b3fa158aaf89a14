from __future__ import annotations

import subprocess
import sys

import pytest

from autopipe.hardware.neighbours import Neighbours, busy_seconds, own_seconds


def test_what_others_did_is_the_machines_work_less_ones_own() -> None:
    clock, busy, own = iter([0.0, 10.0, 20.0]), iter([100.0, 130.0, 131.0]), iter([5.0, 20.0, 25.0])
    neighbours = Neighbours(clock=lambda: next(clock), busy=lambda: next(busy), own=lambda: next(own))
    assert neighbours.cores() == pytest.approx(1.5)
    assert neighbours.cores() == 0.0  # clocks differ a little


def test_no_time_is_no_work() -> None:
    assert Neighbours(clock=lambda: 1.0, busy=lambda: 2.0, own=lambda: 3.0).cores() == 0.0


def test_processes_that_one_started_are_ones_own() -> None:
    work = "import time; t = time.process_time()\nwhile time.process_time() < t + 0.2: pass\nprint(flush=True); input()"
    before = own_seconds()
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = own_seconds()
        child.communicate(b"\n")
    assert during - before >= 0.15  # the kernel counts in hundredths
    assert busy_seconds() > 0.0
