"""Cores and memory that this process may use, in control groups and without."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from autopipe.hardware import machine
from tests.unit.hardware.conftest import Play

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1_MOUNT = "31 23 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
CONTAINER = V1_MOUNT.replace("0:29 / ", "0:29 /docker/abc ")
BOTH = V1_MOUNT + V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(os, "cpu_count", lambda: 16)


def test_without_cgroups_the_affinity_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (machine.quota_cores(tmp_path), machine.usable_cores(tmp_path)) == (None, 16)
    monkeypatch.undo()
    with ThreadPoolExecutor(1) as one:  # whose thread alone is bound
        one.submit(lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})).result()
        assert one.submit(machine.usable_cores).result() == 1


def test_the_model_is_the_first_name_listed_or_else_the_architecture(play: Play) -> None:
    root = play({"proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 7B13\n\nmodel name\t: other\n"})
    assert machine.model_name(root) == "AMD EPYC 7B13"
    assert machine.model_name(play({"proc/cpuinfo": "processor\t: 0\nCPU part\t: 0xd0c\n"})) == os.uname().machine


def v2_quotas(limits: dict[str, str]) -> dict[str, str]:
    files = {f"sys/fs/cgroup/{group}/cpu.max": f"{quota} 100000\n" for group, quota in limits.items()}
    return {"proc/self/cgroup": "0::/jobs/trial\n", "proc/self/mountinfo": V2_MOUNT} | files


def test_the_lowest_version_2_quota_counts(play: Play) -> None:
    for quota, usable, time in (("400000", 4, 4.0), ("max", 16, 16.0), ("150000", 2, 1.5), ("50000", 1, 0.5)):
        root = play(v2_quotas({"jobs/trial": quota}))
        found = machine.usable_cores(root), machine.core_time(root), machine.spare_cores(root)
        assert found == (usable, time, 16 - time)
    assert machine.core_time(play(v2_quotas({"jobs/trial": "10000000"}))) == 16.0
    assert machine.core_time(play(v2_quotas({"jobs/trial": "400000", "jobs": "200000", ".": "max"}))) == 2.0


V1_QUOTAS = {
    "parent": ("/jobs/trial", V1_MOUNT, {"jobs/": 300_000}, 3),
    "no quota": ("/jobs/trial", V1_MOUNT, {"jobs/trial/": -1}, 16),
    "named as the host does: the mount is that group": ("/docker/abc", CONTAINER, {"": 200_000}, 2),
    "not mounted": ("/elsewhere", CONTAINER, {"": 200_000}, 2),
    "outside the namespace": ("/../other", V1_MOUNT, {"": -1, "../other/": 100_000}, 16),
    "both versions": ("/jobs/trial", BOTH, {"jobs/trial/": 500_000}, 5),
}


@pytest.mark.parametrize("case", V1_QUOTAS)
def test_version_1_quotas_are_found(play: Play, case: str) -> None:
    group, mount, limits, usable = V1_QUOTAS[case]
    files = {"proc/self/cgroup": f"9:name=systemd:/\n1:cpu,cpuacct:{group}\n0::/\n", "proc/self/mountinfo": mount}
    for name, quota in limits.items():
        files[f"sys/fs/cgroup/cpu/{name}cpu.cfs_quota_us"] = f"{quota}\n"
        files[f"sys/fs/cgroup/cpu/{name}cpu.cfs_period_us"] = "100000\n"
    assert machine.usable_cores(play(files)) == usable


def test_what_keeps_a_process_to_fewer_cores_is_named(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[Any, str, dict[str, str], list[str]]] = [
        (range(16), "max", {}, []),
        ([0], "max", {}, ["on core 0 only"]),
        ([0, 1, 2, 5, 8, 9], "max", {}, ["on cores 0-2, 5, 8-9 only"]),
        (range(16), "150000", {}, ["the time of 1.5 cores"]),
        (range(16), "max", {"OMP_PROC_BIND": "TRUE", "KMP_AFFINITY": "none"}, ["OMP_PROC_BIND=TRUE"]),
        ([3], "50000", {"GOMP_CPU_AFFINITY": "3"}, ["on core 3 only", "the time of 0.5 cores", "GOMP_CPU_AFFINITY=3"]),
    ]
    for cores, quota, environment, said in cases:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cores=cores: set(cores))
        limits = machine.core_limits(play(v2_quotas({"jobs/trial": quota})), environment)
        assert [words for words, limit in zip(said, limits, strict=True) if words not in limit] == []


GIB = 2**30


def test_this_machine_has_some_memory_left_and_sizes_are_written_for_people() -> None:
    found = machine.detect_memory()
    assert 0 < found.available_bytes <= found.usable_bytes
    sizes = {0: "0 B", 1023: "1023 B", 2**30 - 1: "1 GiB", 25_165_824_000: "23.4 GiB", 3 * 2**41: "6 TiB"}
    assert {count: machine.size_text(count) for count in sizes} == sizes


MEMINFO = f"MemTotal: {16 * 2**20} kB\nMemFree:  1 kB\nMemAvailable:   {12 * 2**20} kB\nHugePages_Total:       0\n"
V1_MEMORY = V1_MOUNT.replace("/cpu rw", "/memory rw").replace("rw,cpu,cpuacct", "rw,memory")
V2_STAT = f"anon 123\ninactive_file {2 * GIB}\nactive_file {2 * GIB}\nfile_mapped {GIB}\n"
MAPPED = f"inactive_file {GIB}\nactive_file {GIB}\nfile_mapped {2 * GIB}\n"
V1_STAT = f"inactive_file 1\ntotal_inactive_file {GIB // 4}\ntotal_active_file {GIB // 4}\n"


def v2(name: str = "0::/jobs/trial\n", mount: str = V2_MOUNT, root: str = "", /, **values: object) -> dict[str, str]:
    """Return the files of a group by their names; `parent_` stands before those of the group above."""
    found = {"proc/self/cgroup": name, "proc/self/mountinfo": mount}
    for file, value in values.items():
        group = "jobs/" if file.startswith("parent_") else "jobs/trial/"
        found[f"sys/fs/cgroup/{root}{group}memory.{file.removeprefix('parent_')}"] = f"{value}\n"
    return found


v1 = functools.partial(v2, "4:memory:/jobs/trial\n", V1_MEMORY, "memory/")


MEMORY: dict[str, tuple[dict[str, str], int, float]] = {
    "no group": ({}, 16, 12),
    # Pages of files are as good as free, but for mapped ones; where all active ones may be, inactive ones count.
    "version 2": (v2(max=8 * GIB, high="max", current=5 * GIB, stat=V2_STAT), 8, 6),
    "mapped pages": (v2(max=8 * GIB, high=9 * GIB, current=5 * GIB, stat=MAPPED), 8, 4),
    "soft limit of a parent": (v2(max=8 * GIB, parent_high=4 * GIB, parent_current=5 * GIB), 4, 0),
    "version 1": (v1(limit_in_bytes=2 * GIB, usage_in_bytes=GIB, stat=V1_STAT), 2, 1.5),
    "version 1 without a limit": (v1(limit_in_bytes=9223372036854771712), 16, 12),
}


@pytest.mark.parametrize("case", MEMORY)
def test_the_lowest_limit_of_all_groups_counts(play: Play, case: str) -> None:
    limits, usable, available = MEMORY[case]
    found = machine.detect_memory(play({"proc/meminfo": MEMINFO} | limits))
    assert (found.usable_bytes, found.available_bytes) == (usable * GIB, available * GIB)


V1_EVENTS = "oom_kill_disable 0\nunder_oom 0\noom_kill 3"


def test_kills_of_this_group_alone_are_counted(play: Play) -> None:
    of_v2 = v2(events="low 0\noom 9\noom_kill 2", parent_events="oom_kill 5")
    of_v1 = v1(oom_control=V1_EVENTS, parent_oom_control="oom_kill 5")
    for group, kills in (({}, 0), (v1(), 0), (v2(), 0), (of_v2, 2), (of_v1, 3)):  # the first ones say nothing
        assert machine.oom_kills(play({"proc/vmstat": "oom_kill 7\n"} | group)) == kills  # 7 of the whole machine


def test_mounts_are_read_with_any_number_of_optional_fields_and_escaped_names(play: Play) -> None:
    lines = (
        "36 35 98:0 /inner /mnt rw shared:1 master:2 - ext3 /dev/root rw,errors=continue\n"
        "36 35 98:0 /a\\040b /my\\040photos\\134x rw - nfs4 server:/ rw\n"
    )
    first, second = machine.read(play({"proc/self/mountinfo": lines}))
    assert first == machine.Mount(kind="ext3", inner="/inner", point="/mnt", options=("rw", "errors=continue"))
    assert (second.point, second.inner) == ("/my photos\\x", "/a b")
