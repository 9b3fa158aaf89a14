"""What this process, its children and its neighbours use."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import itertools
import mmap
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autopipe.hardware import machine as cpu
from autopipe.hardware.gpu import Nvml
from autopipe.hardware.processes import (
    Binding,
    Neighbours,
    ProcessTree,
    Sample,
    Sampler,
    Usage,
    busy_seconds,
)
from tests.fakes.nvml import FakeNvml


def sample(seconds: float) -> Sample:
    return Sample(seconds=seconds)


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [(1.5, 2.5, [1, 2, 3]), (1, 2, [1, 2]), (-5, 99, [0, 1, 2, 3, 4]), (3.5, 99, [3, 4]), (99, 100, [4])],
)
def test_a_part_reaches_to_the_samples_around_it(start: float, stop: float, expected: list[int]) -> None:
    part = Usage(samples=tuple(map(sample, range(5))), spare_cores=2.5).between(start, stop)
    assert [each.seconds for each in part.samples] == expected
    assert part.spare_cores == 2.5
    assert Usage(samples=()).between(start, stop).samples == ()


Play = Callable[[dict[str, str]], Path]


def counting(ready: threading.Event, wanted: int) -> Callable[[], float]:
    """A clock of whole seconds, one a sample, that tells when there are enough."""
    seconds = iter(range(1_000_000))

    def clock() -> float:
        now = next(seconds)
        if now + 1 == wanted:
            ready.set()
        return float(now)

    return clock


def test_it_samples_until_it_is_stopped() -> None:
    ready = threading.Event()
    with Sampler(period_seconds=0.001, clock=counting(ready, 5)) as sampler:
        assert ready.wait(60)
    usage = sampler.usage
    assert [sample.seconds for sample in usage.samples] == list(range(len(usage.samples)))
    assert len(usage.samples) > 5
    assert usage.samples[-1].memory_bytes > 2**20
    assert usage.samples[-1].machine_cpu_seconds > 0
    assert "autopipe-sampler" not in {thread.name for thread in threading.enumerate()}


def test_a_sampler_that_its_own_thread_drops_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where garbage is collected in it."""
    sampler, ended = Sampler(period_seconds=0.001), threading.Event()
    sample = sampler._sample

    def dropped() -> None:
        if threading.current_thread() is sampler._thread and not ended.is_set():
            ended.set()
            sampler.stop()
        else:
            sample()

    monkeypatch.setattr(sampler, "_sample", dropped)
    sampler.start()
    assert ended.wait(60)
    sampler._thread.join()
    assert sampler.stop() == sampler.usage


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
    tick = os.sysconf("SC_CLK_TCK")
    assert first.cpu_seconds == 60 / tick
    assert first.machine_cpu_seconds == pytest.approx(168 / tick)
    assert (first.memory_bytes, first.processes) == (1200 * 1024, 1)
    assert Sampler().usage.spare_cores == 0.75


def test_cores_that_come_and_go_bring_and_take_no_work_of_others(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = iter([{0}, {0, 1}, {0, 1}])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: next(allowed))
    stat = "cpu0 {} 0 0 9 9 0 0 0 0 0\ncpu1 900000 0 0 9 9 0 0 0 0 0\n"
    proc = play({"stat": stat.format(0), "50/stat": "50 (python) S 1 50 50 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0\n"})
    tree = ProcessTree(50, proc)
    looks = [tree.read(clock=lambda: 0.0)]
    (proc / "stat").write_text(stat.format(2 * os.sysconf("SC_CLK_TCK")))
    looks.append(tree.read(clock=lambda: 4.0))
    assert Usage(samples=tuple(looks)).others_cores == 0.5
    soon = (looks[0], dataclasses.replace(looks[1], seconds=0.01))  # one count of the kernel would be a whole core
    assert Usage(samples=soon).others_cores is None


def test_gpus_are_sampled_and_a_library_that_was_lent_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml()
    with contextlib.closing(Nvml(library, {})) as nvml, Sampler(period_seconds=60, nvml=nvml) as sampler:
        sampler.stop()
        assert library.initialised == 1
        assert [use.busy_percent for use in sampler.usage.samples[0].gpus] == [75, 25]


def test_the_shortest_run_has_a_first_and_a_last_sample_and_one_that_never_started_none() -> None:
    with Sampler(period_seconds=60) as sampler:
        pass
    assert len(sampler.usage.samples) == 2
    assert sampler.stop() == sampler.usage
    assert Sampler().stop().samples == ()


TICK = os.sysconf("SC_CLK_TCK")
PAGE = mmap.PAGESIZE
ROOT, WORKER, CHILD, STRANGER = 100, 101, 102, 200


