from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autopipe.hardware.process_tree import ProcessTree

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


def test_descendants_count_and_strangers_do_not(proc: Proc) -> None:
    proc.put(WORKER, ROOT)
    proc.put(CHILD, WORKER)
    assert tree(proc).read().processes == 3


def test_a_process_that_comes_later_joins(proc: Proc) -> None:
    reader = tree(proc)
    assert reader.read().processes == 1
    proc.put(WORKER, ROOT)
    assert reader.read().processes == 2


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
    assert tree(proc).read().memory_bytes == (40 + 10 + 10 + 60) * PAGE


def test_a_process_that_vanishes_during_the_walk_is_passed_over(proc: Proc) -> None:
    (proc.folder / str(WORKER)).mkdir()
    proc.put(CHILD, ROOT, pages=(7, 0))
    (proc.folder / str(CHILD) / "status").unlink()
    reading = tree(proc).read()
    assert (reading.processes, reading.memory_bytes) == (2, 0)


def test_names_with_spaces_and_brackets_are_read(proc: Proc) -> None:
    proc.put(WORKER, ROOT, name="my (odd) R 1 name) S")
    assert tree(proc).read().processes == 2


def test_children_of_a_dead_worker_still_count(proc: Proc) -> None:
    proc.put(WORKER, ROOT)
    proc.put(CHILD, WORKER, pages=(30, 0))
    reader = tree(proc)
    reader.read()
    proc.remove(WORKER)
    proc.put(CHILD, 1, pages=(30, 0))
    reading = reader.read()
    assert (reading.processes, reading.memory_bytes) == (2, 30 * PAGE)


def test_an_orphan_that_was_never_seen_belongs_by_its_group(proc: Proc) -> None:
    proc.put(ROOT, 1, group=ROOT)
    reader = tree(proc)
    reader.read()
    proc.put(CHILD, 1, group=ROOT)
    assert reader.read().processes == 2


def test_cpu_time_of_a_worker_passes_to_the_parent_that_waits_for_it(proc: Proc) -> None:
    proc.put(ROOT, 1, ticks=(10, 0))
    proc.put(WORKER, ROOT, ticks=(30, 0))
    reader = tree(proc)
    assert reader.read().cpu_seconds == 40 / TICK
    proc.remove(WORKER)
    proc.put(ROOT, 1, ticks=(10, 35))
    assert reader.read().cpu_seconds == 45 / TICK


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
    reading = reader.read()
    assert (reading.cpu_seconds, reading.memory_bytes, reading.processes) == (25 / TICK, 0, 0)


def test_another_process_with_the_number_of_a_dead_one_does_not_count(proc: Proc) -> None:
    proc.put(WORKER, ROOT)
    reader = tree(proc)
    reader.read()
    proc.put(WORKER, 1, ticks=(9000, 0), started=8)
    reading = reader.read()
    assert (reading.processes, reading.cpu_seconds) == (1, 0.0)


def test_a_tree_that_has_gone_has_nothing(proc: Proc) -> None:
    assert ProcessTree(999, proc.folder).read().processes == 0


def test_without_a_proc_there_is_nothing(tmp_path: Path) -> None:
    assert ProcessTree(1, tmp_path / "missing").read().processes == 0


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
