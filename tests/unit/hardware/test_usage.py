"""What this process, its children and its neighbours use."""

import builtins
import contextlib
import dataclasses
import itertools
import mmap
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from autopipe.hardware import machine as cpu
from autopipe.hardware.gpu import Nvml
from autopipe.hardware.processes import Binding, Neighbours, ProcessTree, Sample, Sampler, Usage, busy_seconds
from tests.fakes.nvml import FakeNvml
from tests.unit.hardware.conftest import Play

TICK = os.sysconf("SC_CLK_TCK")


def test_a_part_reaches_to_the_samples_around_it() -> None:
    whole = Usage(samples=tuple(Sample(seconds=second) for second in range(5)), spare_cores=2.5)
    parts = {(1.5, 2.5): [1, 2, 3], (1, 2): [1, 2], (-5, 99): [0, 1, 2, 3, 4], (3.5, 99): [3, 4], (99, 100): [4]}
    assert {ends: [each.seconds for each in whole.between(*ends).samples] for ends in parts} == parts
    assert whole.between(1, 2).spare_cores == 2.5
    assert Usage(samples=()).between(1, 2).samples == ()


def test_it_samples_until_it_is_stopped() -> None:
    ready, seconds = threading.Event(), itertools.count()

    def clock() -> float:
        """Return whole seconds, one a sample, and tell when there are enough."""
        if (now := next(seconds)) == 4:
            ready.set()
        return float(now)

    with Sampler(period_seconds=0.001, clock=clock) as sampler:
        assert ready.wait(60)
    samples = sampler.usage.samples
    assert [sample.seconds for sample in samples] == list(range(len(samples)))
    assert [len(samples) > 5, samples[-1].memory_bytes > 2**20, samples[-1].machine_cpu_seconds > 0] == [True] * 3
    assert "autopipe-sampler" not in {thread.name for thread in threading.enumerate()}


def test_the_shortest_run_has_a_first_and_a_last_sample_of_gpus_too_and_one_that_never_started_none() -> None:
    library = FakeNvml()
    with contextlib.closing(Nvml(library, {})) as nvml:
        with Sampler(period_seconds=60, nvml=nvml) as sampler:
            pass
        assert [[use.busy_percent for use in each.gpus] for each in sampler.usage.samples] == [[75, 25]] * 2
        assert library.initialised == 1  # what was lent stays open
    assert sampler.stop() == sampler.usage
    assert Sampler().stop().samples == ()