class Proc:
    """A /proc with processes as told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(
        self,
        pid: int,
        parent: int,
        *,
        ticks: tuple[int, int] = (0, 0),
        pages: tuple[int, int] = (0, 0),
        group: int = 1,
        started: int = 7,
        name: str = "python",
    ) -> None:
        """Show a process; `ticks` are its own and its children's, `pages` the resident ones and the shared of those."""
        own, children = ticks
        (self.folder / str(pid)).mkdir(exist_ok=True)
        (self.folder / str(pid) / "stat").write_text(
            f"{pid} ({name}) S {parent} {group} {group} 0 -1 0 9 9 9 9 {own} 0 {children} 0 20 0 1 0 {started} 9\n"
        )
        resident, shared = (count * PAGE // 1024 for count in pages)
        (self.folder / str(pid) / "status").write_text(
            f"Name:\t{name}\nVmRSS:\t{resident} kB\nRssAnon:\t{resident - shared} kB\n"
            f"RssFile:\t{shared - shared // 4} kB\nRssShmem:\t{shared // 4} kB\nThreads:\t1\n"
        )

    def remove(self, pid: int) -> None:
        for file in (self.folder / str(pid)).iterdir():
            file.unlink()
        (self.folder / str(pid)).rmdir()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    (tmp_path / "uptime").write_text("1 1\n")
    proc = Proc(tmp_path)
    proc.put(1, 0)
    proc.put(STRANGER, 1, ticks=(5000, 0), pages=(5000, 0))
    proc.put(ROOT, 1)
    return proc


def tree(proc: Proc) -> ProcessTree:
    return ProcessTree(ROOT, proc.folder)


def test_what_threads_wait_for_a_core_is_summed_where_the_kernel_tells_it(proc: Proc) -> None:
    assert tree(proc).queued_seconds() == 0.0
    for thread, waited in ((ROOT, 2), (WORKER, 1)):
        (proc.folder / str(ROOT) / "task" / str(thread)).mkdir(parents=True)
        (proc.folder / str(ROOT) / "task" / str(thread) / "schedstat").write_text(f"7 {waited}000000000 9\n")
    assert tree(proc).queued_seconds() == 3.0


def test_time_of_a_child_that_its_parent_never_waits_for_is_not_lost(proc: Proc) -> None:
    proc.put(WORKER, ROOT, ticks=(10 * TICK, 0))
    reader = tree(proc)
    assert reader.read().cpu_seconds == 10.0
    proc.remove(WORKER)  # its parent ignores SIGCHLD
    assert [reader.read().cpu_seconds for _ in range(2)] == [10.0, 10.0]
    proc.put(ROOT, 1, ticks=(3 * TICK, 0))
    assert reader.read().cpu_seconds == 13.0


def test_time_that_is_between_a_child_and_its_parent_is_counted_once(proc: Proc) -> None:
    proc.put(WORKER, ROOT, ticks=(10 * TICK, 0))
    reader = tree(proc)
    reader.read()
    proc.remove(WORKER)
    assert reader.read().cpu_seconds == 10.0
    proc.put(ROOT, 1, ticks=(0, 10 * TICK))  # it has waited for it by now
    assert [reader.read().cpu_seconds for _ in range(2)] == [10.0, 10.0]


def test_shared_memory_counts_once(proc: Proc) -> None:
    proc.put(ROOT, 1, pages=(100, 60))
    proc.put(WORKER, ROOT, pages=(50, 40))
    proc.put(CHILD, ROOT, pages=(50, 40))
    reading = tree(proc).read()
    assert reading.memory_bytes == (40 + 10 + 10 + 60) * PAGE
    assert reading.workers_bytes == (10 + 10) * PAGE  # which no process shares with the first


def test_a_process_that_vanishes_during_the_walk_is_passed_over(proc: Proc) -> None:
    (proc.folder / str(WORKER)).mkdir()
    proc.put(CHILD, ROOT, pages=(7, 0))
    (proc.folder / str(CHILD) / "status").unlink()
    reading = tree(proc).read()
    assert (reading.processes, reading.memory_bytes) == (2, 0)


def test_children_of_a_dead_worker_still_count(proc: Proc) -> None:
    proc.put(WORKER, ROOT)
    proc.put(CHILD, WORKER, pages=(30, 0))
    reader = tree(proc)
    reader.read()
    proc.remove(WORKER)
    proc.put(CHILD, 1, pages=(30, 0))
    reading = reader.read()
    assert (reading.processes, reading.memory_bytes) == (2, 30 * PAGE)


def test_cpu_time_of_an_orphan_is_kept_when_it_ends(proc: Proc) -> None:
    proc.put(WORKER, ROOT, ticks=(30, 0))
    reader = tree(proc)
    reader.read()
    proc.put(WORKER, 1, ticks=(50, 0))
    reader.read()
    proc.remove(WORKER)
    assert reader.read().cpu_seconds == 50 / TICK
    assert reader.read().cpu_seconds == 50 / TICK


def test_when_the_first_process_ends_its_cpu_time_is_kept(proc: Proc) -> None:
    proc.put(ROOT, 1, ticks=(20, 5))
    reader = tree(proc)
    reader.read()
    proc.remove(ROOT)
    last = reader.read()
    assert (last.cpu_seconds, last.memory_bytes, last.processes) == (25 / TICK, 0, 0)


def test_another_process_with_the_number_of_a_dead_one_does_not_count(proc: Proc) -> None:
    proc.put(WORKER, ROOT)
    reader = tree(proc)
    reader.read()
    proc.put(WORKER, 1, ticks=(9000, 0), started=8)
    reading = reader.read()
    assert (reading.processes, reading.cpu_seconds) == (1, 0.0)


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


def test_descendants_count_as_they_come_and_strangers_do_not(proc: Proc) -> None:
    reader = tree(proc)
    assert reader.read().processes == 1
    proc.put(WORKER, ROOT, name="my (odd) R 1 name) S")
    proc.put(CHILD, WORKER)
    assert reader.read().processes == 3
    proc.put(ROOT, 1, group=ROOT)
    proc.put(CHILD + 1, 1, group=ROOT)  # an orphan that was never seen belongs by its group
    assert reader.read().processes == 4


def test_a_tree_that_has_gone_and_a_missing_proc_have_nothing(proc: Proc) -> None:
    assert ProcessTree(999, proc.folder).read().processes == 0
    assert ProcessTree(1, proc.folder / "missing").read().processes == 0


@pytest.fixture
def no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "spare_cores", lambda: 0.0)


