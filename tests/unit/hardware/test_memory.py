from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autopipe.hardware import memory

Play = Callable[[dict[str, str]], Path]

GIB = 2**30
MEMINFO = (
    f"MemTotal:       {16 * 2**20} kB\nMemFree:  1 kB\nMemAvailable:   {12 * 2**20} kB\nHugePages_Total:       0\n"
)
V2 = {
    "proc/meminfo": MEMINFO,
    "proc/self/cgroup": "0::/jobs/trial\n",
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
}
V1 = {
    "proc/meminfo": MEMINFO,
    "proc/self/cgroup": "4:memory:/jobs/trial\n",
    "proc/self/mountinfo": "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
}


def test_without_cgroups_the_machine_counts(play: Play) -> None:
    found = memory.detect(play({"proc/meminfo": MEMINFO}))
    assert (found.usable_bytes, found.available_bytes) == (16 * GIB, 12 * GIB)


def test_version_2_limit_with_pages_of_files_counted_as_free_but_for_what_is_mapped(play: Play) -> None:
    group = "sys/fs/cgroup/jobs/trial"
    root = play(
        V2
        | {
            f"{group}/memory.max": f"{8 * GIB}\n",
            f"{group}/memory.high": "max\n",
            f"{group}/memory.current": f"{5 * GIB}\n",
            f"{group}/memory.stat": f"anon 123\ninactive_file {2 * GIB}\nactive_file {2 * GIB}\nfile_mapped {GIB}\n",
        }
    )
    found = memory.detect(root)
    assert (found.usable_bytes, found.available_bytes) == (8 * GIB, 6 * GIB)


def test_pages_that_may_all_be_mapped_ones_count_as_far_as_they_are_inactive(play: Play) -> None:
    group = "sys/fs/cgroup/jobs/trial"
    stat = f"inactive_file {GIB}\nactive_file {GIB}\nfile_mapped {2 * GIB}\n"
    limit = {f"{group}/memory.max": f"{8 * GIB}\n", f"{group}/memory.current": f"{5 * GIB}\n"}
    assert memory.detect(play(V2 | limit | {f"{group}/memory.stat": stat})).available_bytes == 4 * GIB


def test_a_soft_limit_of_a_parent_counts(play: Play) -> None:
    root = play(
        V2
        | {
            "sys/fs/cgroup/jobs/trial/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/jobs/memory.high": f"{4 * GIB}\n",
            "sys/fs/cgroup/jobs/memory.current": f"{5 * GIB}\n",
        }
    )
    found = memory.detect(root)
    assert (found.usable_bytes, found.available_bytes) == (4 * GIB, 0)


def test_version_1_limit(play: Play) -> None:
    group = "sys/fs/cgroup/memory/jobs/trial"
    root = play(
        V1
        | {
            f"{group}/memory.limit_in_bytes": f"{2 * GIB}\n",
            f"{group}/memory.usage_in_bytes": f"{GIB}\n",
            f"{group}/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 4}\ntotal_active_file {GIB // 4}\n",
        }
    )
    found = memory.detect(root)
    assert (found.usable_bytes, found.available_bytes) == (2 * GIB, 3 * GIB // 2)


def test_a_version_1_group_without_limit_changes_nothing(play: Play) -> None:
    root = play(V1 | {"sys/fs/cgroup/memory/jobs/trial/memory.limit_in_bytes": "9223372036854771712\n"})
    found = memory.detect(root)
    assert (found.usable_bytes, found.available_bytes) == (16 * GIB, 12 * GIB)


ANOTHERS = {"proc/vmstat": "oom_kill 7\n"}  # of the whole machine


def test_version_2_tells_how_often_a_process_of_this_group_was_killed(play: Play) -> None:
    group = "sys/fs/cgroup/jobs"
    events = {f"{group}/trial/memory.events": "low 0\noom 9\noom_kill 2\n", f"{group}/memory.events": "oom_kill 5\n"}
    assert memory.oom_kills(play(V2 | ANOTHERS | events)) == 2


def test_version_1_tells_how_often_a_process_of_this_group_was_killed(play: Play) -> None:
    group = "sys/fs/cgroup/memory/jobs"
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
    events = {f"{group}/trial/memory.oom_control": control, f"{group}/memory.oom_control": "oom_kill 5\n"}
    assert memory.oom_kills(play(V1 | ANOTHERS | events)) == 3


@pytest.mark.parametrize("files", [{}, V1, V2], ids=["none", "version 1", "version 2"])
def test_where_no_group_tells_of_kills_none_is_counted(play: Play, files: dict[str, str]) -> None:
    assert memory.oom_kills(play(ANOTHERS | files)) == 0


def test_this_machine_has_some_memory_left() -> None:
    found = memory.detect()
    assert 0 < found.available_bytes <= found.usable_bytes


def test_how_full_memory_is_does_not_make_it_another() -> None:
    assert memory.Memory(usable_bytes=2, available_bytes=1) == memory.Memory(usable_bytes=2, available_bytes=0)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (64 * 2**20, "64 MiB"),
        (25_165_824_000, "23.4 GiB"),
        (3 * 2**41, "6 TiB"),
        (2**30 - 1, "1 GiB"),
    ],
)
def test_sizes_are_written_for_people(count: int, text: str) -> None:
    assert memory.size_text(count) == text