def test_samples_are_those_of_the_files(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = play(
        {
            "stat": "cpu  1 1 1 1 1 1 1 1 1 1\ncpu0 100 10 40 9999 9999 5 6 7 1 1\n",
            "50/stat": "50 (python) S 1 50 50 0 -1 0 0 0 0 0 30 20 4 6 20 0 1 0 7 0 0\n",
            "50/status": "RssAnon: 800 kB\nRssFile: 300 kB\nRssShmem: 100 kB\n",
        }
    )
    monkeypatch.setattr(cpu, "quota_cores", lambda root: 0.25)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    first = ProcessTree(50, proc).read()
    assert (first.cpu_seconds, first.machine_cpu_seconds) == pytest.approx((60 / TICK, 168 / TICK))
    assert (first.memory_bytes, first.processes) == (1200 * 1024, 1)
    assert Sampler().usage.spare_cores == 0.75


def test_cores_that_come_and_go_bring_and_take_no_work_of_others(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = iter([{0}, {0, 1}, {0, 1}])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: next(allowed))
    stat = "cpu0 {} 0 0 9 9 0 0 0 0 0\ncpu1 900000 0 0 9 9 0 0 0 0 0\n"
    proc = play({"stat": stat.format(0), "50/stat": "50 (python) S 1 50 50 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0\n"})
    tree = ProcessTree(50, proc)
    before = tree.read(clock=lambda: 0.0)
    (proc / "stat").write_text(stat.format(2 * TICK))
    after = tree.read(clock=lambda: 4.0)
    assert Usage(samples=(before, after)).others_cores == 0.5
    soon = dataclasses.replace(after, seconds=0.01)  # one count of the kernel would be a whole core
    assert Usage(samples=(before, soon)).others_cores is None


ROOT, WORKER, CHILD, STRANGER = 100, 101, 102, 200


@dataclasses.dataclass(frozen=True)
class Shown:
    """A process of /proc: the seconds that it and its children worked, its pages, and how many of those are shared."""

    parent: int
    own: int = 0
    children: int = 0
    pages: int = 0
    shared: int = 0
    group: int = 1
    started: int = 7
    name: str = "python"

    def write(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(
            f"{folder.name} ({self.name}) S {self.parent} {self.group} {self.group} 0 -1 0 9 9 9 9 "
            f"{self.own * TICK} 0 {self.children * TICK} 0 20 0 1 0 {self.started} 9\n"
        )
        resident, shared = (count * mmap.PAGESIZE // 1024 for count in (self.pages, self.shared))
        (folder / "status").write_text(
            f"Name:\t{self.name}\nVmRSS:\t{resident} kB\nRssAnon:\t{resident - shared} kB\n"
            f"RssFile:\t{shared - shared // 4} kB\nRssShmem:\t{shared // 4} kB\nThreads:\t1\n"
        )


Step: TypeAlias = tuple[dict[int, Shown | None], tuple[int, int, int]]
SHARES = Shown(ROOT, pages=50, shared=40)
STORIES: dict[str, list[Step]] = {
    "descendants count as they come": [
        ({}, (0, 1, 0)),
        ({WORKER: Shown(ROOT, name="my (odd) R 1 name) S"), CHILD: Shown(WORKER)}, (0, 3, 0)),
        # An orphan that was never seen belongs by its group.
        ({ROOT: Shown(1, group=ROOT), CHILD + 1: Shown(1, group=ROOT)}, (0, 4, 0)),
    ],
    "time of a child that its parent never waits for, as it ignores SIGCHLD": [
        ({WORKER: Shown(ROOT, own=10)}, (10, 2, 0)),
        ({WORKER: None}, (10, 1, 0)),
        ({}, (10, 1, 0)),
        ({ROOT: Shown(1, own=3)}, (13, 1, 0)),
    ],
    "time between a child and its parent, which has waited for it by now, counts once": [
        ({WORKER: Shown(ROOT, own=10)}, (10, 2, 0)),
        ({WORKER: None}, (10, 1, 0)),
        ({ROOT: Shown(1, children=10)}, (10, 1, 0)),
        ({}, (10, 1, 0)),
    ],
    "shared memory counts once": [({ROOT: Shown(1, pages=100, shared=60), WORKER: SHARES, CHILD: SHARES}, (0, 3, 120))],
    "children of a dead worker": [
        ({WORKER: Shown(ROOT), CHILD: Shown(WORKER, pages=30)}, (0, 3, 30)),
        ({WORKER: None, CHILD: Shown(1, pages=30)}, (0, 2, 30)),
    ],
    "time of an orphan that ends": [
        ({WORKER: Shown(ROOT, own=30)}, (30, 2, 0)),
        ({WORKER: Shown(1, own=50)}, (50, 2, 0)),
        ({WORKER: None}, (50, 1, 0)),
        ({}, (50, 1, 0)),
    ],
    "the first process ends": [({ROOT: Shown(1, own=20, children=5, pages=9)}, (25, 1, 9)), ({ROOT: None}, (25, 0, 0))],
    "another process with the number of a dead one": [
        ({WORKER: Shown(ROOT)}, (0, 2, 0)),
        ({WORKER: Shown(1, own=9000, started=8)}, (0, 1, 0)),
    ],
}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "uptime").write_text("1 1\n")
    for pid, process in {1: Shown(0), STRANGER: Shown(1, own=5000, pages=5000), ROOT: Shown(1)}.items():
        process.write(tmp_path / str(pid))
    return tmp_path


@pytest.mark.parametrize("story", STORIES)
def test_time_processes_and_memory_are_those_of_the_tree(proc: Path, story: str) -> None:
    tree = ProcessTree(ROOT, proc)
    for changes, (seconds, processes, pages) in STORIES[story]:
        for pid, process in changes.items():
            if process is None:
                shutil.rmtree(proc / str(pid))
            else:
                process.write(proc / str(pid))
        found = tree.read()
        assert (found.cpu_seconds, found.processes, found.memory_bytes) == (seconds, processes, pages * mmap.PAGESIZE)
    if story == "shared memory counts once":
        assert found.workers_bytes == (10 + 10) * mmap.PAGESIZE  # which no process shares with the first


def test_a_process_that_vanishes_during_the_walk_is_passed_over(proc: Path) -> None:
    (proc / str(WORKER)).mkdir()
    Shown(ROOT, pages=7).write(proc / str(CHILD))
    (proc / str(CHILD) / "status").unlink()
    reading = ProcessTree(ROOT, proc).read()
    assert (reading.processes, reading.memory_bytes) == (2, 0)
    assert ProcessTree(999, proc).read().processes == ProcessTree(1, proc / "missing").read().processes == 0
    # What threads wait for a core is summed where the kernel tells it.
    assert ProcessTree(ROOT, proc).queued_seconds() == 0.0
    for thread, waited in ((ROOT, 2), (WORKER, 1)):
        (task := proc / str(ROOT) / "task" / str(thread)).mkdir(parents=True)
        (task / "schedstat").write_text(f"7 {waited}000000000 9\n")
    assert ProcessTree(ROOT, proc).queued_seconds() == 3.0


def test_memory_and_cpu_time_of_a_real_child_are_found() -> None:
    code = "import os; data = bytearray(os.urandom(1) * (64 << 20)); print(flush=True); input()"
    reader = ProcessTree(os.getpid())
    before = reader.read()
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = reader.read()
        child.communicate(b"\n")
    after = reader.read()
    assert during.processes == before.processes + 1 == after.processes + 1
    assert during.memory_bytes - before.memory_bytes > 64 << 20
    assert before.cpu_seconds <= during.cpu_seconds <= after.cpu_seconds


def test_a_process_that_has_ended_does_not_run_though_its_parent_has_not_taken_notice() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert {os.getpid(), child.pid} & ProcessTree(os.getpid()).running() == {os.getpid()}
        assert child.wait() == 0


class Machine:
    """Core-seconds look by look, each of which takes its time; `spare` cores are there beside a quota."""

    def __init__(self, patch: pytest.MonkeyPatch, looks: list[tuple[float, float]], spare: float = 0.0) -> None:
        patch.setattr(cpu, "spare_cores", lambda: spare)
        self.now, self.look_seconds, self.looks = 0.0, 0.0, looks

    def watched(self) -> Callable[[float], float]:
        """Return what waits so many seconds, and then tells the cores of others."""
        neighbours = Neighbours(self._looked, clock=lambda: self.now)

        def after(seconds: float) -> float:
            self.now += seconds
            return neighbours.cores()

        return after

    def _looked(self) -> Sample:
        began, self.now = self.now, self.now + self.look_seconds
        busy, own = self.looks.pop(0)
        return Sample(seconds=began, cpu_seconds=own, machine_cpu_seconds=busy)


def test_what_others_did_is_the_machines_work_less_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    after = Machine(monkeypatch, [(100.0, 5.0), (130.0, 20.0), (131.0, 25.0)]).watched()
    assert [after(0.0), after(10.0), after(10.0)] == pytest.approx([0.0, 1.5, 0.0])  # at last: clocks differ a little
    for others, taken in ((20.0, 0.0), (62.0, 0.0), (63.5, 1.5)):  # on cores beyond a quota of two of 64
        after = Machine(monkeypatch, [(0.0, 0.0), (10 * (others + 2), 20.0)], spare=62.0).watched()
        assert after(10.0) == pytest.approx(taken)


def test_looking_takes_little_of_the_time_and_what_was_seen_last_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [(0.0, 0.0), (20.0, 0.0), (30.0, 0.0)])
    machine.look_seconds = 0.05
    after = machine.watched()
    assert (after(19.0), len(machine.looks)) == (0.0, 2)
    assert [after(1.0), after(19.0)] == pytest.approx([20 / 20.05] * 2)
    assert len(machine.looks) == 1


STAT = "cpu 900 0 0 100 0 0 0 0 0 0\ncpu0 100 10 20 5000 3 4 5 6 50 7\ncpu2 700 0 0 100 0 0 0 0 0 0\nintr 123 0 0\n"


def test_only_the_cores_that_may_be_used_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Neighbours(clock=itertools.count(0.0, 10.0).__next__).cores() >= 0.0
    assert busy_seconds() > 0.0
    (tmp_path / "stat").write_text(STAT)
    for cores, ticks in (([0], 145), ([2], 700), ([0, 2], 845)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cores=cores: set(cores))
        assert busy_seconds(tmp_path) == pytest.approx(ticks / TICK)


@pytest.fixture
def cores() -> Iterator[set[int]]:
    before = cpu.allowed()
    if len(before) < 2:
        pytest.skip("there is one core only")
    yield before
    os.sched_setaffinity(0, before)


def test_what_binds_this_process_is_named_with_what_undoes_it(cores: set[int]) -> None:
    bind, imports = os.sched_setaffinity, builtins.__import__
    binding = Binding()
    os.sched_setaffinity(0, {min(cores)})
    said = str(binding.end())
    assert f"`os.sched_setaffinity(0, {{min(cores)}})` bound this process to 1 of its {len(cores)} cores" in said
    (undo,) = re.findall(r"`(os.sched_setaffinity\(0, [^`]*\))` after", said)
    exec(undo)
    assert cpu.allowed() == cores
    binding = Binding()
    os.sched_setaffinity(0, {min(cores)})
    os.sched_setaffinity(0, cores)
    assert binding.end() is None  # as it has its cores back
    assert (os.sched_setaffinity, builtins.__import__) == (bind, imports)