class Machine:
    """Core-seconds look by look, each of which takes its time."""

    def __init__(self, busy: list[float], own: list[float], look_seconds: float = 0.0) -> None:
        self.now = 0.0
        self.busy = busy
        self._own = own
        self._look_seconds = look_seconds

    def watched(self) -> Neighbours:
        return Neighbours(self._looked, clock=lambda: self.now)

    def _looked(self) -> Sample:
        began, self.now = self.now, self.now + self._look_seconds
        return Sample(seconds=began, cpu_seconds=self._own.pop(0), machine_cpu_seconds=self.busy.pop(0))


@pytest.mark.usefixtures("no_quota")
def test_what_others_did_is_the_machines_work_less_ones_own() -> None:
    machine = Machine(busy=[100.0, 130.0, 131.0], own=[5.0, 20.0, 25.0])
    neighbours = machine.watched()
    assert neighbours.cores() == 0.0
    machine.now += 10.0
    assert neighbours.cores() == pytest.approx(1.5)
    machine.now += 10.0
    assert neighbours.cores() == 0.0  # clocks differ a little


@pytest.mark.usefixtures("no_quota")
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
def test_others_on_cores_beyond_a_quota_take_none(others: float, taken: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "spare_cores", lambda: 62.0)
    machine = Machine(busy=[0.0, 10 * (others + 2)], own=[0.0, 20.0])  # two of 64 cores
    neighbours = machine.watched()
    machine.now += 10.0
    assert neighbours.cores() == pytest.approx(taken)


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
    monkeypatch.setattr("autopipe.hardware.processes._TICKS_PER_SECOND", 100)
    assert busy_seconds(tmp_path) == pytest.approx(seconds)


def test_neighbours_are_looked_at_on_this_machine() -> None:
    assert Neighbours(clock=itertools.count(0.0, 10.0).__next__).cores() >= 0.0
    assert busy_seconds() > 0.0


# -------------------- what binds this process to fewer cores


@pytest.fixture
def cores() -> Iterator[set[int]]:
    before = cpu.allowed()
    if len(before) < 2:
        pytest.skip("there is one core only")
    yield before
    os.sched_setaffinity(0, before)


def test_what_binds_this_process_is_named_with_what_undoes_it(cores: set[int]) -> None:
    binding = Binding()
    os.sched_setaffinity(0, {min(cores)})
    said = binding.end()
    assert said is not None
    assert f"`os.sched_setaffinity(0, {{min(cores)}})` bound this process to 1 of its {len(cores)} cores" in said
    (undo,) = re.findall(r"`(os.sched_setaffinity\(0, [^`]*\))` after", said)
    exec(undo)
    assert cpu.allowed() == cores


def test_a_process_that_has_its_cores_back_is_not_told_of(cores: set[int]) -> None:
    bind, imports = os.sched_setaffinity, builtins.__import__
    binding = Binding()
    os.sched_setaffinity(0, {min(cores)})
    os.sched_setaffinity(0, cores)
    assert binding.end() is None
    assert (os.sched_setaffinity, builtins.__import__) == (bind, imports)
